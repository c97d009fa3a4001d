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
