"""After a crash, looking leaves everything as it was: the books of a real bank, the files and the records of the store.
Dry runs, listings, wrong options and unknown names are looks, too."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import takeback
from examples.office import BankOffice
from examples.payments import pay
from takeback.api import opened_of
from takeback.frontends.cli.answer import answer
from takeback.frontends.cli.command import COMMANDS, Does, command_named
from takeback.model.run import OnDeath
from takeback.storage.protocols import Query

DIES = """
import os, signal, sys
import takeback
from examples.payments import pay
with takeback.open(sys.argv[1]).run("dead", agent="robot") as run:
    run.write("f.txt", "agent\\n")
    run.call(pay, "anna", "shop", 300, key="k1")
    os.kill(os.getpid(), signal.SIGKILL)
"""

# Command lines of every command that must change nothing: dry runs, listings, wrong usage, unknown names.
LOOKS: dict[str, tuple[str, ...]] = {
    "run": (
        "run --dry-run -- true",
        "run --dry-run -- touch f.txt g.txt",
        "run",
        "run --timeout soon -- true",
        "run --no-such -- true",
    ),
    "shell": ("shell --list", "shell --box nosuch", "shell --timeout soon"),
    "explain": ("explain -- true", "explain"),
    "write": ("write --dry-run g.txt", "write", "write --needs nosuch g.txt"),
    "rm": ("rm --dry-run f.txt", "rm", "rm --needs nosuch f.txt", "rm --key k f.txt g.txt"),
    "mv": ("mv --dry-run f.txt g.txt", "mv f.txt", "mv --needs nosuch f.txt g.txt"),
    "edit": ("edit --dry-run c.json --set /a=2", "edit c.json", "edit --needs nosuch c.json --set /a=2"),
    "mkdir": ("mkdir --dry-run d", "mkdir", "mkdir --needs nosuch d"),
    "ln": ("ln --dry-run f.txt l", "ln f.txt", "ln --needs nosuch f.txt l"),
    "chmod": ("chmod --dry-run 600 f.txt", "chmod odd f.txt", "chmod --needs nosuch 600 f.txt"),
    "sql": ("sql doctor sqlite:///x.db", "sql", "sql nosuch", "sql doctor odd://x", "sql protect odd://x"),
    "log": ("log", "log -n x", "log --run nosuch", "log --json"),
    "show": ("show @", "show nosuch", "show"),
    "diff": ("diff @", "diff nosuch"),
    "status": ("status", "status --json", "status x"),
    "runs": ("runs", "runs -n x"),
    "undo": (
        "undo --dry-run",
        "undo --dry-run @",
        "undo --run dead --dry-run",
        "undo nosuch",
        "undo @~99",
        "undo --run nosuch",
        "undo --to nosuch",
        "undo --prompt nosuch",
        "undo --session nosuch",
        "undo --prompt --dry-run",
        "undo @ --run dead",
    ),
    "redo": ("redo --dry-run", "redo nosuch", "redo a b"),
    "rewind": ("rewind", "rewind --session nosuch", "rewind --help"),
    "accept": ("accept", "accept nosuch", "accept --run nosuch", "accept --dry-run @"),
    "apply": ("apply", "apply nosuch", "apply --run nosuch", "apply --dry-run @"),
    "discard": ("discard", "discard nosuch", "discard --run nosuch", "discard --dry-run @"),
    "pin": ("pin", "pin nosuch", "pin --run nosuch", "pin --dry-run @"),
    "unpin": ("unpin", "unpin nosuch", "unpin --run nosuch", "unpin --dry-run @"),
    "pending": ("pending", "pending x"),
    "approve": ("approve --dry-run @", "approve nosuch", "approve"),
    "deny": ("deny --dry-run @", "deny nosuch", "deny"),
    "approver": ("approver list", "approver new bea --dry-run", "approver"),
    "settle": ("settle --dry-run @ --happened", "settle nosuch --happened", "settle @"),
    "checkpoint": ("checkpoint", "checkpoint a --state nosuch.json"),
    "checkpoints": ("checkpoints", "checkpoints --run nosuch"),
    "worker": ("worker", "worker no.such.module"),
    "submit": ("submit", "submit nosuch", "submit no.such:flow"),
    "signal": ("signal", "signal nosuch event"),
    "resume": ("resume", "resume nosuch"),
    "recover": ("recover --dry-run", "recover x"),
    "verify": ("verify", "verify x"),
    "doctor": ("doctor", "doctor x"),
    "hook": (
        "hook",
        "hook status",
        "hook install codex --dry-run",
        "hook uninstall --dry-run",
        "hook install nosuch",
    ),
    "events": ("events", "events --after 3", "events --metrics", "events --after x"),
    "stop": ("stop", "stop --list", "stop --all --dry-run", "stop --run nosuch", "stop --lift --dry-run"),
    "audit": ("audit verify", "audit report", "audit log", "audit log --resource nosuch", "audit nosuch"),
    "policy": ("policy check", "policy explain @", "policy test", "policy nosuch", "policy trust --dry-run"),
    "config": ("config list", "config get audit_days", "config get nosuch", "config set nosuch 1"),
    "rehearse": ("rehearse --all --dry-run", "rehearse nosuch", "rehearse --status"),
    "console": ("console x", "console --port x", "console --port 99999"),
    "redact": ("redact @ --dry-run", "redact nosuch", "redact --match ''", "redact"),
    "forget": ("forget --dry-run", "forget nosuch", "forget --dry-run @"),
    "sweep": ("sweep --grace x", "sweep --grace -1"),
    "store": ("store", "store copy", "store reopen /nosuch", "store copy /nosuch /other"),
    "completion": ("completion bash", "completion nosuch"),
    "_complete": ("_complete takeback undo",),
}
LINES = [line for lines in LOOKS.values() for line in lines]


class Crashed(NamedTuple):
    bank: BankOffice
    store: Path
    place: Path

    def everything(self) -> tuple[Any, ...]:
        with takeback.open(self.store, recover=False) as tb:
            records = tuple(one.hash for one in tb.store.journal.records())
        files = {path.name: path.read_text() for path in self.place.iterdir() if path.is_file()}
        return self.bank.ledger(), files, records


@pytest.fixture
def crashed(bank: BankOffice, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crashed:
    place = tmp_path / "project"
    place.mkdir()
    (place / "f.txt").write_text("human\n")
    (place / "c.json").write_text('{"a": 1}\n')
    monkeypatch.chdir(place)
    monkeypatch.setenv("TAKEBACK_STORE", str(store))
    bank.fund("anna", 1000)
    made = subprocess.run([sys.executable, "-c", DIES, str(store)], check=False, capture_output=True)
    assert made.returncode == -9, made.stderr
    assert (place / "f.txt").read_text() == "agent\n" and len(bank.payments()) == 2
    return Crashed(bank, Path(store), place)


def test_finding_2_every_command_says_what_it_does() -> None:
    assert set(LOOKS) == set(COMMANDS), "give command lines that must change nothing"
    assert not [line for name, lines in LOOKS.items() for line in lines if line.split()[0] != name]
    looking = {name for name in COMMANDS if command_named(name).does is Does.LOOKS}
    promised = (
        "log show diff status runs explain checkpoints doctor pending verify completion _complete events"
    )
    promised += " approver console rehearse"  # they write keys, records of their own, or what a person clicks
    assert looking == set(promised.split())
    assert {name for name in COMMANDS if command_named(name).does is Does.SETTLES} == {"recover", "worker"}


def test_finding_2_looking_never_acts(
    crashed: Crashed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = crashed.everything()
    monkeypatch.setattr("sys.stdin", None)
    for line in LINES:
        try:
            code = answer(line.split())
        except SystemExit as ended:  # --help
            code = ended.code
        said = capsys.readouterr()
        assert "this is a bug" not in said.err, (line, said.err)
        assert "Recovered" not in said.err, line
        after = crashed.everything()
        assert after == before, (line, code, said)


def test_finding_2_the_same_in_a_store_that_would_settle_without_functions(
    crashed: Crashed, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files alone are not settled by looking, either."""
    with takeback.open(crashed.store, recover=False) as tb:
        tb.recover()
    program = DIES.replace('run.call(pay, "anna", "shop", 300, key="k1")', "pass")
    subprocess.run([sys.executable, "-c", program, str(crashed.store)], check=False, capture_output=True)
    before = crashed.everything()
    for line in (
        "log",
        "status",
        "undo --dry-run",
        "undo nosuch",
        "checkpoints",
        "forget --dry-run",
        "diff @",
    ):
        answer(line.split())
        assert crashed.everything() == before, line
    capsys.readouterr()

    assert answer(["mkdir", "d"]) == 0

    assert "was taken back with its run" in capsys.readouterr().err
    assert (crashed.place / "f.txt").read_text() == "human\n"


def test_finding_2_a_change_settles_nothing_that_needs_functions_and_recover_names_them_first(
    crashed: Crashed, capsys: pytest.CaptureFixture[str]
) -> None:
    before = crashed.bank.ledger()
    assert answer(["mkdir", "d"]) == 0
    assert crashed.bank.ledger() == before
    assert (crashed.place / "f.txt").read_text() == "agent\n"
    capsys.readouterr()

    assert answer(["recover"]) == 0

    said = capsys.readouterr()
    assert "calls functions of examples.payments:pay" in said.err
    assert (crashed.place / "f.txt").read_text() == "human\n"
    assert len(crashed.bank.ledger()) == len(before) + 1


def test_finding_17_what_a_crash_left_is_shown(crashed: Crashed, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str) -> str:
        assert answer(words) == 0
        return capsys.readouterr().out

    status = said("status")
    assert "Dead " in status and "its process (pid " in status and "2 effects in force" in status
    assert (
        "`takeback recover` takes its effects back. That calls functions of examples.payments:pay." in status
    )
    for name in ("log", "runs"):
        assert "1 run died and needs recovery" in said(name)
    told = json.loads(said("status", "--json"))
    (dead,) = told["dead"]
    assert told["attention"] == [dead["run"]]
    assert (dead["name"], dead["agent"], dead["effects"]) == ("dead", "robot", 2)
    assert dead["pid"] > 1 and dead["calls"] == ["examples.payments:pay"] and dead["on_death"] == "undo"
    assert answer(["recover"]) == 0
    capsys.readouterr()
    assert json.loads(said("status", "--json"))["dead"] == []
    assert "died" not in said("log")


def test_finding_17_a_live_run_is_not_told_as_dead(
    crashed: Crashed, capsys: pytest.CaptureFixture[str]
) -> None:
    with takeback.open(crashed.store, recover=False) as tb:
        tb.recover()
        with tb.run("alive"):
            assert answer(["status", "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["dead"] == []


def test_finding_2_an_undo_that_died_before_it_began_a_compensation_is_for_recover(
    crashed: Crashed, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its run says what it is for; no effect of it tells yet that functions are needed."""
    with takeback.open(crashed.store, recover=False) as tb:
        tb.recover()
        with tb.run("pay") as run:
            paid = run.call(pay, "anna", "shop", 200, key="k2")
        assert paid
        (effect,) = (one for one in tb.store.journal.effects(Query()) if one.key == "k2")
        undo = opened_of(tb).open_run("undo", "", OnDeath.FINISH, {}, [effect.id], "refuse")
        tb.store.leases.release(undo.lease)
    before = crashed.bank.ledger()
    assert answer(["mkdir", "e"]) == 0
    assert crashed.bank.ledger() == before
    assert answer(["recover"]) == 0
    assert len(crashed.bank.ledger()) == len(before) + 1
    capsys.readouterr()
