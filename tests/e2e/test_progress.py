"""How far it is: shown to a person at a terminal while it lasts, to nobody else, and never in what stays there."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import COMMAND, CommandLine
from tests.e2e.test_terminal import seen
from tests.world import World

ERASE = "\r\033[K"
# The command itself, with no patience: it draws at once and at each step, so that no test has to wait.
AT_ONCE = (
    "import sys; from takeback.frontends.cli.output import terminal; terminal.PATIENCE = terminal.BETWEEN = 0; "
    "from takeback.frontends.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


def drawn(directory: Path, *words: str, **environment: str) -> tuple[list[str], str]:
    """Each line that was drawn, and what the terminal shows in the end."""
    code, shown = seen(directory, *words, program=(COMMAND[0], "-c", AT_ONCE), size=(24, 200), **environment)
    assert code == 0, shown
    lines: list[str] = []
    screen = ""
    for number, piece in enumerate(shown.split(ERASE)):
        # After an erase stands a line of progress, or what somebody else writes; that one ends its lines.
        if number and "\n" not in piece:
            lines.append(piece)
        else:
            screen += piece
    return [one for one in lines if one], screen


@pytest.fixture
def many(takeback: CommandLine, world: World) -> World:
    for directory in ("a", "b"):
        (world / directory).mkdir()
        for number in range(20):
            (world / directory / f"f{number}").write_bytes(os.urandom(2000))
    takeback.done("run", "--", "rm", "-r", "a")
    return world


COUNTED = r"(\d[\d,]* of )?\d[\d,]* (path|file|blob|record|effect)s?"


def _undo(takeback: CommandLine) -> list[str]:
    return ["undo"]


def _redo(takeback: CommandLine) -> list[str]:
    takeback.done("undo")
    return ["redo"]


def _run(takeback: CommandLine) -> list[str]:
    return ["run", "--", "sh", "-c", "rm -r b; mkdir c; touch c/1 c/2"]


def _in_place(takeback: CommandLine) -> list[str]:
    return ["run", "--in-place", "--", "rm", "-r", "b"]


def _apply(takeback: CommandLine) -> list[str]:
    takeback.done("run", "--hold", "--", "rm", "-r", "b")
    return ["apply", "@"]


def _rm(takeback: CommandLine) -> list[str]:
    return ["rm", "b"]


def _cascade(takeback: CommandLine) -> list[str]:
    takeback.done("checkpoint", "here")
    for name in ("x", "y"):
        takeback.write(f"b/{name}", "1")
    takeback.done("run", "--", "rm", "-r", "b")
    return ["undo", "--to", "here", "--yes"]


def _verify(takeback: CommandLine) -> list[str]:
    return ["verify", "--read-data"]


def _sweep(takeback: CommandLine) -> list[str]:
    return ["sweep", "--grace", "0"]


def _copy(takeback: CommandLine) -> list[str]:
    store = os.environ["TAKEBACK_STORE"]
    return ["store", "copy", store, f"{store}-copy"]


@pytest.mark.parametrize(
    ("make", "doing"),
    [
        (_undo, ("Comparing", "Saving", "Restoring", "Checking")),
        (_redo, ("Comparing", "Saving", "Restoring", "Checking")),
        (_run, ("Reading", "Comparing", "Saving", "Changing", "Checking")),
        (_in_place, ("Scanning", "Reading", "Checking")),
        (_apply, ("Comparing", "Saving", "Changing", "Checking")),
        (_rm, ("Saving", "Changing")),
        (_cascade, ("Taking back 1 of 3 effects", "Taking back 3 of 3 effects")),
        (_verify, ("Checking",)),
        (_sweep, ("Sweeping",)),
        (_copy, ("Copying",)),
    ],
)
def test_long_work_is_counted_at_a_terminal_and_leaves_nothing_there(
    takeback: CommandLine,
    many: World,
    make: Callable[[CommandLine], list[str]],
    doing: tuple[str, ...],
) -> None:
    words = make(takeback)

    lines, screen = drawn(many.root, *words)

    for one in doing:
        assert any(line.startswith(one) for line in lines), (one, lines)
    assert any(re.search(COUNTED, line) for line in lines), lines
    assert not re.search("(?m)^(Comparing|Saving|Restoring|Changing|Checking|Scanning|Reading) ", screen), (
        screen
    )
    assert screen.endswith("\n")


@pytest.mark.parametrize("words", [("undo",), ("verify",), ("run", "--", "rm", "-r", "b")])
@pytest.mark.parametrize("how", ["quiet", "json", "dumb"])
def test_nobody_asked_for_it(many: World, words: tuple[str, ...], how: str) -> None:
    options = () if how == "dumb" else (f"--{how}",)
    environment = {"TERM": "dumb"} if how == "dumb" else {}

    assert drawn(many.root, words[0], *options, *words[1:], **environment)[0] == []


def test_what_is_no_terminal_gets_no_byte_of_it(takeback: CommandLine, many: World) -> None:
    import subprocess

    from tests.e2e.conftest import surroundings

    for words in (("undo",), ("redo",), ("verify", "--read-data"), ("run", "--", "rm", "-r", "b")):
        done = subprocess.run(
            [COMMAND[0], "-c", AT_ONCE, *words], cwd=many.root, env=surroundings() | {"TERM": "xterm"},
            stdin=subprocess.DEVNULL, capture_output=True, check=True,
        )  # fmt: skip
        assert b"\r" not in done.stdout + done.stderr
        assert b"\033[K" not in done.stdout + done.stderr


@pytest.mark.parametrize("place", [(), ("--in-place",)])
def test_while_a_command_has_the_terminal_nothing_is_drawn(many: World, place: tuple[str, ...]) -> None:
    script = "for i in 1 2 3; do echo said $i; echo $i > b/new$i; rm b/f$i; done; printf 'no end'"

    _, screen = drawn(many.root, "run", *place, "--", "sh", "-c", script)

    assert "said 1\nsaid 2\nsaid 3\nno end" in screen


def test_a_function_that_is_called_finds_an_empty_line(
    takeback: CommandLine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world / "acts.py").write_text(
        "import takeback\n"
        "def back(receipt):\n    print('[taken back]')\n"
        "@takeback.action(undo=back)\ndef pay(amount):\n    return {'amount': amount}\n"
        "def main():\n"
        "    with takeback.open() as tb, tb.run('pays', agent='cli') as run:\n"
        "        for amount in range(3):\n"
        "            run.call(pay, amount)\n            run.write(f'f{amount}', b'1')\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.fspath(world.root))
    import subprocess

    from tests.e2e.conftest import surroundings

    subprocess.run(
        [COMMAND[0], "-c", "import acts; acts.main()"], cwd=world.root, env=surroundings(), check=True
    )
    lines, screen = drawn(world.root, "undo", "pays", "--yes")

    assert any(line.startswith("Taking back") for line in lines)
    assert screen.count("[taken back]\n") == 3
    assert not re.search(r"(?m)^.+\[taken back\]", screen)
