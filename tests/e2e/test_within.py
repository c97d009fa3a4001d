"""takeback called where it cannot work: inside its own sandbox, and where the current directory is gone."""

import sys
from pathlib import Path

import pytest

import takeback as library
from tests.e2e.conftest import COMMAND, CommandLine
from tests.e2e.test_telling import python
from tests.world import World

pytestmark = pytest.mark.root

SAYS = "is out of reach here: this runs inside `takeback run` or `takeback shell`."


def inner(words: str) -> str:
    # In a clean checkout it would be the first to compile some module, and that would be a change of its own.
    return f"PYTHONDONTWRITEBYTECODE=1 {' '.join(COMMAND)} {words} < /dev/null; echo code $?"


@pytest.mark.parametrize(
    ("words", "code"), [("log", 3), ("undo", 3), ("run -- touch y", 125), ("shell -c true", 125)]
)
def test_takeback_inside_takeback_run_says_so_in_one_sentence(
    takeback: CommandLine, world: World, words: str, code: int
) -> None:
    said = takeback.done("run", "--", "sh", "-c", f"echo kept > x; {inner(words)}")

    assert said.out == f"code {code}\n"
    error, hint, told = said.err.splitlines()
    assert error.startswith("error: The store at ") and error.endswith(SAYS)
    assert hint.startswith("hint: Call takeback outside of it.")
    assert told.startswith("takeback: 1 added")
    assert (world / "x").read_text() == "kept\n"
    assert not (world / "y").exists()


def test_takeback_run_inside_takeback_shell_says_so_and_the_session_goes_on(
    takeback: CommandLine, world: World
) -> None:
    said = takeback.done("shell", "--commit", "-c", inner("run -- touch y"), "-c", "echo kept > x")

    assert "code 125" in said.out
    assert said.err.count(SAYS) == 1
    assert (world / "x").read_text() == "kept\n"
    assert not (world / "y").exists()


def test_the_library_inside_takeback_run_raises_refused(takeback: CommandLine, world: World) -> None:
    code = "import takeback\ntry: takeback.open()\nexcept takeback.Refused as error: print(error)"

    said = takeback.done("run", "--", sys.executable, "-c", code)

    assert said.out.endswith(f"{SAYS}\n")


def test_another_store_can_be_used_inside(takeback: CommandLine, world: World) -> None:
    inside = f"{' '.join(COMMAND)} --store {world / 'own'}"

    said = takeback.done("run", "--", "sh", "-c", f"{inside} store make; {inside} log")

    assert said.out.endswith("No effects yet in this project.\n")


@pytest.mark.parametrize("words", [["shell", "-c", "true"], ["shell"], ["run", "--", "true"]])
def test_where_the_current_directory_is_gone_nothing_is_run(
    takeback: CommandLine, world: World, words: list[str]
) -> None:
    go = "import os, sys\nos.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\n"

    said = python(world, f"{go}os.execv(sys.executable, {[*COMMAND, *words]})")

    assert (said.code, said.out) == (125, "")
    assert (
        said.err == "error: The current directory does not exist any more.\nhint: Go to one that does: cd /\n"
    )


def test_what_was_dropped_cannot_be_accepted_and_the_reason_is_told(store: Path, world: World) -> None:
    with library.open(str(store)) as tb, tb.run("agent") as run:
        held = run.command("echo x > x", cwd=str(world.root), hold=True).effect
        assert held
        run.discard(held)
        for accept in (run.accept, tb.accept):
            with pytest.raises(
                library.Refused, match="only a change that was made can be accepted"
            ) as refused:
                accept(held)
            assert refused.value.hint == (
                f"It was dropped: `takeback apply {held.id[:8]}` makes it after all."
            )
