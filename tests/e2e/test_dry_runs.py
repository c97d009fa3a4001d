"""Each command has a file of its name, and one that changes something can say first what it would do."""

from pathlib import Path
from typing import Any

import pytest

import takeback as library
from takeback.frontends.cli import commands
from takeback.frontends.cli.answer import answer
from takeback.frontends.cli.command import COMMANDS, Does, command_named, parser_of
from tests.docs.test_json_page import made as a_call
from tests.e2e.conftest import CommandLine
from tests.world import World

_LOOK = {
    "sql doctor", "hook status", "hook test", "hook shim", "audit log", "audit report", "audit verify", "config get",
    "config list", "policy check", "policy explain", "policy new", "policy test",
}  # fmt: skip
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
    assert without == _LOOK | {"rewind"}, "which shows it all the time, and asks"


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
    "shell": "shell --commit -c touch~made",
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
    "approver new": "approver new bea --no-passphrase",
    "settle": "settle {doubtful} --did-not-happen",
    "checkpoint": "checkpoint here",
    "submit": "submit flows:greet",
    "signal": "signal greeting go",
    "resume": "resume greeting",
    "worker": "worker flows",
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
    "hook install": "hook install gemini --project",
    "hook uninstall": "hook uninstall gemini --project",
    "hook mode": "hook mode watch gemini --project",
    "stop": "stop --all",
    "redact": "redact {made}",
    "policy trust": "policy trust {world}/rules.toml",
    "config set": "config set audit_days 183",
    "config unset": "config unset audit_days",
    "audit anchor": "audit anchor --to file:{key}.list --key {key}",
    "audit key": "audit key new --out {key}.other",
    "audit export": "audit export {world}/bundle",
}


def test_no_dry_run_changes_the_store_or_the_world(
    takeback: CommandLine, world: World, store: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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
        "key": str(tmp_path / "audit.key"),
        **{name: a_call(name) for name in ("held", "waiting", "doubtful")},
    }
    takeback.done("pin", names["pinned"])
    takeback.done("audit", "key", "new", "--out", names["key"])
    names["undo"] = takeback.done("undo", names["undo"], "--json").json["undo"][0]
    rules = world / "rules.toml"
    rules.write_text('[[rule]]\nname = "no keys"\nmatch = { path = "keys/**" }\nthen = "deny"\n')
    before = _everything(world.root, store)

    changing = {
        full
        for name in COMMANDS
        if not name.startswith("_") and command_named(name).does is not Does.LOOKS
        for full in ([f"{name} {part}" for part in command_named(name).parts] or [name])
    }
    assert changing - _LOOK - {"rewind"} == WOULD.keys() - {"approver new"}
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


def test_a_dry_run_of_a_worker_lists_the_runs_that_are_due(takeback: CommandLine, world: World) -> None:
    (world / "flows.py").write_text(FLOWS)
    due = takeback.done("submit", "flows:greet", "--name", "greeting", "--json").json["id"]
    said = takeback.done("worker", "flows", "--dry-run")
    assert said.out == f"Would continue 1 run:\n  {due[:8]}  greeting (flows:greet)\n"
    assert [one["id"] for one in takeback.done("worker", "flows", "--dry-run", "--json").json["runs"]] == [
        due
    ]
    takeback.done("worker", "flows", "--until-idle")  # it waits for a signal now
    assert takeback.done("worker", "flows", "--dry-run").out == "Would continue 0 runs.\n"


def test_a_dry_run_says_which_tables_would_be_protected_or_not(takeback: CommandLine, world: World) -> None:
    address = f"sqlite:///{world.root}/shop.db"
    (world / "shop.db").touch()
    takeback.done("sql", "exec", address, "CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    made = takeback.effect()["id"]
    said = takeback.done("sql", "unprotect", address, "--dry-run")
    assert said.out.startswith("Would remove the protection of 1 table: orders.\n"), said.out
    assert "Would give up the way back of 1 effect:" in said.out and made[:8] in said.out
    assert takeback.done("sql", "unprotect", address, "--dry-run", "--json").json["tables"] == ["orders"]
    assert takeback.done("sql", "protect", address, "--dry-run").out.startswith(
        "Would try to protect 0 tables."
    )


NOT_A_STORE = (
    "log", "status", "runs", "pending", "checkpoints", "verify", "recover", "forget", "sweep", "undo", "redo",
    "show @", "mkdir x", "recover --dry-run", "sweep --dry-run", "undo --dry-run", "worker flows --dry-run",
)  # fmt: skip


@pytest.mark.parametrize("words", NOT_A_STORE)
def test_what_is_no_store_is_a_usage_error_for_every_command(
    world: World, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    (world / "flows.py").write_text(FLOWS)
    monkeypatch.chdir(world.root)
    assert answer([*words.split(), "--store", "/dev/null"]) == 2
    # So is a directory with something else in it, but for what would make a store there: that is refused.
    assert answer([*words.split(), "--store", str(world.root)]) == (3 if words == "mkdir x" else 2)


def test_paths_are_shown_from_the_current_directory(takeback: CommandLine, world: World) -> None:
    names = [takeback.write(f"{name}.txt", "text\n")["id"] for name in "ab"]
    for words in (
        ("write", "a.txt", "--dry-run"), ("rm", "a.txt", "b.txt", "--dry-run"), ("mv", "a.txt", "c", "--dry-run"),
        ("accept", *names, "--dry-run"), ("accept", *names), ("pin", *names), ("unpin", *names),
        ("undo", "--dry-run"), ("forget", names[0], "--dry-run"), ("show", names[0]),
    ):  # fmt: skip
        said = takeback.done(*words, input="other\n")
        assert "a.txt" in said.out or "b.txt" in said.out, words
        assert str(world.root) not in said.out, (words, said.out)


def test_show_and_diff_mean_the_newest_effect(takeback: CommandLine) -> None:
    takeback.done("write", "a.txt", input="text\n")
    assert takeback.done("show").out == takeback.done("show", "@").out
    assert takeback.done("diff").out == takeback.done("diff", "@").out
