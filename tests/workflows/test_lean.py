"""A step asks the store for what it has to know, and for nothing that is known already."""

from collections.abc import Callable
from typing import Any

import pytest

import takeback
from takeback.storage.protocols import Query
from takeback.storage.sqlite.journal import SqlJournal
from tests.approvals.words import words
from tests.workflows.conftest import Bench


def unmake(receipt: Any) -> None:
    """It was only counted."""


@takeback.action(undo=unmake)
def count(number: int) -> int:
    return number + 1


@takeback.action(undo=takeback.IRREVERSIBLE("it is out"), risk="high")
def send(number: int) -> int:
    return number


@takeback.workflow(name="counts")
def counts(run: takeback.Run) -> list[int]:
    return [run.call(count, number) for number in range(3)]


@takeback.workflow(name="sends")
def sends(run: takeback.Run) -> int:
    return run.call(send, 7)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Query]:
    """What the journal was asked for effects."""
    seen: list[Query] = []

    def watched(known: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, query: seen.append(query) or known(self, query)

    for name in ("effects", "count"):
        monkeypatch.setattr(SqlJournal, name, watched(getattr(SqlJournal, name)))
    return seen


def test_a_new_step_is_not_looked_for_by_its_key(bench: Bench, asked: list[Query]) -> None:
    assert bench.done(counts) == [1, 2, 3]

    assert not [query for query in asked if query.key]


def test_calls_are_no_versions_of_anything_and_not_counted_when_a_run_ends(
    bench: Bench, asked: list[Query]
) -> None:
    bench.done(counts)

    assert not [query for query in asked if query.resource]


def test_a_step_that_waited_for_its_approval_is_found_again(bench: Bench, asked: list[Query]) -> None:
    run = bench.tb.submit(sends)
    bench.work(sends)
    (waiting,) = bench.tb.effects(run=run.id)
    asked.clear()
    bench.tb.approve(waiting.id, by="bea", answer=words(bench.tb, waiting))
    bench.work(sends)

    assert bench.tb.result(run, 0) == 7
    assert [query for query in asked if query.key]
    assert [one.id for one in bench.tb.effects(run=run.id)] == [waiting.id]


def test_the_history_of_a_run_with_nothing_in_doubt_is_read_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from takeback.runs.workflows import worker

    read: list[str] = []
    known = worker.history_of
    monkeypatch.setattr(worker, "history_of", lambda *given: read.append(given[1]) or known(*given))

    bench.done(counts)

    assert len(read) == 1


@takeback.workflow(name="remembers")
def remembers(run: takeback.Run) -> int:
    return run.remember("number", lambda: 5)


def test_a_run_without_effects_is_not_asked_about_them_when_it_begins(
    bench: Bench, asked: list[Query]
) -> None:
    assert bench.done(remembers) == 5

    # When it ends it is: whether something is in flight. What could be forgotten was looked at when the store had room.
    assert len([query for query in asked if query.run]) == 1


def test_a_lease_is_let_go_of_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    leases = type(bench.tb.store.leases)
    known, released = leases.release, []
    monkeypatch.setattr(leases, "release", lambda self, lease: released.append(lease) or known(self, lease))

    bench.done(remembers)

    assert len(released) == 1
