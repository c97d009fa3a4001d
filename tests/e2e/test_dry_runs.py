"""Each command has a file of its name, and one that changes something can say first what it would do."""

from pathlib import Path
from typing import Any

import pytest

import takeback as library
from takeback.frontends.cli import commands
from takeback.frontends.cli.command import COMMANDS, Does, command_named, parser_of
from tests.docs.test_json_page import made as a_call
from tests.e2e.conftest import CommandLine
from tests.world import World

# These change something and have no --dry-run: they take lines or runs as they come.
WITHOUT = {"shell", "worker"}
FLOWS = """
import takeback
@takeback.workflow
def greet(run):
    run.checkpoint("begun")
    run.wait("go")
"""


def test_each_command_has_a_file_of_its_name() -> None:
    files = {path.stem for path in Path(commands.__path__[0]).glob("*.py")} - {"__init__"}
    assert files == {name for name in COMMANDS if not name.startswith("_")}


def test_each_command_that_changes_something_takes_dry_run() -> None:
    without: set[str] = set()
    for name in COMMANDS:
        command = command_named(name)
        if command.does is Does.LOOKS:
            continue
        for full in [f"{name} {part}" for part in command.parts] or [name]:
            if "--dry-run" not in parser_of(full, command)._option_string_actions:  # pyright: ignore[reportPrivateUsage]
                without.add(full)
    assert without - {"sql doctor"} == WITHOUT


@pytest.mark.parametrize(
    "words",
    [
        ("submit", "flows:greet"),
        ("signal", "greeting", "go"),
        ("resume", "greeting"),
        ("checkpoint", "here"),
    ],
    ids=lambda words: words[0],
)
def test_a_dry_run_changes_neither_the_store_nor_the_world(
    takeback: CommandLine, world: World, store: Path, words: tuple[str, ...]
) -> None:
    (world / "flows.py").write_text(FLOWS)
    takeback.done("submit", "flows:greet", "--name", "greeting")
    with library.open(store, recover=False) as tb:
        before = list(tb.store.journal.records())
    said = takeback(*words, "--dry-run")
    assert said.code == 0 and said.out.startswith("Would "), said
    assert takeback(*words, "--dry-run", "--json").json["dry_run"] is True
    with library.open(store, recover=False) as tb:
        assert list(tb.store.journal.records()) == before


# Of each of the commands that change something, one that would.
WOULD = {
    "run": "run -- touch made",
    "write": "write new.txt",
    "rm": "rm a.txt",
    "mv": "mv a.txt b.txt",
    "edit": "edit c.json --set /a=2",
    "mkdir": "mkdir d",
    "ln": "ln -s a.txt link",
    "chmod": "chmod 600 a.txt",
    "undo": "undo {made}",
    "redo": "redo {undo}",
    "accept": "accept {made}",
    "apply": "apply {held}",
    "discard": "discard {held}",
    "pin": "pin {made}",
    "unpin": "unpin {pinned}",
    "approve": "approve {waiting} --by bea --answer by~hand",
    "deny": "deny {waiting} --by bea",
    "settle": "settle {doubtful} --did-not-happen",
    "checkpoint": "checkpoint here",
    "submit": "submit flows:greet",
    "signal": "signal greeting go",
    "resume": "resume greeting",
    "recover": "recover",
    "forget": "forget {made}",
    "sweep": "sweep --grace 0 --baselines",
    "sql exec": "sql exec sqlite:///{world}/d.db CREATE~TABLE~t(x)",
    "sql protect": "sql protect sqlite:///{world}/d.db",
    "sql unprotect": "sql unprotect sqlite:///{world}/d.db --yes",
    "store make": "store make --store {world}/other",
    "store copy": "store copy {store} {world}/other",
    "store reopen": "store reopen {store}",
    "store trust": "store trust {store}",
}


def test_no_dry_run_changes_the_store_or_the_world(
    takeback: CommandLine, world: World, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.root)
    (world / "flows.py").write_text(FLOWS)
    (world / "c.json").write_text('{"a": 1}\n')
    (world / "d.db").touch()
    takeback.done("submit", "flows:greet", "--name", "greeting")
    names = {
        "made": takeback.write("a.txt", "text\n")["id"],
        "pinned": takeback.write("pinned.txt", "text\n")["id"],
        "undo": takeback.write("undone.txt", "text\n")["id"],
        "world": str(world.root),
        "store": str(store),
        **{name: a_call(name) for name in ("held", "waiting", "doubtful")},
    }
    takeback.done("pin", names["pinned"])
    names["undo"] = takeback.done("undo", names["undo"], "--json").json["undo"][0]
    before = _everything(world.root, store)

    changing = {
        full
        for name in COMMANDS
        if not name.startswith("_") and command_named(name).does is not Does.LOOKS
        for full in ([f"{name} {part}" for part in command_named(name).parts] or [name])
    }
    assert changing - {"sql doctor"} - WITHOUT == WOULD.keys()
    for command in WOULD.values():
        words = [word.format(**names).replace("~", " ") for word in command.split()]
        # What follows the -- of `run` is the command's.
        at = words.index("--") if "--" in words else len(words)
        said = takeback(*words[:at], "--dry-run", *words[at:], input="other\n")
        assert said.code == 0, (command, said)
        assert _everything(world.root, store) == before, command
    again = takeback("store", "copy", store, store, "--dry-run")
    assert again.code == 3 and "There is a store at" in again.err


def _everything(world: Path, store: Path) -> tuple[list[Any], dict[str, Any]]:
    with library.open(store, recover=False) as tb:
        records = list(tb.store.journal.records())
    found = {
        str(file): (file.lstat().st_mode, file.read_bytes() if file.is_file() else b"")
        for file in world.rglob("*")
        if "__pycache__" not in file.parts
    }
    return records, found


def test_show_and_diff_mean_the_newest_effect(takeback: CommandLine) -> None:
    takeback.done("write", "a.txt", input="text\n")
    assert takeback.done("show").out == takeback.done("show", "@").out
    assert takeback.done("diff").out == takeback.done("diff", "@").out
