"""What cannot be captured or removed: left out only where that was allowed, declared, named."""

import os
import subprocess

import pytest

from takeback.adapters.file import changes, paths
from takeback.adapters.file.adapter import FileAdapter
from takeback.adapters.file.kernel import open_strictly
from takeback.errors import ResourceUnreachable
from takeback.testing.adapter_suite import Desk
from tests.files import as_an_ordinary_user, leftovers
from tests.memory import MemoryBlobs
from tests.world import World

# Made in the very moment: nothing in it is old enough for its times to be believed.
TREE = """
os.makedirs("t/s"); open("t/a", "w").write("a"); os.link("t/a", "t/b"); os.link("t/a", "t/s/c")
open("t/secret", "w").write("x"); os.chmod("t/secret", 0); os.link("t/secret", "t/s/secret too")
"""


@pytest.mark.root
class TestAsAnOrdinaryUser:
    @pytest.fixture
    def world(self, world: World) -> World:
        os.chown(world.root, 65534, 65534)
        return world

    def run(self, world: World, code: str, groups: tuple[int, ...] = ()) -> list[str]:
        return as_an_ordinary_user(world, TREE + code, groups).splitlines()

    def test_hard_links_beside_an_unreadable_file_go_and_come_back(self, world: World) -> None:
        said = self.run(
            world,
            """
print(sorted(os.listdir("t")))
effect = desk.do(changes.delete_change("t", allow_inexact=True))
print(os.path.exists("t"), effect.remedy.residue.count("was not captured"))
desk.undo(effect)
print(os.stat("t/a").st_nlink, os.path.samefile("t/a", "t/s/c"), sorted(os.listdir("t")))
""",
        )
        assert said[1:] == ["False 2", "3 True ['a', 'b', 's']"]
        assert not leftovers(world)

    def test_owners_that_will_be_right_are_not_declared_lost(self, world: World) -> None:
        said = self.run(
            world,
            """
os.chown("t/a", -1, 100)
effect = desk.do(changes.delete_change("t", allow_inexact=True))
print("are not restored" in effect.remedy.residue)
desk.undo(effect)
print(os.stat("t/a").st_gid, os.stat("t/s/c").st_gid, os.stat("t/s").st_gid)
""",
            groups=(100,),
        )
        assert said == ["False", "100 100 65534"]

    def test_owners_that_cannot_be_given_back_are_declared_lost(self, world: World) -> None:
        (world / "u").mkdir()
        (world / "u" / "mine").write_bytes(b"mine")
        (world / "u" / "theirs").write_bytes(b"theirs")
        for name in ("u", "u/mine"):
            os.chown(world / name, 65534, 65534)
        said = self.run(
            world,
            """
effect = desk.do(changes.delete_change("u", allow_inexact=True))
print("owners in" in effect.remedy.residue, effect.remedy.exact)
desk.undo(effect)
print(os.stat("u/theirs").st_uid, open("u/theirs").read())
""",
        )
        assert said == ["True False", "65534 theirs"]

    @pytest.mark.parametrize("got_to", ["intent", "swapping", "going"])
    def test_a_deletion_that_left_something_out_is_settled_wherever_it_died(
        self, world: World, got_to: str
    ) -> None:
        said = self.run(
            world,
            f"""
effect = desk.intend(changes.delete_change("t", allow_inexact=True))
names = scratch(effect.id, 0, b"t")
if {got_to!r} != "intent":
    os.rename("t", names.swapping if {got_to!r} == "swapping" else names.going)
if {got_to!r} == "going":
    os.unlink(names.going + b"/a"); os.unlink(names.going + b"/secret")
print(settle(FileAdapter(blobs), effect).value, os.listdir("."))
""",
        )
        assert said == (["before ['t']"] if got_to == "intent" else ["after []"])

    def test_an_unreadable_file_that_came_later_is_not_removed_with_it(self, world: World) -> None:
        said = self.run(
            world,
            """
effect = desk.intend(changes.delete_change("t", allow_inexact=True))
open("t/later", "w").write("y"); os.chmod("t/later", 0)
try:
    desk.adapter.apply(effect)
except Drifted as error:
    print(sorted(os.listdir("t")))
""",
        )
        assert said == ["['a', 'b', 'later', 's', 'secret']"]

    def test_a_file_nobody_may_read_is_not_written_and_the_hint_can_be_followed(self, world: World) -> None:
        said = self.run(
            world,
            """
open("f", "w").write("old"); os.chmod("f", 0)
for inexact in (False, True):
    try:
        desk.do(changes.write_change("f", blobs.put(b"new"), 3, allow_inexact=inexact))
    except NoRemedy as error:
        print("inexact" in error.hint, "chmod u+r" in error.hint)
os.chmod("f", 0o400)
effect = desk.do(changes.write_change("f", blobs.put(b"new"), 3))
print(effect.remedy.exact, open("f").read())
desk.undo(effect)
print(open("f").read(), oct(os.stat("f").st_mode))
""",
        )
        assert said == ["False True", "False True", "True new", "old 0o100400"]

    def test_with_a_readable_mode_the_unreadable_file_is_replaced_and_declared(self, world: World) -> None:
        said = self.run(
            world,
            """
open("f", "w").write("old"); os.chmod("f", 0)
effect = desk.do(changes.write_change("f", blobs.put(b"new"), 3, 0o600, allow_inexact=True))
print(open("f").read(), effect.remedy.residue.endswith("was not captured: it is not readable"))
""",
        )
        assert said == ["new True"]


@pytest.mark.root
@pytest.mark.needs("chattr")
@pytest.mark.parametrize("inside", [[], ["file"]])
def test_a_subdirectory_that_cannot_be_removed_is_named_and_the_tree_is_whole(
    world: World, inside: list[str]
) -> None:
    (world / "tree" / "sub" / "rock").mkdir(parents=True)
    (world / "tree" / "a").write_bytes(b"a")
    for name in inside:
        (world / "tree" / "sub" / "rock" / name).write_bytes(b"f")
    before = world.picture()
    subprocess.run(["chattr", "+i", world / "tree" / "sub" / "rock"], check=True)
    try:
        with pytest.raises(ResourceUnreachable, match=r"tree/sub/rock.* cannot be changed: it.* immutable"):
            Desk(FileAdapter(MemoryBlobs())).do(changes.delete_change(world / "tree"))
        assert world.picture() == before
    finally:
        subprocess.run(["chattr", "-i", world / "tree" / "sub" / "rock"], check=True)


@pytest.mark.root
def test_in_a_sticky_directory_the_file_of_someone_else_is_named(world: World) -> None:
    (world / "tree" / "sticky").mkdir(parents=True)
    (world / "tree" / "sticky" / "theirs").write_bytes(b"theirs")
    (world / "tree" / "sticky").chmod(0o1777)
    for path in (world.root, world / "tree"):
        os.chown(path, 65534, 65534)
    said = as_an_ordinary_user(
        world,
        """
        try:
            desk.do(changes.delete_change("tree", allow_inexact=True))
        except ResourceUnreachable as error:
            print(error, os.listdir("."), os.listdir("tree/sticky"))
        """,
    )
    assert "tree/sticky/theirs." in said and said.strip().endswith("['tree'] ['theirs']")


def test_a_file_too_much_for_the_limit_leaves_its_other_names_out_too(world: World) -> None:
    (world / "tree").mkdir()
    (world / "tree" / "a").write_bytes(bytes(900))
    (world / "tree" / "b").write_bytes(bytes(200))
    os.link(world / "tree" / "b", world / "tree" / "c")
    desk = Desk(FileAdapter(MemoryBlobs(), max_capture_bytes=1000))
    effect = desk.do(changes.delete_change(world / "tree", allow_inexact=True))
    desk.undo(effect)
    assert os.listdir(world / "tree") == ["a"]


def test_a_very_deep_directory_goes_and_comes_back_in_a_time_that_grows_with_its_entries(
    world: World,
) -> None:
    """Every level by its path from the top would be 1,500 walks of up to 1,500 steps."""
    levels = 1_500
    fd = os.open(world.root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.symlink("end", "f", dir_fd=fd)
    os.close(fd)
    steps = 0

    def counting(fd: int, path: bytes, flags: int, cross_mounts: bool = True) -> int:
        nonlocal steps
        steps += path.count(b"/") + 1
        return open_strictly(fd, path, flags, cross_mounts)

    desk = Desk(FileAdapter(MemoryBlobs()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "open_strictly", counting)
        undo = desk.undo(desk.do(changes.delete_change(world / "d")))
        assert (world / "d").exists()
        desk.undo(undo)
    assert not os.listdir(world.root)
    assert steps < levels * 40
