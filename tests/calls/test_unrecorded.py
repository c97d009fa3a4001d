"""The store cannot be written when something was made: that is told as in doubt, never as if nothing had happened."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.errors import InDoubt, LeaseLost, ResourceUnreachable, ServerUnreachable, StoreBusy
from takeback.model.effect import State
from takeback.model.record import Kind
from takeback.runs.run import core_of

CALLED: list[int] = []
TROUBLES: list[takeback.TakebackError] = [
    ResourceUnreachable("The disk is full.", hint="Nothing was changed."),
    ServerUnreachable("Nobody answers.", hint="Trying again is safe."),
    StoreBusy("Another process has been writing for too long.", hint="Try again."),
    InDoubt("The connection was lost."),
]
each_trouble = pytest.mark.parametrize("trouble", TROUBLES, ids=lambda one: type(one).__name__)


def found(key: str) -> Any:
    return next((one for one in CALLED if f"key {one}" == key), None)


@takeback.action(name="tests.unrecorded", verify=found)
def count(number: int, *, key: str) -> Any:
    if number < 0:
        raise takeback.DidNotHappen("There is no such number.")
    CALLED.append(number)
    return number


@count.undo
def discount(receipt: Any) -> None:
    CALLED.remove(receipt)


@pytest.fixture(autouse=True)
def afresh() -> None:
    CALLED.clear()


def fail_from(tb: takeback.Takeback, kind: Kind, trouble: Exception, at: int = 1) -> Callable[[], None]:
    """From the n-th record of that kind on nothing can be appended; what is returned mends it."""
    journal: Any = tb.store.journal
    append, seen = journal.append, [0]

    def appended(lease: Any, drafts: Any) -> Any:
        seen[0] += sum(draft.kind is kind for draft in drafts)
        if seen[0] >= at:
            raise trouble
        return append(lease, drafts)

    def mend() -> None:
        journal.append = append

    journal.append = appended
    return mend


def assert_told(told: InDoubt, tb: takeback.Takeback, trouble: Exception, what: str) -> None:
    """In words, and which effect it is; that one is open."""
    assert str(told) == f"{what}, but the outcome could not be recorded: {trouble}"
    assert "takeback recover" in told.hint
    assert told.__cause__ is trouble
    (effect,) = tb.effects(state=State.INTENDED)
    assert told.effect == effect.id


@each_trouble
def test_a_call_whose_outcome_cannot_be_recorded_is_in_doubt_and_is_found(
    store: Path, trouble: takeback.TakebackError
) -> None:
    with takeback.open(store) as tb:
        with tb.run("count", on_death="accept") as run:
            mend = fail_from(tb, Kind.DONE, trouble)
            with pytest.raises(InDoubt) as told:
                run.call(count, 7, key="key 7")
            mend()
            assert_told(told.value, tb, trouble, "call tests.unrecorded(number=7) was called")
            assert run.call(count, 7, key="key 7") == 7
        assert CALLED == [7]
        assert [one.state for one in tb.effects()] == [State.DONE]


def test_a_call_that_did_not_happen_and_cannot_be_recorded_is_in_doubt(store: Path) -> None:
    trouble = ResourceUnreachable("The disk is full.")
    with takeback.open(store) as tb, tb.run("count", on_death="accept") as run:
        mend = fail_from(tb, Kind.ABORT, trouble)
        with pytest.raises(InDoubt) as told:
            run.call(count, -1, key="key -1")
        mend()
        assert_told(told.value, tb, trouble, "call tests.unrecorded(number=-1) was called")


def test_whoever_lost_the_run_is_told_that(store: Path) -> None:
    with takeback.open(store) as tb, tb.run("count", on_death="accept") as run:
        mend = fail_from(tb, Kind.DONE, LeaseLost("Run 1 was taken over."))
        with pytest.raises(LeaseLost):
            run.call(count, 7, key="key 7")
        mend()


@pytest.mark.parametrize("on_death", ["undo", "accept"])
def test_the_doubt_is_told_even_if_the_run_cannot_be_ended_either(store: Path, on_death: Any) -> None:
    trouble = ResourceUnreachable("The disk is full.")
    with takeback.open(store) as tb:
        with pytest.raises(InDoubt) as told, tb.run("count", on_death=on_death) as run:
            mend = fail_from(tb, Kind.DONE, trouble)
            run.call(count, 7, key="key 7")
        assert_told(told.value, tb, trouble, "call tests.unrecorded(number=7) was called")
        mend()
    with takeback.open(store) as tb:
        tb.recover()
        assert not tb.effects(state=(State.INTENDED, State.STUCK))
        assert ([7] if on_death == "accept" else []) == CALLED


@pytest.mark.parametrize("on_death", ["undo", "accept"])
def test_the_doubt_is_told_even_if_the_store_does_not_answer_at_all(
    store: Path, monkeypatch: pytest.MonkeyPatch, on_death: Any
) -> None:
    trouble = ServerUnreachable("Nobody answers.")

    def silent(*_: Any) -> Any:
        raise trouble

    with takeback.open(store) as tb:
        with pytest.raises(InDoubt) as told, tb.run("count", on_death=on_death) as run:
            fail_from(tb, Kind.DONE, trouble)
            try:
                run.call(count, 7, key="key 7")
            finally:
                monkeypatch.setattr(tb.store.journal, "effects", silent)
                monkeypatch.setattr(tb.store.leases, "release", silent)
        monkeypatch.undo()
        assert_told(told.value, tb, trouble, "call tests.unrecorded(number=7) was called")
        (note,) = told.value.__notes__
        assert "could not be ended: Nobody answers." in note


@each_trouble
@pytest.mark.parametrize("at", [1, 2, 3])
def test_of_several_calls_it_is_the_one_that_was_made(
    store: Path, trouble: takeback.TakebackError, at: int
) -> None:
    with takeback.open(store) as tb, tb.run("count", on_death="accept") as run:
        mend = fail_from(tb, Kind.DONE, trouble, at)
        with pytest.raises(InDoubt) as told:
            run.call_all(count, [{"number": n, "key": f"key {n}"} for n in (1, 2, 3)])
        mend()
        assert_told(told.value, tb, trouble, f"call tests.unrecorded(number={at}) was called")
        assert list(range(1, at + 1)) == CALLED


@each_trouble
def test_a_file_that_was_written_and_not_recorded_is_in_doubt(
    store: Path, swift_path: Path, trouble: takeback.TakebackError
) -> None:
    file = swift_path / "notes"
    with takeback.open(store) as tb, tb.run("write", on_death="accept") as run:
        mend = fail_from(tb, Kind.DONE, trouble)
        with pytest.raises(InDoubt) as told:
            run.write(file, "content")
        mend()
        assert_told(told.value, tb, trouble, f"write {file} (7 bytes) was made")
        assert file.read_text() == "content"


@each_trouble
def test_a_checkpoint_that_comes_by_itself_does_not_make_a_call_fail(
    store: Path, trouble: takeback.TakebackError
) -> None:
    with takeback.open(store) as tb, tb.run("count") as run:
        core = core_of(run)
        core.settings = core.settings._replace(checkpoint_every=1)
        mend = fail_from(tb, Kind.CHECKPOINT, trouble)
        assert run.call(count, 7, key="key 7") == 7
        mend()
        assert run.call(count, 8, key="key 8") == 8
        assert [one.label for one in tb.checkpoints(run.id)] == ["after 2 effects"]
