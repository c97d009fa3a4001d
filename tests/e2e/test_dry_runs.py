"""Each command has a file of its name, and one that changes something can say first what it would do."""

from pathlib import Path

import pytest

import takeback as library
from takeback.frontends.cli import commands
from takeback.frontends.cli.command import COMMANDS, Does, command_named, parser_of
from tests.e2e.conftest import CommandLine
from tests.world import World

# These change something and have no --dry-run yet: the first two take lines or runs as they come.
WITHOUT = {"shell", "worker", "sweep", "store make", "store copy", "store reopen", "store trust"}
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


def test_show_and_diff_mean_the_newest_effect(takeback: CommandLine) -> None:
    takeback.done("write", "a.txt", input="text\n")
    assert takeback.done("show").out == takeback.done("show", "@").out
    assert takeback.done("diff").out == takeback.done("diff", "@").out
