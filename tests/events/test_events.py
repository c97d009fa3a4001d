"""Events: every record that means something, once, in order, over kills and restarts; their page tells the truth."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.audit.events import NAMES, SCHEMA, EventReader, StoreEvent, event_json, first_since
from takeback.model.record import STORE, Draft, Kind
from tests.e2e.conftest import COMMAND, CommandLine, surroundings
from tests.world import World

PAGE = Path(__file__).parents[2] / "docs/reference/events.md"


def told(tb: takeback.Takeback, after: int = 0) -> list[StoreEvent]:
    reader = EventReader(tb.store.journal, lambda adapter: adapter == "call")
    return [event for _, event in reader.read(after) if event]


def names(tb: takeback.Takeback) -> list[str]:
    return [event.name for event in told(tb)]


def test_a_life_in_events(world: World) -> None:
    with takeback.open() as tb:
        with tb.run("work", agent="me") as run:
            effect = run.write(world / "a", "1")
            run.checkpoint("here")
        tb.undo(effect)
        tb.redo()
        tb.pin(effect)
        tb.unpin(effect)

        assert names(tb) == [
            "run-began", "began", "done", "checkpoint", "run-ended",
            "run-began", "undo-began", "undone", "run-ended",
            "run-began", "undo-began", "redone", "run-ended",
            "pinned", "unpinned",
        ]  # fmt: skip
        done = next(event for event in told(tb) if event.name == "done")
        assert (done.agent, done.run_name, done.effect, done.kind) == ("me", "work", effect.id, "write")
        undone = next(event for event in told(tb) if event.name == "undone")
        assert undone.undoes == effect.id


def test_read_in_pieces_it_is_the_same_as_read_at_once(world: World) -> None:
    with takeback.open() as tb:
        with tb.run("work", agent="me") as run:
            effects = [run.write(world / f"f{n}", "1") for n in range(5)]
        tb.undo(effects[2])
        whole = [event_json(event) for event in told(tb)]

        # A new reader for each, as after a restart: what came before is looked up.
        pieces, after = [], 0
        while piece := told(tb, after)[:1]:
            pieces += map(event_json, piece)
            after = piece[0].seq
        assert pieces == whole
        assert [one["seq"] for one in whole] == sorted({one["seq"] for one in whole})


def test_a_refusal_in_time_and_silence_are_two_events(world: World) -> None:
    with takeback.open() as tb, tb.run("work") as run:
        effect = run.write(world / "a", "1")
        body = {"adapter": "call", "kind": "call", "resource": "call://m:f", "summary": "f()", "key": "k"}
        gate = {"plan": "none", "until": 1}
        lease = tb.store.leases.holder(run.id)
        asked = body | {"args": {"gate": gate, "waits": "person"}}
        tb.store.journal.append(lease, [Draft(Kind.PROPOSE, run.id, "e" * 20, asked)])
        tb.store.journal.append(lease, [Draft(Kind.ABORT, run.id, "e" * 20, {"why": "too late"})])

        assert names(tb)[-2:] == ["asked", "expired"]
        assert effect.id


@pytest.mark.parametrize(
    ("kind", "body", "name"),
    [
        (Kind.STOP, {"agent": "x", "run": "", "conversation": "", "by": "kim", "why": "enough"}, "stopped"),
        (
            Kind.STOP,
            {"agent": "x", "run": "", "conversation": "", "by": "policy", "why": "too many"},
            "breaker",
        ),
        (Kind.LIFT, {"stops": [1], "by": "kim"}, "lifted"),
        (Kind.ANCHOR, {"places": ["file:/a"], "anchor": {"signature": "x"}}, "anchored"),
        (Kind.REHEARSE, {"effects": [{"effect": "e1", "outcome": "works"}]}, "rehearsed"),
        (Kind.REDACT, {"records": [], "effects": [], "by": "kim"}, "redacted"),
        (Kind.TRUST, {"file": "/x/takeback.toml", "digest": "d", "by": "kim"}, "trusted"),
        (Kind.POLICY, {"file": "/x/takeback.toml", "digest": "d"}, "policy"),
        (Kind.CLIMB, {"rung": "retry"}, "climbed"),
    ],
)
def test_records_of_the_store_are_events(kind: Kind, body: dict[str, Any], name: str) -> None:
    with takeback.open() as tb:
        tb.store.journal.append(None, [Draft(kind, STORE, "", body)])
        (event,) = told(tb)

        assert (event.name, event.run, event.by) == (name, "", body.get("by", ""))
        json.dumps(event_json(event))


def test_every_event_is_on_its_page_and_every_field() -> None:
    page = PAGE.read_text()

    assert dict(re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", page, re.M)) == NAMES
    fields = event_json(StoreEvent(1, 1, "done")).keys()
    assert set(re.findall(r"^- `([a-z_]+)`", page, re.M)) == fields
    assert f"`schema` is {SCHEMA}" in page


def test_the_place_of_a_time_is_found(world: World) -> None:
    with takeback.open() as tb:
        with tb.run("work") as run:
            for n in range(9):
                run.write(world / f"f{n}", "1")
        records = list(tb.store.journal.records())
        for record in records:
            assert records[first_since(tb.store.journal, record.at)].at == record.at
        assert first_since(tb.store.journal, 0) == 0
        assert first_since(tb.store.journal, records[-1].at + 1) == len(records)


def follower(after: int) -> subprocess.Popen[str]:
    words = [*COMMAND, "events", "--follow", "--after", str(after)]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=surroundings())


def test_a_follower_that_is_killed_again_and_again_loses_none_and_hears_none_twice(world: World) -> None:
    """It remembers nothing but the last line it has read whole."""
    writer = """
import sys, takeback
with takeback.open() as tb, tb.run("busy") as run:
    for n in range(60):
        run.write(sys.argv[1], str(n))
"""
    with takeback.open() as tb:
        tb.pin(tb.run("first").__enter__().write(world / "x", "1"))
    busy = subprocess.Popen([sys.executable, "-c", writer, world / "y"], env=surroundings())
    heard: list[dict[str, Any]] = []
    for lives in (1, 7, 30, 0):
        process = follower(heard[-1]["seq"] if heard else 0)
        assert process.stdout
        for line in process.stdout:
            event = json.loads(line)
            if event["event"].startswith("alert"):
                continue
            heard.append(event)
            lives -= 1
            if not lives or (event["event"], event["run_name"]) == ("run-ended", "busy"):
                break
        process.send_signal(signal.SIGKILL)
        process.communicate()
    busy.wait()

    with takeback.open() as tb:
        whole = [event_json(event) for event in told(tb)]
    assert heard == whole[: len(heard)]
    assert heard[-1]["run_name"] == "busy" and len(heard) > 120


def test_a_follower_ends_quietly_when_it_is_interrupted_and_when_nobody_reads(world: World) -> None:
    with takeback.open() as tb, tb.run("work") as run:
        run.write(world / "a", "1")
    process = follower(0)
    assert process.stdout and "run-began" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130

    process = follower(0)
    assert process.stdout
    assert process.stderr and process.stdout.readline()
    process.stdout.close()
    assert process.wait(20) == 141
    assert process.stderr.read() == ""
    process.stderr.close()


def test_a_follower_says_when_the_store_is_gone(world: World, store: Path) -> None:
    with takeback.open() as tb, tb.run("work") as run:
        run.write(world / "a", "1")
    process = follower(0)
    assert process.stdout and process.stdout.readline()
    os.rename(os.environ["TAKEBACK_STORE"], os.environ["TAKEBACK_STORE"] + "-away")
    _, err = process.communicate(timeout=20)
    assert process.returncode == 5
    assert "was replaced or removed" in err


def test_what_is_asked_for_is_what_comes(takeback: CommandLine) -> None:
    first = takeback.write("a", "1")
    takeback.write("b", "1", "--agent", "other")

    def lines(*words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in takeback.done("events", *words).out.splitlines()]

    assert [one["effect"] for one in lines("--only", "done", "--agent", "cli")] == [first["id"]]
    assert lines("--after", str(lines()[-1]["seq"])) == []
    assert lines("--since", "1h") == lines() == lines("--json")
    assert {one["agent"] for one in lines("--agent", "other")} == {"other"}
    for words in (("--only", "dnoe"), ("--after", "1", "--since", "1h"), ("--metrics", "--follow")):
        assert takeback("events", *words).code == 2


def test_where_nothing_was_recorded_there_are_no_events(takeback: CommandLine) -> None:
    usual = {"TAKEBACK_STORE": "", "XDG_STATE_HOME": os.environ["TAKEBACK_STORE"]}

    assert takeback.done("events", "--json", **usual).out == ""
    assert takeback("events", "--follow", **usual).code == 2
    assert not os.path.exists(os.environ["TAKEBACK_STORE"])
