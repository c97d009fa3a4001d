"""The JSON page says what the commands print."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from takeback.frontends.cli.command import COMMANDS as ENTRIES
from tests.docs.pages import DOCS, table

PAGE = DOCS / "reference" / "json.md"
COMMANDS = {
    "run": "run -- true",
    "shell": "shell",
    "explain": "explain -- true",
    "write": "write file",
    "edit": "edit c.json --set /a=2",
    "mkdir": "mkdir d",
    "ln": "ln file link",
    "chmod": "chmod 600 file",
    "mv": "mv file moved",
    "rm": "rm moved",
    "sql": "sql doctor sqlite:///d.db",
    "log": "log",
    "show": "show @",
    "diff": "diff @",
    "status": "status",
    "runs": "runs",
    "undo": "undo",
    "redo": "redo",
    "accept": "accept @~1",
    "apply": "apply {held}",
    "discard": "discard {held}",
    "pin": "pin @~1",
    "unpin": "unpin @~1",
    "checkpoint": "checkpoint here",
    "checkpoints": "checkpoints",
    "recover": "recover",
    "verify": "verify",
    "doctor": "doctor",
    "rehearse": "rehearse --all --dry-run",
    "hook": "hook status",
    "forget": "forget --dry-run",
    "sweep": "sweep",
    "redact": "redact @~1 --dry-run",
    "config": "config list",
    "policy": "policy check",
    "audit": "audit verify",
    "store": "store make",
    "settle": "settle {doubtful} --did-not-happen",
    "stop": "stop --agent nobody",
    "pending": "pending {waiting}",
    "approve": "approve {waiting} --by bea --answer {words}",
    "deny": "deny {waiting} --by bea",
    "approver": "approver list",
    "submit": "submit flows:greet",
    "signal": "signal greet go",
    "resume": "resume greet",
    "worker": "worker flows --until-idle",
}
CALL = """
import takeback
@takeback.action(undo=%s)
def order():
    raise TimeoutError
@order.undo
def cancel(receipt): ...
try:
    with takeback.open() as tb, tb.run("shop") as run:
        run.call(order)
except takeback.TakebackError as told:
    print(told.effect)
"""


FLOW = """
import takeback
@takeback.workflow
def greet(run):
    return "hello"
"""


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def made(name: str) -> str:
    """The id of an effect that is doubtful, waiting, or held."""
    if name == "held":
        return answer("run --hold -- touch held")["effect"]["id"]
    script = CALL.replace("undo=%s", "") if name == "doubtful" else CALL % "takeback.MANUAL('call them')"
    script = script if name == "doubtful" else script.replace("@order.undo\n", "")
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, env=environment(), stdout=subprocess.PIPE, text=True
    )
    return done.stdout.strip()


def answer(command: str) -> Any:
    name, *words = (word.replace("~", " ") if word != "@~1" else word for word in command.split())
    words = [made(word[1:-1]) if word in ("{doubtful}", "{waiting}", "{held}") else word for word in words]
    if name == "pending":
        words = []
    if "{words}" in words:
        asked = {one["id"]: one["challenge"] for one in answer("pending {waiting}")}
        typed = next(typed for id, typed in asked.items() if id.startswith(words[0]))
        words = [typed if word == "{words}" else word for word in words]
    done = subprocess.run(
        [sys.executable, "-m", "takeback", name, "--json", *words],
        env=environment(),
        input="true\n",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def written() -> dict[str, str]:
    """What the page says of each command."""
    text = PAGE.read_text().partition("## What each command gives\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (.+) \|$", text, re.MULTILINE)
    return {name: fields for names, fields in rows for name in re.findall(r"`(\w+)`", names)}


def test_the_page_has_every_command_that_prints_json() -> None:
    visible = {name for name, entry in ENTRIES.items() if entry.group}
    assert set(COMMANDS) == visible - {"completion", "rewind", "events", "console"}
    assert set(COMMANDS) <= set(written())


def test_each_command_gives_the_fields_the_page_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.json").write_text('{"a": 1}\n')
    (tmp_path / "d.db").touch()
    (tmp_path / "flows.py").write_text(FLOW)
    effect = [name.strip() for row in table(PAGE, "An effect") for name in row[0].split(",")]
    checkpoint = re.findall(r"`(\w+)`", written()["checkpoint"])
    undo = ["outcome", "effects", "targets", "undo"]

    for name, command in COMMANDS.items():
        given = answer(command)
        fields = written()[name]
        listed = re.findall(
            r"`(\w+)`", fields.partition(";")[0].removeprefix("a list of proposals: ").partition(":")[0]
        )
        if fields.startswith("a run, with"):
            listed = [*re.findall(r"`(\w+)`", written()["runs"])[:-2], *listed]
        if "an effect" in fields:
            listed = [*listed[:1], *effect] if listed[:1] == ["changed"] else [*effect, *listed]
        if "list of" in fields and isinstance(given, list):
            listed = listed or (checkpoint if "checkpoints" in fields else effect)
            given = given[0]
        assert list(given) == (undo if "undo result" in fields else listed), name
