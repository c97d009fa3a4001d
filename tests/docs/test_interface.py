"""The public interface is a contract: scripts, checks and other people's code use these names.

Add to it freely; a name that is here may not go. What later work brings is listed as still to come, and has to be moved
to the rest in the change that brings it.
"""

import ast
import importlib.util
import inspect
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

import takeback as library
from takeback import Run, Takeback
from takeback.frontends.cli.command import COMMANDS, command_named, parser_of
from takeback.integrations import claude
from tests.docs.pages import ROOT
from tests.e2e.conftest import CommandLine
from tests.world import World

EVERYWHERE = "--store --json --quiet --no-color"
STANDING = "--run --dry-run"
CONFLICTS = "--merge --skip-conflicts --force"
COMMAND_LINE = {
    "run": "--name --agent --in-place --root --hold --on-failure --dry-run",
    "shell": "--dry-run",
    "write": "--check --mode --dry-run",
    "rm": "--dry-run",
    "mv": "--dry-run",
    "status": "",
    "log": "--run --path --agent -n --since --held -p --stat --format --all",
    "runs": "--all",
    "explain": "",
    "show": "",
    "diff": "",
    "undo": f"--run --prompt --session --to --since --cascade --with-needs --all --dry-run {CONFLICTS}",
    "redo": "--all --dry-run",
    "rewind": "--session --all",
    "accept": STANDING,
    "hook": "",
    "apply": "--dry-run",
    "discard": "--now --dry-run",
    "pin": "--dry-run",
    "unpin": "--dry-run",
    "checkpoint": "--run --state --dry-run",
    "checkpoints": "",
    "pending": "",
    "approve": "--dry-run",
    "deny": "--dry-run",
    "settle": "--dry-run --accept-residue --why",
    "stop": "--agent --run --all --lift --list --why --dry-run",
    "policy": "",
    "config": "",
    "recover": "--dry-run",
    "verify": "--read-data",
    "events": "--follow --after --since --only --run --agent --metrics",
    "doctor": "",
    "rehearse": "--run --plan --all --due --dry-run",
    "forget": "--dry-run",
    "sweep": "",
    "audit": "",
    "redact": "--match --with-shared --why --by --yes --dry-run",
    "worker": "--until-idle",
    "console": "--port --host --open --team",
}
COMMANDS_TO_COME = {
    "environment", "iac", "mcp",
}  # fmt: skip
OPTIONS_TO_COME = {"": "--on"}

EXITS = {
    1: "Failed ApplyFailed VerifyFailed UndoFailed DidNotHappen StatementFailed",
    2: "Misuse Renamed",
    3: "Refused Denied NoRemedy Drifted Conflict KeyReused Blocked Forgotten ValidationFailed PreconditionFailed",
    4: "Stuck Diverged ByHand",
    5: "Unavailable AwaitingApproval LeaseHeld ResourceUnreachable",
    6: "Corrupt",
    7: "InDoubt",
}
EFFECT = (
    "id run agent seq kind resource summary state accepted pinned strategy reason exact residue undoes undone_by needs "
    "key at targets"
)
TARGET = "resource before after"
UNDONE = {"": "outcome effects targets", "effects": "id state", "targets": "resource outcome detail"}
OUTCOMES = {"undone", "already", "conflict", "excluded", "failed"}

PYTHON: dict[Any, dict[str, str]] = {
    library: {
        "open": "path",
        "action": "expects verify undo risk",
        "workflow": "",
        "IRREVERSIBLE": "",
        "checks": "",
        "sessions": "tb project",
        "prompts": "tb session",
    },
    claude: {"with_takeback": "options store"},
    Takeback: {
        "run": "name agent",
        "undo": "dry_run cascade with_needs on_conflict",
        "redo": "",
        "effects": "run path agent state",
        "runs": "",
        "recover": "",
        "verify": "read_data",
        "pending": "",
        "approve": "id by",
        "deny": "id by",
        "forget": "",
        "sweep": "",
        "submit": "key",
        "accept": "",
        "apply": "",
        "discard": "",
        "pin": "",
        "unpin": "",
        "finish_watch": "key",
    },
    Run: {
        "write": "path checks",
        "write_all": "files",
        "delete": "path",
        "move": "",
        "mkdir": "path",
        "symlink": "path target",
        "chmod": "path mode",
        "watch": "roots key",
        "watch_files": "paths key",
        "sandbox": "",
        "sql": "",
        "call": "",
        "checkpoint": "label state",
        "undo": "to",
        "accept": "effect",
        "remember": "",
    },
}
# All of them: what the command line or a worker needs besides is in `OpenStore` and in the files of `takeback.api`.
PUBLIC_NAMES = {
    Takeback: "accept accept_residue anchor apply approve check_anchors checkpoints close copy_to dead_runs deny "
    "discard effect effects find_run finish_watch forget given_up keep lift path pending pin proof_level "
    "proposals recover recovered redact redo rehearse result resume rows run runs session settle signal "
    "size stop stops store submit sweep tell undo undo_to unpin unprotect unrecovered verify work",
    Run: "accept agent apply call call_all canary checkpoint chmod close command delete discard edit_config "
    "effects fork id keep leave mkdir move name position program remember sandbox sleep sql state suspend "
    "symlink take_back undo wait watch watch_files write write_all",
}
NAMES_TO_COME: dict[Any, str] = {
    Run: "acall awatch container iac objects switch",
}
INTEGRATIONS_TO_COME = "agent_framework dbos langgraph openai_agents pydantic_ai temporal"
PARAMETERS_TO_COME = {Run.call: "capture resource summary about"}
MODULES_TO_COME = (
    "takeback.http",
    *(f"takeback.integrations.{name}" for name in INTEGRATIONS_TO_COME.split()),
)


def options(name: str) -> set[str]:
    return set(_parser(name)._option_string_actions)  # pyright: ignore[reportPrivateUsage]


def _parser(name: str) -> ArgumentParser:
    return parser_of(name, command_named(name.partition(" ")[0]))


@pytest.mark.parametrize("name", COMMAND_LINE)
def test_a_command_takes_the_options_of_the_interface(name: str) -> None:
    assert {*EVERYWHERE.split(), *COMMAND_LINE[name].split()} - options(name) == set()


@pytest.mark.parametrize("code", EXITS)
def test_an_error_has_the_exit_code_of_its_family(code: int) -> None:
    for name in EXITS[code].split():
        assert getattr(library, name).exit_code == code, name


def test_every_error_can_be_imported_from_takeback_and_has_one_of_the_seven_codes() -> None:
    from takeback import errors

    tree = ast.parse((ROOT / "src" / "takeback" / "errors.py").read_text())
    for name in (node.name for node in tree.body if isinstance(node, ast.ClassDef)):
        assert getattr(library, name) is getattr(errors, name)
        assert getattr(errors, name).exit_code in EXITS


@pytest.mark.parametrize("of", PYTHON, ids=lambda of: of.__name__)
def test_python_names_and_their_arguments_are_those_of_the_interface(of: Any) -> None:
    for name, arguments in PYTHON[of].items():
        named = getattr(of, name)
        if arguments:
            assert set(arguments.split()) - inspect.signature(named).parameters.keys() == set(), name


@pytest.mark.parametrize("of", PUBLIC_NAMES, ids=lambda of: of.__name__)
def test_the_public_names_are_these_and_no_plumbing(of: type) -> None:
    assert sorted(name for name in vars(of) if not name.startswith("_")) == PUBLIC_NAMES[of].split()


def test_what_is_still_to_come_is_not_here_yet() -> None:
    assert COMMANDS_TO_COME & COMMANDS.keys() == set(), "move it to COMMAND_LINE"
    assert set(OPTIONS_TO_COME[""].split()) & options("status") == set()
    for of, names in NAMES_TO_COME.items():
        assert [name for name in names.split() if hasattr(of, name)] == [], "move it to PYTHON"
    for function, names in PARAMETERS_TO_COME.items():
        assert set(names.split()) & inspect.signature(function).parameters.keys() == set()
    assert [name for name in MODULES_TO_COME if importlib.util.find_spec(name)] == []


def test_effects_and_undos_print_the_fields_of_the_interface(world: World, store: Path) -> None:
    del store
    takeback = CommandLine(str(world.root))
    made = takeback("write", "a.txt", "--json", input="a\n").json
    assert set(EFFECT.split()) - made.keys() == set()
    assert set(TARGET.split()) - made["targets"][0].keys() == set()
    undone = takeback("undo", "--json").json
    for part, fields in UNDONE.items():
        given = undone[part][0] if part else undone
        assert set(fields.split()) - given.keys() == set(), part
    assert undone["outcome"] == "done" and undone["targets"][0]["outcome"] in OUTCOMES


def test_the_outcomes_of_a_target_are_those_of_the_interface() -> None:
    from takeback.model.plan import Outcome

    assert set(Outcome) == OUTCOMES


def test_every_command_and_subcommand_has_a_help_page_with_an_example_of_its_own() -> None:
    examples: dict[str, str] = {}
    for name in (one for one in COMMANDS if not one.startswith("_")):
        for full in (name, *(f"{name} {part}" for part in command_named(name).parts)):
            page = _parser(full).format_help()
            assert page.startswith(f"usage: takeback {full} "), full
            example = page.partition("\nexample:\n")[2].strip().splitlines()[0]
            assert f"takeback {full}" in example or full == "sql" or full == "store", example
            assert examples.setdefault(example, full) in (full, full.partition(" ")[0]), example
