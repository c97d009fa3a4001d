"""Plans: changes that were not made yet, made and undone on a copy."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.api import Takeback
from takeback.model.rehearsal import Viability
from takeback.runs.rehearsals.plan import plan_from
from tests.rehearse.conftest import Untouched, proofs
from tests.world import World

PLAN = """
[[step]]
run = "mkdir build && echo made > build/out && rm old"

[[step]]
write = "app.toml"
content = "a = 1"
mode = "0600"

[[step]]
move = ["app.toml", "build/app.toml"]

[[step]]
sql = "sqlite:///app.db"
statements = ["UPDATE t SET b = 3", "DROP TABLE t"]
"""


@pytest.fixture
def here(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(world.root)
    (world / "old").write_text("old")
    with closing(sqlite3.connect(world / "app.db")) as connection:
        connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
        connection.execute("INSERT INTO t VALUES (1, 2)")
        connection.commit()
    return world


def test_each_step_is_made_and_undone_and_the_world_stays(tb: Takeback, here: World) -> None:
    (here / "plan.toml").write_text(PLAN)
    untouched = Untouched(tb, here)

    found = tb.rehearse(plan="plan.toml")

    assert [(one.outcome, one.why) for one in found.rehearsed] == [(Viability.WORKS, "")] * 4
    assert untouched.seen() == untouched.before
    assert tb.effects() == ()
    assert untouched.records() == ["rehearse"]


def test_what_nothing_watched_is_found_in_the_layer(tb: Takeback, here: World, tmp_path: Path) -> None:
    (here / "plan.json").write_text(json.dumps({"step": [{"run": "echo out > ../outside"}]}))

    found = tb.rehearse(plan="plan.json")

    assert proofs(found) == [Viability.WORKS, Viability.FAILS]
    assert [one.resource for one in found.rehearsed[1].targets] == [f"file://{tmp_path}/outside"]
    assert not (tmp_path / "outside").exists()


def test_a_step_that_fails_ends_it_and_what_was_made_is_undone(tb: Takeback, here: World) -> None:
    steps = [
        {"write": "a", "content": "1"},
        {"run": ["sh", "-c", "echo half > half; exit 3"]},
        {"delete": "old"},
    ]
    (here / "plan.json").write_text(json.dumps({"step": steps}))

    found = tb.rehearse(plan="plan.json")

    assert proofs(found) == [Viability.WORKS, Viability.CANNOT, Viability.CANNOT]
    assert found.rehearsed[1].why == "it ended with exit code 3"
    assert found.rehearsed[2].why == "an earlier step could not be made"


ODD: list[tuple[Any, str]] = [
    ({}, "has no steps"),
    ([], "has no steps"),
    ({"step": []}, "has no steps"),
    ({"step": ["x"]}, "says nothing to do"),
    ({"step": [{"run": "x", "delete": "y"}]}, "does two things: run and delete"),
    ({"step": [{"run": ""}]}, "run is ''"),
    ({"step": [{"run": []}]}, "run is []"),
    ({"step": [{"run": "x", "mode": "0600"}]}, "does not know"),
    ({"step": [{"write": "a"}]}, "needs `content` or `from`"),
    ({"step": [{"write": "a", "content": "", "from": "b"}]}, "needs `content` or `from`"),
    ({"step": [{"write": "a\0", "content": ""}]}, "write is"),
    ({"step": [{"chmod": "a"}]}, "needs 'mode'"),
    ({"step": [{"chmod": "a", "mode": 420}]}, "mode is 420"),
    ({"step": [{"move": ["a"]}]}, "move is ['a']"),
    ({"step": [{"sql": "postgresql:///app", "statements": ["x"]}]}, "about a server"),
    ({"step": [{"sql": "sqlite:///a"}]}, "needs 'statements'"),
    ({"step": [{"run": "x"}], "network": 1}, "network is 1"),
    ({"step": [{"run": "x"}], "what": 1}, "'what'"),
]


@pytest.mark.parametrize(("data", "says"), ODD, ids=str)
def test_an_odd_plan_is_refused_in_one_sentence(data: object, says: str) -> None:
    with pytest.raises(takeback.Misuse) as refused:
        plan_from(data, "plan.toml")
    assert says in str(refused.value)
    assert refused.value.hint


@pytest.mark.parametrize("raw", [b"\xff", b"[[step", b"{", b"{" * 100_000])
def test_what_is_no_plan_is_refused(tb: Takeback, here: World, raw: bytes) -> None:
    (here / "plan").write_bytes(raw)
    with pytest.raises(takeback.Misuse, match="neither TOML nor JSON"):
        tb.rehearse(plan="plan")


def test_a_plan_that_is_not_there_is_refused(tb: Takeback, here: World) -> None:
    with pytest.raises(takeback.Misuse, match="cannot be read"):
        tb.rehearse(plan="absent.toml")
