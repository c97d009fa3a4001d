"""What may not be read, written or owned is declared, refused in words, and left alone."""

import os
import subprocess

import pytest

from takeback.adapters.file import changes
from takeback.adapters.file.adapter import FileAdapter
from takeback.errors import ResourceUnreachable
from takeback.model.plan import Outcome
from takeback.testing.adapter_suite import Desk
from tests.files import as_an_ordinary_user, write
from tests.memory import MemoryBlobs
from tests.world import World


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


@pytest.mark.root
@pytest.mark.needs("chattr")
@pytest.mark.parametrize("flag", ["i", "a"])
def test_a_protected_file_gives_a_clear_error_and_stays(world: World, blobs: MemoryBlobs, flag: str) -> None:
    (world / "f").write_bytes(b"before")
    subprocess.run(["chattr", f"+{flag}", world / "f"], check=True)
    word = "immutable" if flag == "i" else "append-only"
    try:
        for change in (
            write(blobs, world / "f"),
            changes.delete_change(world / "f"),
            changes.move_change(world / "f", world / "g"),
        ):
            desk = Desk(FileAdapter(blobs))
            with pytest.raises(ResourceUnreachable, match=word):
                desk.do(change)
            assert sorted(os.listdir(world.root)) == ["f"]
    finally:
        subprocess.run(["chattr", f"-{flag}", world / "f"], check=True)
    assert (world / "f").read_bytes() == b"before"


@pytest.mark.root
@pytest.mark.needs("chattr")
def test_a_protected_file_deep_in_a_tree_is_named(world: World, blobs: MemoryBlobs) -> None:
    (world / "tree" / "deep").mkdir(parents=True)
    (world / "tree" / "deep" / "rock").write_bytes(b"stays")
    before = world.picture()
    subprocess.run(["chattr", "+i", world / "tree" / "deep" / "rock"], check=True)
    try:
        with pytest.raises(
            ResourceUnreachable, match="tree/deep/rock cannot be changed: it is marked immutable"
        ):
            Desk(FileAdapter(blobs)).do(changes.delete_change(world / "tree"))
        assert world.picture() == before
    finally:
        subprocess.run(["chattr", "-i", world / "tree" / "deep" / "rock"], check=True)


@pytest.mark.root
class TestAsAnOrdinaryUser:
    """In a child that gave up its rights."""

    def run(self, world: World, code: str) -> str:
        return as_an_ordinary_user(world, code)

    @pytest.mark.parametrize("mode", ["0o500", "0"])
    def test_a_tree_with_a_directory_that_cannot_be_emptied_is_refused_whole(
        self, world: World, mode: str
    ) -> None:
        os.chown(world.root, 65534, 65534)
        said = self.run(
            world,
            f"""
            os.makedirs("t/locked"); open("t/f", "w").close(); open("t/locked/z", "w").close()
            os.chmod("t/f", 0); os.chmod("t/locked", {mode})
            before = os.stat("t/f").st_ino
            try:
                desk.do(changes.delete_change("t", allow_inexact=True))
            except ResourceUnreachable as error:
                print("locked" in str(error), os.stat("t/f").st_ino == before, len(os.listdir("t")))
            """,
        )
        assert said.split() == ["True", "True", "2"]

    def tree_with_a_secret(self, world: World) -> None:
        (world / "tree").mkdir()
        os.chown(world.root, 65534, 65534)
        for name, mode in (("open", 0o644), ("secret", 0o000)):
            (world / "tree" / name).write_bytes(name.encode())
            (world / "tree" / name).chmod(mode)
            os.chown(world / "tree" / name, 65534, 65534)
        os.chown(world / "tree", 65534, 65534)

    def test_an_unreadable_file_in_a_tree_is_declared_and_refused(self, world: World) -> None:
        self.tree_with_a_secret(world)
        out = self.run(
            world,
            """
            change = changes.delete_change("tree")
            print(desk.adapter.assess(change).lost)
            try:
                desk.do(change)
            except NoRemedy as refusal:
                print(refusal)
        """,
        )
        assert out.count("tree/secret") == 2 and out.count("not readable") == 2
        assert sorted(os.listdir(world / "tree")) == ["open", "secret"]

    def test_when_allowed_the_rest_comes_back_and_the_residue_is_named(self, world: World) -> None:
        self.tree_with_a_secret(world)
        out = self.run(
            world,
            """
            effect = desk.do(changes.delete_change("tree", allow_inexact=True))
            print(effect.remedy.exact, effect.remedy.residue)
            desk.undo(effect)
        """,
        )
        assert out.startswith("False") and "tree/secret was not captured: it is not readable" in out
        assert os.listdir(world / "tree") == ["open"]
        assert (world / "tree" / "open").read_bytes() == b"open"

    def test_a_write_over_an_unreadable_file_is_not_undone_but_excluded(self, world: World) -> None:
        self.tree_with_a_secret(world)
        os.chown(world / "tree" / "secret", 0, 0)
        (world / "tree" / "secret").chmod(0o600)
        out = self.run(
            world,
            """
            change = changes.write_change("tree/secret", blobs.put(b"new"), 3, allow_inexact=True)
            effect = desk.do(change)
            outcomes = desk.adapter.assess(undo_of(effect, OnConflict.FORCE), effect).outcomes
            print([each.outcome.value for each in outcomes])
        """,
        )
        assert out.strip() == f"['{Outcome.EXCLUDED.value}']"
        assert (world / "tree" / "secret").read_bytes() == b"new"

    def test_a_file_of_someone_else_cannot_be_replaced_unnoticed(self, world: World) -> None:
        os.chown(world.root, 65534, 65534)
        (world / "theirs").write_bytes(b"root's")
        out = self.run(
            world,
            """
            change = changes.write_change("theirs", blobs.put(b"new"), 3)
            print(desk.adapter.assess(change).lost)
            try:
                desk.do(change)
            except NoRemedy as refusal:
                print(refusal)
        """,
        )
        assert out.count("owner") == 2
        assert (world / "theirs").read_bytes() == b"root's" and (world / "theirs").stat().st_uid == 0

    def test_a_directory_it_may_not_write_gives_a_clear_error(self, world: World) -> None:
        world.root.chmod(0o755)
        out = self.run(
            world,
            """
            try:
                desk.do(changes.write_change("new", blobs.put(b"new"), 3))
            except ResourceUnreachable as refusal:
                print(refusal, refusal.hint)
        """,
        )
        assert "Permission" in out

    def test_nothing_can_be_changed_in_a_directory_it_may_not_write(self, world: World) -> None:
        (world / "d").mkdir()
        (world / "d" / "f").write_bytes(b"mine")
        os.chown(world / "d" / "f", 65534, 65534)
        before = world.picture()
        out = self.run(
            world,
            """
            for change in (
                changes.write_change("d/f", blobs.put(b"new"), 3), changes.write_change("d/n", blobs.put(b"new"), 3),
                changes.delete_change("d/f"), changes.move_change("d/f", "d/g"), changes.mkdir_change("d/sub"),
                changes.symlink_change("d/link", "f"), changes.chmod_change("d", 0o777), changes.delete_change("d"),
            ):
                try:
                    desk.do(change)
                except TakebackError as refusal:
                    print(type(refusal).__name__, bool(refusal.hint), refusal)
        """,
        )
        told = out.splitlines()
        assert len(told) == 8 and all(" True " in line for line in told)
        assert {line.split()[0] for line in told} <= {"ResourceUnreachable", "NoRemedy"}
        assert world.picture() == before

    def test_its_own_file_without_write_permission_is_replaced_and_stays_as_protected_as_it_was(
        self, world: World
    ) -> None:
        """A new file takes its place, which needs the directory's permission, not the file's."""
        os.chown(world.root, 65534, 65534)
        (world / "f").write_bytes(b"before")
        (world / "f").chmod(0o444)
        os.chown(world / "f", 65534, 65534)
        before = world.picture()
        out = self.run(
            world,
            """
            effect = desk.do(changes.write_change("f", blobs.put(b"new"), 3))
            print(open("f").read(), oct(os.stat("f").st_mode))
            desk.undo(effect)
        """,
        )
        assert out.split() == ["new", "0o100444"]
        assert world.picture() == before

    def test_whole_round_trips_work(self, world: World) -> None:
        os.chown(world.root, 65534, 65534)
        out = self.run(
            world,
            """
            written = desk.do(changes.write_change("f", blobs.put(b"1"), 1))
            moved = desk.do(changes.move_change("f", "g"))
            deleted = desk.do(changes.delete_change("g"))
            made = desk.do(changes.mkdir_change("d/e", parents=True))
            for effect in (made, deleted, moved, written):
                desk.undo(effect)
            print(os.listdir("."))
        """,
        )
        assert out.strip() == "[]"

    def test_where_the_directory_forbids_it_that_is_said_first(self, world: World) -> None:
        (world / "closed").mkdir(mode=0o755)
        (world / "closed" / "theirs").write_bytes(b"root's")
        (world / "sticky").mkdir()
        (world / "sticky").chmod(0o1777)
        (world / "sticky" / "theirs").write_bytes(b"root's")
        (world / "mine").write_bytes(b"mine")
        os.chown(world / "mine", 65534, 65534)
        os.chown(world.root, 65534, 65534)
        said = self.run(
            world,
            """
            for change in (
                lambda: changes.delete_change("closed/theirs"),
                lambda: changes.delete_change("sticky/theirs"),
                lambda: changes.write_change("closed/theirs", blobs.put(b"x"), 1),
                lambda: changes.move_change("mine", "closed/mine"),
            ):
                try:
                    desk.do(change())
                except ResourceUnreachable as error:
                    print(error)
            """,
        )

        here = world.root
        places = ("closed/theirs", "sticky/theirs", "closed/theirs", "closed/mine")
        assert said.splitlines() == [
            f"Permission to change {here}/{place} was denied: "
            f"the mode or owner of {here}/{place.partition('/')[0]} forbids it."
            for place in places
        ]

    def test_a_directory_that_may_not_be_entered_is_unreachable(self, world: World) -> None:
        (world / "private" / "inner").mkdir(parents=True)
        (world / "private").chmod(0o700)
        said = self.run(
            world,
            """
            try:
                changes.write_change("private/inner/x", blobs.put(b"x"), 1)
            except ResourceUnreachable as error:
                print(error, error.exit_code)
            """,
        )

        assert said.strip() == f"Permission to go to {world.root}/private/inner/x was denied. 5"

    def test_a_change_that_is_not_permitted_names_the_file_and_no_handle(self, world: World) -> None:
        (world / "theirs").write_bytes(b"root's")
        said = self.run(
            world,
            """
            try:
                desk.do(changes.chmod_change("theirs", 0o600))
            except ResourceUnreachable as error:
                print(error)
            """,
        )

        assert said.strip() == f"The system does not permit a change of {world.root}/theirs."
