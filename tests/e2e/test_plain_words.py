"""What is not done, or was done to two names at once, is said plainly."""

import os
import subprocess

import pytest

from tests.e2e.conftest import COMMAND, CommandLine, surroundings
from tests.world import World


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link", "/proc/self/fd/99"])
def test_an_open_file_is_not_written(takeback: CommandLine, world: World, name: str) -> None:
    (world / "link").symlink_to("/dev/stdout")
    with open(world / "out", "w") as out:
        done = subprocess.run(
            [*COMMAND, "write", name], cwd=world.root, env=surroundings(), input="new", stdout=out,
            stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip

    assert done.returncode == 2
    assert done.stderr.startswith(
        f"error: {name} stands for an open file, not for a place of its own.\nhint: "
    )
    assert (world / "out").read_text() == ""


def test_a_fifo_or_a_device_is_refused_before_anything_is_read(takeback: CommandLine, world: World) -> None:
    os.mkfifo(world / "fifo")
    for name in ("fifo", "/dev/null", "/dev/full"):
        with subprocess.Popen(
            [*COMMAND, "write", name], cwd=world.root, env=surroundings(), stdin=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        ) as child:  # fmt: skip
            assert child.stderr
            told = child.stderr.read()
        assert (child.returncode, told.splitlines()[0]) == (2, f"error: {name} is not a regular file.")


def test_deleting_a_key_that_is_not_there_says_so(takeback: CommandLine, world: World) -> None:
    (world / "c.json").write_text('{"a": [1]}')

    assert takeback.done("edit", "c.json", "--delete", "/-").out == "Changed nothing: c.json has no /-.\n"
    assert (
        "has no /a/- and no /b." in takeback.done("edit", "c.json", "--delete", "/a/-", "--delete", "/b").out
    )


def test_the_undo_of_a_move_over_another_file_tells_what_each_name_has_again(
    takeback: CommandLine, world: World
) -> None:
    (world / "a").write_text("a")
    (world / "b").write_text("b")
    takeback.done("mv", "-f", "a", "b")

    undone, redone = takeback.done("undo").out, takeback.done("redo").out

    assert undone.startswith("Took back 1 move in ") and "  b → a; b is again what it was\n" in undone
    assert redone.startswith("Brought back 1 move in ") and "  a → b\n" in redone


def test_a_rename_by_a_command_is_one_line_as_the_move_of_a_file_is(
    takeback: CommandLine, world: World
) -> None:
    (world / "a").write_text("a")
    (world / "t").write_text("t")
    (world / "dir/sub").mkdir(parents=True)
    (world / "dir/sub/file").write_text("f")
    script = "mv a b; mv dir new; mkdir in; mv t in/t; touch made"
    told = takeback("run", "--", "sh", "-c", script).err
    assert "takeback: 3 moved, 2 added (0 bytes): " in told
    assert "3 moved, 2 added" in takeback.done("log").out

    moves = ["b → a", "in/t → t", "new → dir"]
    planned, undone = takeback.done("undo", "--dry-run").out, takeback.done("undo").out
    assert undone.startswith("Took back 3 moves, 2 paths in ")
    for said in (planned, undone):
        assert sorted(line.split("  ")[-1] for line in said.splitlines() if "→" in line) == moves
        assert "file" not in said and "made  removed" in said

    planned, redone = takeback.done("redo", "--dry-run").out, takeback.done("redo").out
    assert redone.startswith("Brought back 3 moves, 2 paths in ")
    for said in (planned, redone):
        assert "  a → b\n" in said and "  t → in/t\n" in said and "  dir → new\n" in said
    assert (world / "new/sub/file").read_text() == "f"


def test_a_rename_over_a_file_by_a_command_says_that_the_file_is_back(
    takeback: CommandLine, world: World
) -> None:
    (world / "a").write_text("a")
    (world / "b").write_text("other")
    takeback.done("run", "--", "mv", "a", "b")

    assert "  b → a; b is again what it was\n" in takeback.done("undo").out
    assert "  a → b\n" in takeback.done("redo").out
    (world / "b").write_text("mine")
    forced = takeback.done("undo", "--force").out
    assert "→" not in forced and "that was there is saved" in forced
    assert "→" not in takeback.done("redo").out, "it brings back what force had overwritten"


def test_equal_files_are_no_rename(takeback: CommandLine, world: World) -> None:
    for name in ("a", "b"):
        (world / name).write_text("same")
        os.utime(world / name, (1, 1))
    words = ("--", "sh", "-c", "mv a c; mv b d")
    assert "2 added, 2 deleted" in takeback.done("run", "--dry-run", *words).err
    takeback.done("run", *words)

    assert "2 added, 2 deleted" in takeback.done("log").out
    assert "Took back 4 files" in takeback.done("undo").out


def test_a_renamed_file_that_was_edited_too_is_two_lines(takeback: CommandLine, world: World) -> None:
    (world / "a").write_text("a")
    words = ("--", "sh", "-c", "mv a b; printf b > b; touch -d 2001-02-03 b")
    os.utime(world / "a", (981158400, 981158400))
    assert "1 added, 1 deleted" in takeback.done("run", "--dry-run", *words, TZ="UTC").err
    takeback.done("run", *words)

    undone = takeback.done("undo").out

    assert "Took back 2 files" in undone and "→" not in undone


def test_what_was_moved_on_is_named_with_what_to_do(takeback: CommandLine, world: World) -> None:
    earlier = takeback.write("other", "text")["id"]
    (world / "a").write_text("a")
    takeback.done("mv", "a", "b")
    (world / "b").rename(world / "c")

    said = takeback("undo")

    assert said.code == 3
    assert "error: b is no longer there, so it cannot be moved back to a.\n" in said.err
    assert "Put b back, then undo again." in said.err and earlier[:8] in said.err
    assert [one["resource"][-2:] for one in takeback("undo", "--json").json["targets"]] == ["/a", "/b"]
    (world / "c").rename(world / "b")
    assert "  b → a\n" in takeback.done("undo", "--dry-run").out
