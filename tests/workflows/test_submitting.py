"""Submitting: what is asked for is checked at once, and once is enough."""

from collections import Counter
from typing import Any

import pytest

import takeback
from tests.workflows.conftest import Bench
from tests.workflows.test_replay import flow


@takeback.workflow
def at_the_top(run: takeback.Run, *args: Any, **kwargs: Any) -> Any:
    return [args, kwargs]


def test_a_workflow_is_known_by_its_module_and_name_and_still_a_function() -> None:
    assert at_the_top.name == f"{__name__}:at_the_top"
    assert at_the_top(None, 1, a=2) == [(1,), {"a": 2}]
    with pytest.raises(AttributeError):
        at_the_top.name = "other"  # type: ignore[misc]


def test_arguments_come_as_they_were_given(bench: Bench) -> None:
    assert bench.done(at_the_top, 1, [0.5], {"a": None}, b="x") == [[1, [0.5], {"a": None}], {"b": "x"}]


def test_the_same_key_is_the_same_run(bench: Bench) -> None:
    @flow
    def deploy(run: takeback.Run, version: str, places: int = 1) -> str:
        return version

    first = bench.tb.submit(deploy, "v1", key="release", agent="ci", name="release 1")
    assert bench.tb.submit(deploy, version="v1", key="release") == bench.look(first)
    assert (first.name, first.agent, first.key, first.workflow) == ("release 1", "ci", "release", "flow")
    with pytest.raises(takeback.KeyReused, match=r"used for another run: flow with .*v1"):
        bench.tb.submit(deploy, "v2", key="release")
    with pytest.raises(takeback.KeyReused):
        bench.tb.submit(at_the_top, key="release")
    bench.work(deploy)
    assert bench.tb.submit(deploy, "v1", key="release").state.value == "accepted"
    assert len(bench.tb.runs()) == 1


def test_what_does_not_fit_is_refused_at_once(bench: Bench) -> None:
    @flow
    def deploy(run: takeback.Run, version: str) -> None: ...

    @takeback.workflow
    def hidden(run: takeback.Run) -> None: ...

    async def later(run: takeback.Run) -> None: ...

    def piece_by_piece(run: takeback.Run) -> Any:
        yield 1

    for odd in (
        lambda: takeback.workflow(later),
        lambda: takeback.workflow(piece_by_piece),
        lambda: bench.tb.submit(deploy),
        lambda: bench.tb.submit(deploy, "v", "w"),
        lambda: bench.tb.submit(deploy, b"bytes"),
        lambda: bench.tb.submit(deploy, {1: 2}),
        lambda: bench.tb.submit(deploy, float("inf")),
        lambda: bench.tb.submit(deploy, "v", key=5),  # type: ignore[arg-type]
        lambda: bench.tb.submit(hidden),
        lambda: bench.tb.submit(print),  # type: ignore[arg-type]
        lambda: takeback.workflow(on_failure="explode"),
        lambda: takeback.workflow(step_timeout=0),
        lambda: takeback.workflow(lambda: None),
        lambda: bench.tb.work(until_idle=True),
        lambda: bench.tb.work(deploy, concurrency=0),
    ):
        with pytest.raises(takeback.Misuse):
            odd()
    assert bench.tb.runs() == ()


def test_a_run_that_fails_is_taken_back_or_kept_as_its_workflow_says(bench: Bench) -> None:
    def made(how: str) -> takeback.Workflow:
        @takeback.workflow(name=how, on_failure=how)
        def deploy(run: takeback.Run) -> None:
            kept = run.write(bench.world / f"{how}-kept", "1")
            assert kept is not None
            run.accept(kept)
            run.write(bench.world / how, "1")
            raise ValueError("no")

        return deploy

    for how, state, there in (("undo", "undone", None), ("leave", "accepted", "1")):
        run = bench.tb.submit(made(how))
        bench.work(made(how))
        assert bench.look(run).state.value == state
        assert bench.look(run).note == "ValueError: no"
        assert (bench.text(f"{how}-kept"), bench.text(how)) == ("1", there)
        with pytest.raises(takeback.Failed, match="ValueError: no"):
            bench.tb.result(run, 0)


def test_an_error_of_takeback_comes_back_as_itself(bench: Bench) -> None:
    @flow
    def deploy(run: takeback.Run) -> None:
        run.write(bench.world / "a", "1", expects=lambda: False)

    run = bench.tb.submit(deploy)
    bench.work(deploy)

    with pytest.raises(takeback.PreconditionFailed, match="is false") as failed:
        bench.tb.result(run, 0)
    assert failed.value.hint


def test_a_result_that_is_no_json_is_a_failure(bench: Bench) -> None:
    @flow
    def deploy(run: takeback.Run) -> object:
        run.write(bench.world / "a", "1")
        return object()

    run = bench.tb.submit(deploy)
    bench.work(deploy)

    with pytest.raises(takeback.Misuse, match="What flow returns is a object, which is no JSON"):
        bench.tb.result(run, 0)
    assert bench.text("a") is None


def test_a_result_that_is_not_there_yet_is_unavailable(bench: Bench) -> None:
    run = bench.tb.submit(at_the_top)

    with pytest.raises(takeback.Unavailable, match="has not ended yet"):
        bench.tb.result(run, timeout=0.01)


def test_what_is_unavailable_is_no_failure_and_is_tried_again(bench: Bench) -> None:
    tries: list[int] = []

    @flow
    def deploy(run: takeback.Run) -> str:
        run.write(bench.world / "a", "1")
        tries.append(1)
        if len(tries) < 3:
            raise takeback.Unavailable("the model does not answer")
        return "there"

    run = bench.tb.submit(deploy)
    for number, wait in ((1, 1), (2, 2)):
        bench.work(deploy)
        later = bench.look(run)
        assert later.state.value == "suspended"
        assert later.note == "could not continue: the model does not answer"
        apart = later.due_at - later.closed_at - bench.ahead * 1_000_000
        assert wait * 900_000 < apart <= wait * 1_000_000
        assert len(tries) == number
        assert bench.text("a") == "1"
        bench.ahead += 10
    bench.work(deploy)
    assert bench.tb.result(run, 0) == "there"


NOTES: list[str] = []


@takeback.action(undo=lambda receipt: NOTES.clear(), timeout=5)
def note(text: str) -> None:
    NOTES.append(text)


@takeback.workflow
def noted(run: takeback.Run, text: str) -> None:
    run.call(note, text)


def test_a_short_run_asks_the_store_for_nothing_twice(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease is known to last, and is let go of once; nothing was done before, so nothing is settled."""
    leases, journal, asked = bench.tb.store.leases, bench.tb.store.journal, Counter[str]()

    def count(part: Any, name: str) -> None:
        made = getattr(part, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            asked[name] += 1
            return made(*args, **kwargs)

        monkeypatch.setattr(part, name, counted)

    bench.tb.submit(noted, "hello")
    for part, name in ((leases, "renew"), (leases, "release"), (journal, "records"), (journal, "append")):
        count(part, name)
    bench.work(noted)
    assert asked == {"release": 1, "records": 2, "append": 3}  # its history, and what is stopped


def test_an_ordinary_run_has_no_result(bench: Bench) -> None:
    with bench.tb.run("ordinary") as run, pytest.raises(takeback.Misuse, match="no workflow"):
        bench.tb.result(run)


def test_a_workflow_that_leaves_its_run_is_told_so(bench: Bench) -> None:
    @flow
    def leaving(run: takeback.Run) -> None:
        run.leave()

    run = bench.tb.submit(leaving)
    bench.work(leaving)
    with pytest.raises(takeback.TakebackError, match="Leaving the run"):
        bench.tb.result(run, 0)
