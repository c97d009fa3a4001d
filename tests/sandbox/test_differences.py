"""A layer tells path by path what the command did, and the world below has not noticed."""

import os
from pathlib import Path

import pytest

from takeback.sandbox.differences import is_empty
from takeback.sandbox.layer import attributes, read_form
from tests.sandbox.scenes import RootScene, Scene, give, picture

pytestmark = pytest.mark.root


def old(path: Path, text: str = "old") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_new_modified_and_deleted_files(scene: Scene) -> None:
    for name in ("kept", "changed", "deleted"):
        old(scene.world / name)
    give(scene.world)
    before = picture(scene.world)

    ended = scene.run("echo -n new >new; echo -n more >>changed; rm deleted; cat kept")

    assert ended.exit_code == 0 and scene.said() == "old"
    assert scene.left() == {"new": ("new", False), "changed": ("oldmore", True), "deleted": ("gone", True)}
    assert scene.outside() == []
    assert picture(scene.world) == before


def test_a_command_that_changed_nothing_leaves_an_empty_layer(scene: Scene) -> None:
    old(scene.world / "d" / "f")

    assert scene.run("cat d/f >/dev/null; touch x; rm x; exec 3>>d/f; exit 3").exit_code == 3

    assert scene.lefts() == []
    assert is_empty(scene.layer)


def test_a_directory_that_only_got_another_mode_or_time_is_told(scene: Scene) -> None:
    for name in ("mode", "time", "neither"):
        old(scene.world / name / "f")

    scene.run("chmod 700 mode; touch -d 2001-02-03 time; touch neither/x; rm neither/x")

    assert scene.left() == {"mode": ("dir", True), "time": ("dir", True)}


def test_a_removed_tree_is_told_with_all_that_was_in_it_parents_first(scene: Scene) -> None:
    for name in ("t/a", "t/in/b", "t/in/c"):
        old(scene.world / name)

    scene.run("rm -rf t")

    assert list(scene.left()) == ["t", "t/a", "t/in", "t/in/b", "t/in/c"]
    assert set(scene.left().values()) == {("gone", True)}


def test_a_directory_that_was_removed_and_made_again_shows_nothing_of_the_old(scene: Scene) -> None:
    for name in ("t/a", "t/b", "t/in/c"):
        old(scene.world / name)

    scene.run("rm -rf t; mkdir t; echo -n new >t/a; echo -n new >t/d")

    told = {
        "t/a": ("new", True), "t/b": ("gone", True), "t/d": ("new", False),
        "t/in": ("gone", True), "t/in/c": ("gone", True),
    }  # fmt: skip
    assert {name: what for name, what in scene.left().items() if name != "t"} == told


def test_a_renamed_directory_is_told_at_both_names(scene: Scene) -> None:
    for name in ("t/a", "t/in/b"):
        old(scene.world / name)

    scene.run("mv t u; echo -n new >u/in/b")

    told = scene.left()
    assert {name for name, what in told.items() if what == ("gone", True)} == {"t", "t/a", "t/in", "t/in/b"}
    assert told["u"] == ("dir", False) and told["u/in"] == ("dir", False)
    assert told["u/a"] == ("old", False) and told["u/in/b"] == ("new", False)


def test_a_directory_renamed_over_an_empty_one_and_one_renamed_twice(scene: Scene) -> None:
    old(scene.world / "t" / "a")
    (scene.world / "empty").mkdir()

    scene.run("mv -T t empty; mv empty x; mkdir x/y; mv x z")

    told = scene.left()
    assert told["empty"] == told["t"] == told["t/a"] == ("gone", True)
    assert told["z"] == ("dir", False) and told["z/a"] == ("old", False) and told["z/y"] == ("dir", False)
    assert len(told) == 6


def test_kinds_are_swapped(scene: Scene) -> None:
    old(scene.world / "file")
    old(scene.world / "dir" / "inner")
    (scene.world / "link").symlink_to("file")

    scene.run("rm file; mkdir file; echo -n x >file/x; rm -r dir; ln -s nowhere dir; rm link; mkfifo link")

    assert scene.left() == {
        "dir": ("-> nowhere", True), "dir/inner": ("gone", True), "file": ("dir", True),
        "file/x": ("x", False), "link": ("fifo", True),
    }  # fmt: skip


def test_a_moved_file_lay_below_its_old_name_only(scene: Scene) -> None:
    old(scene.world / "a")
    old(scene.world / "over", "other")
    old(scene.world / "b")

    scene.run("mv a new; mv b over")

    assert scene.left() == {
        "a": ("gone", True), "b": ("gone", True), "new": ("old", False), "over": ("old", True)
    }  # fmt: skip


def test_what_another_took_away_meanwhile_lay_below_all_the_same(scene: Scene) -> None:
    for name in ("changed", "dir/f"):
        old(scene.world / name)
    scene.run("echo -n x >>changed; echo -n x >>dir/f; echo -n n >dir/new; ln changed linked")

    (scene.world / "changed").unlink()
    (scene.world / "dir" / "f").unlink()
    (scene.world / "dir").rmdir()

    told = scene.left()
    assert told["changed"] == ("oldx", True)
    assert (
        told["dir"] == ("dir", True) and told["dir/f"] == ("oldx", True) and told["dir/new"] == ("n", False)
    )


def test_a_removal_that_another_made_too_is_still_told(scene: Scene) -> None:
    old(scene.world / "deleted")
    old(scene.world / "moved")
    scene.run("rm deleted; mv moved here")

    (scene.world / "deleted").unlink()

    assert scene.left() == {"deleted": ("gone", True), "moved": ("gone", True), "here": ("old", False)}


def test_a_name_and_a_link_to_it_are_told_apart(scene: Scene) -> None:
    old(scene.world / "file")

    scene.run("echo -n x >>file; ln file link")

    assert scene.left() == {"file": ("oldx", True), "link": ("oldx", False)}
    one, other = (found.source for found in scene.lefts())
    assert one and other and os.path.samefile(one, other)


def test_a_new_link_to_a_file_that_is_else_as_it_was(scene: Scene) -> None:
    old(scene.world / "file")
    (scene.world / "d").mkdir()

    scene.run("ln file d/link")

    assert scene.left() == {"d/link": ("old", False), "file": ("old", True)}


def test_what_lies_in_a_directory_that_the_command_closed(scene: Scene) -> None:
    old(scene.world / "old" / "f")

    scene.run("mkdir -p d/e; echo -n x >d/e/f; chmod 0 d/e d; echo -n y >old/g; rm old/f; chmod 0 old")

    told = [(one.path[len(os.fsencode(scene.world)) + 1 :], one.source is not None) for one in scene.lefts()]
    assert told == [
        (b"d", True), (b"d/e", True), (b"d/e/f", True), (b"old", True), (b"old/f", False), (b"old/g", True)
    ]  # fmt: skip
    [closed] = [one.source for one in scene.lefts() if one.path.endswith(b"/d/e")]
    assert closed and os.stat(closed).st_mode & 0o7777 == 0


def test_names_and_attributes_of_any_kind(scene: Scene) -> None:
    name = os.fsdecode(b"n\xff\n'\"\\:,=")
    old(scene.world / name)

    scene.run(
        "python3", "-c",
        "import os,sys; n=os.fsencode(sys.argv[1]); os.setxattr(n, 'user.overlay.opaque', b'y');"
        "os.setxattr(n, 'user.plain', b'1'); os.mkdir(n + b'd')",
        name,
    )  # fmt: skip

    told = {os.fsdecode(one.path): one for one in scene.lefts()}
    assert set(told) == {f"{scene.world}/{name}", f"{scene.world}/{name}d"}
    file = told[f"{scene.world}/{name}"]
    assert file.source and file.below
    assert attributes(file.source, read_form(scene.layer).userxattr) == {
        "user.overlay.opaque": b"y", "user.plain": b"1"
    }  # fmt: skip


def test_what_only_root_can_make(root_scene: RootScene) -> None:
    root_scene.run(
        "python3", "-c",
        "import os; os.mknod('dev', 0o20600, 0x105); f = open('sparse', 'wb'); f.truncate(1 << 30); f.close();"
        "os.chown('sparse', 7, 8); os.chmod('sparse', 0o4711)",
    )  # fmt: skip

    told = {os.fsdecode(one.path): one.source for one in root_scene.lefts()}
    sparse, device = told[f"{root_scene.world}/sparse"], told[f"{root_scene.world}/dev"]
    assert sparse and device
    status = os.stat(sparse)
    assert (status.st_size, status.st_blocks) == (1 << 30, 0)
    assert (status.st_mode & 0o7777, status.st_uid, status.st_gid) == (0o4711, 7, 8)
    assert os.stat(device).st_rdev == 0x105
