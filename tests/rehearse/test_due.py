"""When each kind of remedy was last proven, what is due, and what was found unfit."""

import pytest

import takeback
from takeback.api import Takeback, opened_of
from takeback.audit.rehearsals import proven, unfit
from takeback.model.record import STORE, Draft, Kind
from takeback.model.rehearsal import (
    TOGETHER,
    Rehearsal,
    Rehearsed,
    RehearsedTarget,
    Viability,
    bodies,
    rehearsed_in,
)
from takeback.runs.rehearsals import choice
from tests.rehearse.conftest import proofs
from tests.world import World

FILE = ("file", "snapshot")


def record(tb: Takeback, *told: Rehearsed, check: bool = False) -> None:
    drafts = [Draft(Kind.REHEARSE, STORE, "", body) for body in bodies(Rehearsal(told, check))]
    tb.store.journal.append(None, drafts)


def of_file(effect: str, proof: Viability) -> Rehearsed:
    return Rehearsed(effect, *FILE, proof, "" if proof is Viability.WORKS else "why not")


@pytest.fixture
def effect(tb: Takeback, world: World) -> takeback.Effect:
    with tb.run("work") as run:
        made = run.write(world / "a", "1")
    assert made
    return made


def test_a_kind_is_proven_by_a_trial_and_not_by_a_look(tb: Takeback, effect: takeback.Effect) -> None:
    record(tb, of_file(effect.id, Viability.WORKS), check=True)
    assert proven(tb.store.journal) == {}

    found = tb.rehearse(effect)

    (one,) = proven(tb.store.journal).items()
    assert one[0] == FILE
    assert (one[1].outcome, one[1].at, one[1].worked_at) == (Viability.WORKS, found.at, found.at)


def test_a_failure_is_told_with_when_it_last_worked(tb: Takeback, effect: takeback.Effect) -> None:
    record(tb, of_file(effect.id, Viability.WORKS))
    worked = proven(tb.store.journal)[FILE].at
    record(tb, of_file(effect.id, Viability.CANNOT))
    assert proven(tb.store.journal)[FILE].outcome is Viability.WORKS
    record(
        tb, of_file(effect.id, Viability.WORKS), of_file("x", Viability.FAILS), of_file("y", Viability.WORKS)
    )

    told = proven(tb.store.journal)[FILE]

    assert (told.outcome, told.effect) == (Viability.FAILS, "x")
    assert told.worked_at >= worked


def test_due_is_one_of_each_kind_until_it_is_proven(
    tb: Takeback, world: World, effect: takeback.Effect
) -> None:
    (world / "c.json").write_text("{}")
    with tb.run("more") as run:
        below = run.write(world / "b", "1")
        above = run.write(world / "b", "2")
        edited = run.edit_config(world / "c.json", {"/x": 1})
    assert below and above and edited

    found = tb.rehearse(due=True)

    assert {one.effect for one in found.rehearsed} == {above.id, edited.id}
    assert proofs(found) == [Viability.WORKS, Viability.WORKS]
    assert tb.rehearse(due=True).rehearsed == ()


def test_due_again_when_the_proof_is_old(tb: Takeback, effect: takeback.Effect) -> None:
    tb.rehearse(due=True)
    kinds = proven(tb.store.journal)
    days, parts = tb.store.settings.rehearse_days, opened_of(tb).parts
    then = kinds[FILE].at + days * choice.DAY

    assert choice.due(parts, kinds, days, then - 1) == ()
    assert [one.id for one in choice.due(parts, kinds, days, then)] == [effect.id]


def test_an_effect_whose_way_back_failed_is_unfit_until_it_works_or_is_undone(
    tb: Takeback, world: World, effect: takeback.Effect
) -> None:
    (world / "a").write_text("person")
    tb.rehearse(effect)
    assert [(one.effect.id, "Modified" in one.why) for one in unfit(tb.store.journal)] == [(effect.id, True)]

    (world / "a").write_text("1")
    tb.rehearse(effect, check=True)

    assert unfit(tb.store.journal) == ()


def test_many_are_divided_over_records_and_read_back() -> None:
    targets = tuple(RehearsedTarget(f"file:///{n}", Viability.WORKS) for n in range(80))
    bad = RehearsedTarget("file:///bad", Viability.FAILS, "gone")
    told = tuple(
        Rehearsed(str(n), *FILE, Viability.FAILS, "gone", "write", (*targets, bad), 3) for n in range(450)
    )

    found = bodies(Rehearsal(told))

    assert [len(one["effects"]) for one in found] == [TOGETHER, TOGETHER, 50]
    from takeback.model.record import Record, canonical

    canonical(found)
    first = rehearsed_in(Record(1, Kind.REHEARSE, STORE, "", 1, found[0], b""))[0]
    assert (first.effect, first.outcome, first.milliseconds, first.targets[0]) == (
        "0",
        Viability.FAILS,
        3,
        bad,
    )


@pytest.mark.parametrize(
    "asked", [{}, {"what": "@", "everything": True}, {"due": True, "plan": "x"}, {"what": "@", "plan": "x"}]
)
def test_one_thing_is_rehearsed(tb: Takeback, asked: dict[str, object]) -> None:
    with pytest.raises(takeback.Misuse, match="Say what to rehearse"):
        tb.rehearse(**asked)  # type: ignore[arg-type]
