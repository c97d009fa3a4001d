"""Every kind of statement: taken back exactly, or refused with nothing changed; brought back; and what others do since
is found."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from takeback.errors import Conflict, NoRemedy, Refused, StatementFailed
from takeback.model.plan import Outcome
from takeback.testing.adapter_suite import Desk, undo_of
from tests.sql.sqlite_cases import CASES, EXACT, FAILS, NOTHING, READS, Case
from tests.sql.sqlite_world import World


# Small effects are logged in another way when the log is there already, as it mostly is.
@pytest.fixture(params=[("delete", False), ("wal", True)], ids=["delete", "wal, protected"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "app.db", *request.param)
    yield made
    made.adapter.close()


def cases(*expected: str) -> Any:
    chosen = [case for case in CASES if case.expect in expected]
    return pytest.mark.parametrize("case", chosen, ids=[case.name for case in chosen])


@pytest.mark.sampled(10)
@cases(EXACT)
def test_it_is_taken_back_exactly_and_brought_back(world: World, case: Case) -> None:
    world.make(case.before)
    before = world.state()
    effect = world.do(case.statements)
    assert effect is not None
    after = world.state()
    assert after != before
    if case.since:
        world.others(case.since)
    if case.conflict:
        changed = world.state()
        outcomes = world.adapter.assess(undo_of(effect), effect).outcomes
        assert Outcome.CONFLICT in {one.outcome for one in outcomes}
        with pytest.raises(Conflict):
            Desk(world.adapter).undo(effect)
        assert world.state() == changed
        return

    undone = Desk(world.adapter).undo(effect)

    if case.since:
        assert world.ask(case.kept)
        return
    assert world.state() == before
    assert list(world.adapter.rows(effect)) or effect.receipt["schema"]
    redone = Desk(world.adapter).undo(undone)
    assert world.state() == after
    Desk(world.adapter).undo(redone)
    assert world.state() == before


@cases(NOTHING)
def test_what_changes_nothing_is_no_effect(world: World, case: Case) -> None:
    world.make(case.before)
    before = world.state()

    assert world.do(case.statements) is None
    assert world.state() == before


@cases(FAILS)
def test_what_fails_leaves_nothing(world: World, case: Case) -> None:
    world.make(case.before)
    before = world.state()

    with pytest.raises(StatementFailed) as caught:
        world.do(case.statements)

    assert caught.value.hint and world.state() == before


@cases("refused")
def test_what_cannot_be_taken_back_is_refused(world: World, case: Case) -> None:
    world.make(case.before)
    world.adapter.protect(world.database, ())
    before = world.state()

    with pytest.raises((Refused, NoRemedy)) as caught:
        world.do(case.statements)

    assert caught.value.hint and world.state() == before


@cases(READS)
def test_what_only_reads_is_no_effect(world: World, case: Case) -> None:
    world.make(case.before)
    session = world.adapter.connect(world.database)
    try:
        assert session.read(case.statements[0], ()) is not None
    finally:
        session.close()
