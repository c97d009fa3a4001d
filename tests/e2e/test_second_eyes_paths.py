"""Undo of some paths, as a sceptical user found it; the numbers are those of that report."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

import takeback as tb
from tests.e2e.conftest import CommandLine, Said
from tests.world import World


def _run(takeback: CommandLine, script: str, *options: str) -> str:
    """The id of the effect of a command."""
    takeback.done("run", "-q", *options, "--", "sh", "-c", script)
    return takeback.effect()["id"][:8]


def _files(root: Path) -> dict[str, str]:
    found = (Path(directory) / name for directory, _, names in os.walk(root) for name in names)
    return {os.fspath(one.relative_to(root)): one.read_text() for one in found}


@pytest.mark.parametrize("paths", [(), ("--", "m1"), ("--", "d/m2")])
def test_second_eyes_10_a_move_is_left_as_a_whole(
    takeback: CommandLine, world: World, paths: tuple[str, ...]
) -> None:
    (world.root / "m1").write_text("moved\n")
    (world.root / "d").mkdir()
    made = _run(takeback, "mv m1 d/m2")
    (world.root / "d/m2").write_text("moved\nedited\n")

    said = takeback("undo", made, "--skip-conflicts", *paths)
    assert said.code == 3
    assert (world.root / "d/m2").read_text() == "moved\nedited\n"
    assert not (world.root / "m1").exists()
    assert "d/m2 is now 13 bytes" in said.err
    assert "--force" in said.err

    takeback.done("undo", made, "--force", *paths)
    assert (world.root / "m1").read_text() == "moved\n"
    assert not (world.root / "d/m2").exists()


def test_a_dry_run_that_leaves_half_a_move_offers_only_what_takes_back_more(
    takeback: CommandLine, world: World
) -> None:
    (world.root / "a").write_text("1\n")
    made = _run(takeback, "mv a a2; echo 2 >b; echo 3 >c")
    (world.root / "a2").write_text("edited\n")

    for options in (["--skip-conflicts"], ["--merge", "--skip-conflicts"]):
        said = takeback("undo", *options, "--dry-run")
        assert said.code == 1
        assert f"hint: `takeback undo {made} --force` " in said.err
        assert "--merge" not in said.err


def test_second_eyes_10_a_move_out_of_a_directory_that_is_gone_leaves_the_file(
    takeback: CommandLine, world: World
) -> None:
    (world.root / "d").mkdir()
    (world.root / "d/m1").write_text("moved\n")
    (world.root / "other").write_text("1")
    made = _run(takeback, "mv d/m1 m2; echo 2 >other")
    (world.root / "d").rmdir()

    said = takeback("undo", made, "--skip-conflicts")
    assert said.code == 1
    assert _files(world.root) | {"m2": "moved\n", "other": "1"} == _files(world.root)


def test_second_eyes_10_the_hint_is_about_the_paths_that_were_left(
    takeback: CommandLine, world: World
) -> None:
    for name in ("a", "b", "c"):
        (world.root / name).write_text("1\n")
    made = _run(takeback, "for i in a b c; do echo 2 >$i; done")
    (world.root / "b").write_text("3\n")

    said = takeback("undo", made, "--skip-conflicts", "--", "a", "b")
    assert said.code == 1
    assert f"undo {made} --force -- b`" in said.err
    assert "cannot help here" not in said.err


def test_second_eyes_4_an_empty_path_names_nothing(takeback: CommandLine, world: World) -> None:
    made = _run(takeback, "for i in a b c d; do echo 2 >$i; done")

    said = takeback("undo", made, "--", "")
    assert said.code == 2
    assert "empty path" in said.err
    assert (world.root / "a").exists()

    store = tb.open()
    for path in ("", b"", "a\0b", b"\0"):
        with pytest.raises(tb.Misuse):
            store.undo(made, paths=[path])
        with store.run("an agent") as run, pytest.raises(tb.Misuse):
            run.undo(made, paths=[path])


def test_second_eyes_8_a_path_that_was_never_in_a_removed_directory_takes_nothing_back(
    takeback: CommandLine, world: World
) -> None:
    (world.root / "d/e").mkdir(parents=True)
    (world.root / "d/e/ü").write_text("1")
    takeback.done("rm", "d")

    for path in ("d/nope", "d/e/nope", "d/e/ü/nope"):
        said = takeback("undo", "@", "--", path)
        assert said.code == 2, said
        assert "did not touch" in said.err
        assert not (world.root / "d").exists()

    said = takeback.done("undo", "@", "--", "d/e/ü")
    assert "d: the effect changed it as one, with d/e/ü in it" in said.out
    assert (world.root / "d/e/ü").read_text() == "1"


def test_second_eyes_7_paths_of_a_named_effect_are_taken_back_from_anywhere(
    takeback: CommandLine, world: World, tmp_path: Path
) -> None:
    made = _run(takeback, "for i in a b c; do echo 2 >$i; done")
    home = tmp_path / "home"
    home.mkdir()

    CommandLine("/").done("undo", made, "--", world.root / "a")
    CommandLine(os.fspath(home)).done("undo", made, "--", world.root / "b", HOME=os.fspath(home))
    relative = os.path.relpath(world.root / "c", home)
    CommandLine(os.fspath(home)).done("undo", made, "--", relative, HOME=os.fspath(home))
    assert not any((world.root / name).exists() for name in ("a", "b", "c"))


def _pasted(takeback: CommandLine, text: str, verb: str) -> Said:
    """The command of a hint, as it is pasted."""
    (command,) = re.findall(rf"`takeback ({verb} [^`]*)`", text)
    return takeback.done(*shlex.split(command))


def _four_changed(takeback: CommandLine, world: World) -> str:
    for name in "abcd":
        (world.root / name).write_text("1\n")
    return _run(takeback, "for i in a b c d; do echo 2 >$i; done")


def _changed(world: World) -> str:
    return "".join(name for name in "abcd" if (world.root / name).read_text() == "2\n")


def test_second_eyes_9a_the_hint_of_a_redo_of_some_paths_takes_back_only_these(
    takeback: CommandLine, world: World
) -> None:
    made = _four_changed(takeback, world)
    takeback.done("undo", made, "--", "a")
    brought = takeback.done("redo")
    assert _changed(world) == "abcd"

    _pasted(takeback, brought.out, "undo")
    assert _changed(world) == "bcd"


def test_second_eyes_9b_an_effect_that_was_undone_path_by_path_says_what_redo_brings_back(
    takeback: CommandLine, world: World
) -> None:
    made = _four_changed(takeback, world)
    for name in "abcd":
        takeback.done("undo", made, "--", name)

    said = takeback("undo", made)
    assert said.code == 3
    assert "by 4 undos" in said.err
    assert "brings back what the last one took" in said.err
    brought = _pasted(takeback, said.err, "redo")
    assert _changed(world) == "d"
    assert "partly undone: 1 of 4 paths still stand" in brought.out


def test_second_eyes_9c_a_second_redo_does_not_name_itself(takeback: CommandLine, world: World) -> None:
    _four_changed(takeback, world)
    undo = takeback.done("undo", "--json").json["undo"][0][:8]
    takeback.done("redo", undo)

    said = takeback("redo", undo)
    assert said.code == 3
    assert f"redo {undo}" not in said.err
    _pasted(takeback, said.err, "undo")
    assert _changed(world) == ""


def test_second_eyes_9d_the_hint_of_a_redo_after_skipped_conflicts_works(
    takeback: CommandLine, world: World
) -> None:
    made = _four_changed(takeback, world)
    (world.root / "a").write_text("by hand")
    takeback("undo", made, "--skip-conflicts")
    brought = takeback.done("redo")
    assert _changed(world) == "bcd"

    _pasted(takeback, brought.out, "undo")
    assert _changed(world) == ""
    assert (world.root / "a").read_text() == "by hand"


@pytest.mark.parametrize("option", ["--dry-run", "--yes", "--force"])
def test_second_eyes_11_what_is_in_a_directory_that_goes_goes_along(
    takeback: CommandLine, world: World, option: str
) -> None:
    (world.root / "f6").write_text("1\n")
    (world.root / "f8").hardlink_to(world.root / "f6")
    _run(takeback, "rm f6; rm f8; mkdir f8; echo in >f8/in; mkdir f8/deep; echo x >f8/deep/er")

    said = takeback.done("undo", "@", option, "--", "f6")
    assert "f8/in: it is in f8, which goes" in said.out
    assert "someone else" not in said.out
    if option != "--dry-run":
        assert (world.root / "f8").samefile(world.root / "f6")
        takeback.done("redo")
        assert (world.root / "f8/deep/er").read_text() == "x\n"


def test_second_eyes_5_what_happened_in_place_in_a_project_is_not_of_the_directory_above(
    world: World,
) -> None:
    above, inside = world.root / "q", world.root / "q/git"
    (inside / ".git").mkdir(parents=True)
    (inside / "a").write_text("a\n")
    made = _run(CommandLine(os.fspath(inside)), "echo b >a", "--in-place")

    said = CommandLine(os.fspath(above))("undo")
    assert said.code == 3
    assert f"`takeback undo {made}` means that one" in said.err
    assert (inside / "a").read_text() == "b\n"
    assert CommandLine(os.fspath(above)).done("log", "--json").json == []
    CommandLine(os.fspath(inside)).done("undo")
    assert (inside / "a").read_text() == "a\n"


def test_second_eyes_14_a_merge_that_a_later_effect_bars_names_cascade(
    takeback: CommandLine, world: World
) -> None:
    (world.root / "f").write_text("1\n2\n3\n")
    first = _run(takeback, "sed -i s/2/two/ f")
    later = _run(takeback, "sed -i s/two/zwei/ f")

    said = takeback("undo", first, "--merge", "--", "f")
    assert f"First undo {later}, which changed the same later." in said.err
    said = takeback("undo", first, "--merge")
    assert said.code == 3
    assert "cannot help here" not in said.err
    _pasted(takeback, said.err, "undo")
    assert (world.root / "f").read_text() == "1\n2\n3\n"


def test_second_eyes_14_objects_of_git_that_stay_are_not_called_as_before(
    takeback: CommandLine, world: World
) -> None:
    subprocess.run(["git", "init", "-q", world.root], check=True)
    _run(takeback, "echo 1 >a; git add a; git -c user.name=n -c user.email=e commit -qm x")

    said = takeback.done("undo", "@", "--", ".git/objects")
    assert "already in the" not in said.out
    assert "3 git objects, which git itself removes" in said.out


def test_second_eyes_14_an_option_after_the_paths_is_pointed_at(takeback: CommandLine, world: World) -> None:
    made = _run(takeback, "echo 1 >a")

    said = takeback("undo", made, "--", "a", "--dry-run")
    assert said.code == 2
    assert "put an option such as --dry-run before it" in said.err
    assert (world.root / "a").exists()


def test_second_eyes_14_a_checkpoint_at_home_names_a_way_back_that_works(tmp_path: Path) -> None:
    home = os.fspath(tmp_path)
    said = CommandLine(home).done("checkpoint", "at-home", HOME=home)
    (command,) = re.findall(r"`takeback (undo [^`]*)`", said.out)
    CommandLine(home).done(*shlex.split(command), HOME=home)
