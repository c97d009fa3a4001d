"""Alerts and numbers come from how the store stands: they open and close with their cause."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import takeback
from takeback.api.store import now
from takeback.audit.alerts import Alert, AlertChange, Severity, alert_json, alerts, tell_changes
from takeback.audit.metrics import HELP, metrics
from takeback.model.record import STORE, Draft, Kind
from takeback.storage.verify_note import LastVerified, last_verified, note_verified
from tests.e2e.conftest import CommandLine, surroundings
from tests.events import wrote
from tests.world import World

GUIDE = Path(__file__).parents[2] / "docs/guides/operate-it.md"
_LINE = re.compile(r'^(takeback_[a-z_]+)(?:\{([a-z]+)="([^"]*)"\})? (\d+)$')


def numbers(tb: takeback.Takeback) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in metrics(tb.store, now(), "1").splitlines():
        if not line.startswith("#"):
            told = _LINE.match(line)
            assert told, line
            found[f"{told[1]}{{{told[3]}}}" if told[3] else told[1]] = int(told[4])
    return found


def ids(tb: takeback.Takeback) -> list[str]:
    return [one.id.partition(":")[0] for one in alerts(tb.store, now())]


def test_numbers_are_those_of_the_store(world: World) -> None:
    with takeback.open() as tb:
        with tb.run("work") as run:
            effects = [wrote(run, world / f"f{n}", "1") for n in range(3)]
        tb.undo(effects[0])
        tb.pin(effects[1])
        tb.verify()

        found = numbers(tb)
        assert (found["takeback_effects{done}"], found["takeback_effects{undone}"]) == (2, 1)
        assert (found["takeback_undos"], found["takeback_pinned"]) == (1, 1)
        assert found["takeback_records"] == tb.store.journal.newest()
        assert (found["takeback_verify_findings"], found["takeback_alerts{critical}"]) == (0, 0)
        assert found["takeback_store_bytes{journal}"] > 0


def test_the_text_is_what_prometheus_and_openmetrics_read() -> None:
    with takeback.open() as tb:
        text = metrics(tb.store, now(), "1")

    lines = text.splitlines()
    assert lines[-1] == "# EOF" and text.endswith("\n")
    types = [line.split()[2:] for line in lines if line.startswith("# TYPE")]
    assert len({name for name, _ in types}) == len(types)
    assert all(kind == "gauge" for _, kind in types)
    assert all(name in GUIDE.read_text() for name in HELP)


def test_a_failed_verification_is_an_alert_until_the_next_one_is_sound(
    takeback: CommandLine, store: Path
) -> None:
    for _ in range(2):
        takeback.write("big", os.urandom(300_000))
    pack = max(Path(os.environ["TAKEBACK_STORE"]).glob("blobs/packs/*.pack"))
    whole = pack.read_bytes()
    pack.write_bytes(whole[:-50_000] + bytes(50_000))

    assert takeback("verify", "--read-data").code == 6
    (alert,) = takeback.done("status", "--json").json["alerts"]
    assert (alert["id"], alert["severity"]) == ("verification-failed", "critical")
    assert "Alert    `takeback verify` found" in takeback.done("status").out

    pack.write_bytes(whole)
    takeback.done("verify", "--read-data")
    assert takeback.done("status", "--json").json["alerts"] == []


def test_a_dead_run_is_an_alert_until_it_is_recovered(world: World) -> None:
    program = """
import os, sys, takeback
run = takeback.open().run("dies").__enter__()
run.write(sys.argv[1], b"half")
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", program, world / "a"], env=surroundings(), check=False)

    with takeback.open() as tb:
        (alert,) = alerts(tb.store, now())
        assert alert.id.startswith("dead-run:") and alert.severity is Severity.ERROR
        assert numbers(tb)["takeback_runs{dead}"] == 1
        tb.recover()
        assert ids(tb) == []


def test_a_breaker_is_an_alert_until_it_is_lifted_and_the_stop_of_a_person_is_none() -> None:
    body = {"agent": "x", "run": "", "conversation": "", "why": "12 deletes in a minute"}
    with takeback.open() as tb:
        append = tb.store.journal.append
        append(None, [Draft(Kind.STOP, STORE, "", body | {"agent": "y", "by": "kim"})])
        assert ids(tb) == []
        append(None, [Draft(Kind.STOP, STORE, "", body | {"by": "policy"})])
        (alert,) = alerts(tb.store, now())
        assert alert.says == "Agent x was stopped by policy: 12 deletes in a minute."
        append(None, [Draft(Kind.LIFT, STORE, "", {"stops": [2], "by": "kim"})])
        assert ids(tb) == []
        assert numbers(tb)["takeback_stops"] == 1


def test_a_store_that_is_nearly_full_is_an_alert(world: World) -> None:
    with takeback.open() as tb, tb.run("work") as run:
        run.write(world / "a", os.urandom(100_000))
    settings = Path(os.environ["TAKEBACK_STORE"], "settings.json")
    settings.write_text(json.dumps({"store_bytes": 300_000}))
    with takeback.open() as tb:
        assert ids(tb) == ["store-nearly-full"]
    settings.unlink()
    with takeback.open() as tb:
        assert ids(tb) == []


def test_what_opened_and_what_closed_is_told_once(world: World) -> None:
    told: list[tuple[str, bool]] = []

    def send(change: AlertChange) -> None:
        told.append((change.alert.id, change.is_open))

    with takeback.open() as tb:
        known: dict[str, Alert] = {}
        for findings in (0, 2, 2, 0, 0, 1):
            note_verified(tb.store.verify_note, LastVerified(now(), findings, "x"))
            known = tell_changes(tb.store, now(), known, send)

    assert told == [("verification-failed", is_open) for is_open in (True, False, True)]


def test_an_alert_shows_no_secret() -> None:
    secret = "hunter2" + "abc9"
    alert = alert_json(Alert("x", Severity.ERROR, 0, f"run --password {secret}", f"password={secret}"))
    assert secret not in json.dumps(alert)


def test_a_note_that_cannot_be_read_or_written_is_none(tmp_path: Path) -> None:
    note = tmp_path / "x.verified"
    assert last_verified(str(note)) is None
    for content in (b"", b"{", b"[1]", b'["a", "b", 1, 2]', b"\xff"):
        note.write_bytes(content)
        assert last_verified(str(note)) is None
    shutil.rmtree(tmp_path)
    note_verified(str(note), LastVerified(1, 0))


@pytest.mark.parametrize("words", [("--metrics",), ("--metrics", "--json")])
def test_the_command_prints_the_numbers(takeback: CommandLine, words: tuple[str, ...]) -> None:
    takeback.write("a", "1")

    assert 'takeback_effects{state="done"} 1\n' in takeback.done("events", *words).out
