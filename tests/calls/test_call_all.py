"""Several calls whose next is known: each an effect of its own, every second commit saved."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.model.effect import State
from takeback.model.record import Draft, Kind

CALLED: list[int] = []


@takeback.action(name="tests.count", expects=lambda number: number != 13)
def count(number: int, *, key: str) -> Any:
    if number < 0:
        raise takeback.DidNotHappen("There is no such number.")
    CALLED.append(number)
    return {"number": number, "key": key}


@count.undo
def discount(receipt: Any) -> None:
    CALLED.remove(receipt["number"])


@pytest.fixture(autouse=True)
def afresh() -> None:
    CALLED.clear()


def kinds(tb: takeback.Takeback) -> list[str]:
    return [record.kind.value for record in tb.store.journal.records()]


def test_each_is_an_effect_and_records_are_as_if_called_one_by_one(store: Path) -> None:
    with takeback.open(store) as tb:
        commits: list[int] = []
        append = tb.store.journal.append

        def counted(lease: Any, drafts: Sequence[Draft]) -> Any:
            commits.append(len(drafts))
            return append(lease, drafts)

        with tb.run("count") as run:
            tb.store.journal.append = counted  # pyright: ignore[reportAttributeAccessIssue]
            results = run.call_all(count, [{"number": n} for n in range(5)])
            tb.store.journal.append = append  # pyright: ignore[reportAttributeAccessIssue]
        assert [one["number"] for one in results] == CALLED == [0, 1, 2, 3, 4]
        assert commits == [1, 2, 2, 2, 2, 1]
        assert kinds(tb) == ["open", *["intent", "done"] * 5, "close"]
        assert {one.state for one in tb.effects()} == {State.DONE}
        assert tb.verify(read_data=True).findings == ()
        tb.undo(tb.runs()[0])
        assert CALLED == []


@pytest.mark.parametrize(("bad", "error"), [(13, takeback.PreconditionFailed), (-1, takeback.DidNotHappen)])
def test_the_first_that_fails_is_raised_and_those_before_it_stay_done(
    store: Path, bad: int, error: type[Exception]
) -> None:
    with takeback.open(store) as tb:
        with tb.run("count") as run:
            with pytest.raises(error):
                run.call_all(count, [{"number": 1}, {"number": 2}, {"number": bad}, {"number": 3}])
            assert [one.state for one in tb.effects()][:2] == [State.DONE, State.DONE]
            run.call(count, 4)
        assert CALLED == [1, 2, 4]
        assert tb.verify(read_data=True).findings == ()


def test_the_same_key_is_called_once_and_twice_in_one_list_refused(store: Path) -> None:
    with takeback.open(store) as tb, tb.run("count") as run:
        with pytest.raises(takeback.Misuse, match="same key"):
            run.call_all(count, [{"number": 1, "key": "a"}, {"number": 1, "key": "a"}])
        run.call(count, 1, key="a")
        results = run.call_all(count, [{"number": 1, "key": "a"}, {"number": 2, "key": "b"}])
        assert [one["key"] for one in results] == ["a", "b"]
    assert CALLED == [1, 2]


def test_what_is_held_is_written_when_the_next_is_refused_by_the_journal(store: Path) -> None:
    with takeback.open(store) as tb, tb.run("count") as run:
        with tb.run("another") as other:
            other.call(count, 7, key="taken")
        with pytest.raises(takeback.KeyReused):
            run.call_all(count, [{"number": 1}, {"number": 2, "key": "taken"}])
        assert [record.kind for record in tb.store.journal.records(run=run.id)] == [
            Kind.OPEN, Kind.INTENT, Kind.DONE,
        ]  # fmt: skip
