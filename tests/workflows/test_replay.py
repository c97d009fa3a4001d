"""A resumed run calls its function again, and every step that is recorded answers from the journal."""

import contextlib
import os
from typing import Any

import pytest

import takeback
from takeback.errors import PreconditionFailed
from takeback.model.run import NEVER, needs_attention
from tests.workflows.conftest import Bench


def flow(function: Any) -> takeback.Workflow:
    return takeback.workflow(name="flow")(function)


def test_a_resumed_run_makes_nothing_again(bench: Bench) -> None:
    calls: list[str] = []
    seen: list[object] = []

    @flow
    def deploy(run: takeback.Run, version: str) -> object:
        calls.append("called")
        first = run.write(bench.world / "a", version)
        number = run.remember("number", lambda: calls.append("remembered") or 0.1 + 0.2)
        point = run.checkpoint("half", {"n": 1})
        seen.append((first, number, point))
        data = run.wait("go")
        run.write(bench.world / "b", data["text"])
        return {"number": number, "data": data}

    run = bench.tb.submit(deploy, "v1")
    bench.work(deploy)
    (bench.world / "a").write_text("somebody else's")
    bench.tb.signal(run, "go", {"text": "b", "share": 0.5})
    bench.work(deploy)

    assert bench.tb.result(run, 0) == {"number": 0.1 + 0.2, "data": {"text": "b", "share": 0.5}}
    assert calls == ["called", "remembered", "called"]
    assert seen[0] == seen[1]
    assert bench.text("a") == "somebody else's"
    assert [one.step for one in bench.tb.effects()] == [1, 5]


def test_an_effect_that_was_taken_back_since_is_handed_out_as_it_stands(bench: Bench) -> None:
    states: list[str] = []

    @flow
    def deploy(run: takeback.Run) -> None:
        made = run.write(bench.world / "a", "1")
        assert made is not None
        states.append(made.state.value)
        run.wait("go")

    run = bench.tb.submit(deploy)
    bench.work(deploy)
    bench.tb.undo(bench.tb.effects()[0])
    bench.tb.signal(run, "go")
    bench.work(deploy)

    assert states == ["done", "undone"]
    assert bench.text("a") is None


def test_names_mean_what_they_meant_then(bench: Bench) -> None:
    """A directory that a later step removed, a link that it moved: what was asked for is still the same."""

    @flow
    def deploy(run: takeback.Run) -> str:
        run.mkdir(bench.world / "scratch")
        run.write(bench.world / "scratch" / "notes", "x")
        run.delete(bench.world / "scratch")
        for release in ("1", "2"):
            run.mkdir(bench.world / release)
        run.symlink(bench.world / "current", "1")
        run.write(bench.world / "current" / "conf", "one")
        run.delete(bench.world / "current")
        run.symlink(bench.world / "current", "2")
        return run.wait("go")

    run = bench.tb.submit(deploy)
    bench.work(deploy)
    bench.tb.signal(run, "go", "there")
    bench.work(deploy)

    assert bench.tb.result(run, 0) == "there"
    assert (bench.world / "1" / "conf").read_text() == "one"
    assert os.readlink(bench.world / "current") == "2"


def test_a_step_that_changed_nothing_is_a_step(bench: Bench) -> None:
    (bench.world / "a").write_text("same")

    @flow
    def deploy(run: takeback.Run) -> list[bool]:
        nothing = run.write(bench.world / "a", "same") is None
        run.wait("go")
        return [nothing, run.write(bench.world / "b", "1") is None]

    run = bench.tb.submit(deploy)
    bench.work(deploy)
    (bench.world / "a").write_text("changed since")
    bench.tb.signal(run, "go")
    bench.work(deploy)

    assert bench.tb.result(run, 0) == [True, False]
    assert bench.text("a") == "changed since"


def test_a_step_that_failed_fails_again_in_the_same_way(bench: Bench) -> None:
    may = [False]
    caught: list[str] = []

    class Odd(Exception):
        pass

    def odd() -> None:
        raise Odd("of somebody's own")

    @flow
    def deploy(run: takeback.Run) -> None:
        for attempt in (
            lambda: run.write(bench.world / "a", "1", expects=lambda: may[0]),
            lambda: run.remember("division", lambda: 1 // 0),
            lambda: run.remember("odd", odd),
        ):
            try:
                attempt()
            except (PreconditionFailed, ZeroDivisionError, takeback.Failed) as error:
                caught.append(f"{type(error).__name__}: {error}")
        run.wait("go")

    run = bench.tb.submit(deploy)
    bench.work(deploy)
    may[0] = True
    bench.tb.signal(run, "go")
    bench.work(deploy)

    assert bench.tb.result(run, 0) is None
    assert caught[:3] == caught[3:]
    assert [words.partition(":")[0] for words in caught[:3]] == [
        "PreconditionFailed",
        "ZeroDivisionError",
        "Failed",
    ]
    assert bench.text("a") is None


def waits_then(bench: Bench, first: Any, second: Any) -> tuple[takeback.RunInfo, takeback.Workflow]:
    """A run that did `first` before it waited, and finds `second` in its function afterwards."""

    def made(steps: Any) -> takeback.Workflow:
        @flow
        def deploy(run: takeback.Run) -> None:
            steps(run)
            run.wait("go")
            run.write(bench.world / "end", "reached")

        return deploy

    run = bench.tb.submit(made(first))
    bench.work(made(first))
    bench.tb.signal(run, "go")
    bench.work(made(second))
    return bench.look(run), made(first)


DIFFERENCES = {
    "another content": (lambda run, at: run.write(at / "a", "2"), "write", "Step 1"),
    "another file": (lambda run, at: run.write(at / "other", "1"), "other", "Step 1"),
    "another verb": (lambda run, at: run.delete(at / "a"), "delete", "Step 1"),
    "something to remember": (lambda run, at: run.remember("x", lambda: 1), "remember 'x'", "Step 1"),
    "one step less": (lambda run, at: None, "wait 'go'", "Step 1"),
    "one step more": (
        lambda run, at: (run.write(at / "a", "1"), run.sleep(seconds=5)),
        "sleep '5 seconds'",
        "Step 2",
    ),
}


@pytest.mark.parametrize("what", DIFFERENCES)
def test_a_function_that_asks_for_something_else_is_stopped_and_changes_nothing(
    bench: Bench, what: str
) -> None:
    other, named, step = DIFFERENCES[what]

    def first(run: takeback.Run) -> None:
        run.write(bench.world / "a", "1")
        run.remember("next", lambda: 1)

    run, right = waits_then(bench, first, lambda run: other(run, bench.world))

    assert run.state.value == "suspended" and run.due_at == NEVER and needs_attention(run)
    assert f"{step} of run" in run.note and named in run.note and "The function now asks for" in run.note
    assert (bench.text("a"), bench.text("end")) == ("1", None)
    with pytest.raises(takeback.Stuck, match="cannot continue: Step"):
        bench.tb.result(run, 0)

    bench.tb.resume(run)  # with the function as it was
    bench.work(right)
    assert bench.tb.result(run, 0) is None
    assert bench.text("end") == "reached"


def test_a_divergence_that_the_function_swallows_stops_it_all_the_same(bench: Bench) -> None:
    def swallowing(run: takeback.Run) -> None:
        with contextlib.suppress(Exception):
            run.write(bench.world / "a", "2")

    run, _ = waits_then(bench, lambda run: run.write(bench.world / "a", "1"), swallowing)

    assert needs_attention(run)
    assert (bench.text("a"), bench.text("end")) == ("1", None)


def test_a_function_that_ends_before_what_is_recorded_has_diverged(bench: Bench) -> None:
    @flow
    def two(run: takeback.Run) -> None:
        run.write(bench.world / "a", "1")
        run.wait("go")

    @flow
    def one(run: takeback.Run) -> None:
        run.write(bench.world / "a", "1")

    @flow
    def failing(run: takeback.Run) -> None:
        raise ValueError("too early")

    for other, says in (
        (one, "the function has ended"),
        (failing, "the function has failed: ValueError: too early"),
    ):
        run = bench.tb.submit(two)
        bench.work(two)
        bench.tb.signal(run, "go")
        bench.work(other)
        run = bench.look(run)
        assert needs_attention(run)
        assert says in run.note
        assert bench.text("a") == "1"
        bench.tb.undo(run)
        assert bench.text("a") is None


def test_a_function_whose_parameters_changed_is_told_of_and_never_called(bench: Bench) -> None:
    @flow
    def before(run: takeback.Run, place: str) -> None:
        run.wait("go")

    @flow
    def after(run: takeback.Run, place: str, version: str) -> None:
        raise AssertionError

    run = bench.tb.submit(before, "x")
    bench.work(after)

    run = bench.look(run)
    assert needs_attention(run)
    assert "it now needs 'version'" in run.note


def test_what_is_part_of_remembering_cannot_be_a_step(bench: Bench) -> None:
    @flow
    def deploy(run: takeback.Run) -> None:
        run.remember("write", lambda: run.write(bench.world / "a", "1"))

    run = bench.tb.submit(deploy)
    bench.work(deploy)

    with pytest.raises(takeback.Misuse, match="cannot be part of remember"):
        bench.tb.result(run, 0)
    assert bench.text("a") is None


def test_steps_of_undo_and_checkpoint_are_not_repeated(bench: Bench) -> None:
    results: list[Any] = []

    @flow
    def deploy(run: takeback.Run) -> None:
        run.write(bench.world / "a", "1")
        run.checkpoint("after a", {"at": 1.5})
        run.write(bench.world / "b", "1")
        results.append(run.undo(to="after a"))
        run.write(bench.world / "c", "1")
        run.wait("go")

    run = bench.tb.submit(deploy)
    bench.work(deploy)
    bench.tb.signal(run, "go")
    bench.work(deploy)

    assert bench.tb.result(run, 0) is None
    first, again = results
    assert (first.outcome, first.targets, first.effects) == (again.outcome, again.targets, again.effects)
    assert [one.id for one in first.undo] == [one.id for one in again.undo]
    assert results[0].state == {"at": 1.5}
    assert [bench.text(name) for name in "abc"] == ["1", None, "1"]
    assert len(bench.tb.checkpoints(run)) == 1


def test_undo_ends_a_run_that_cannot_go_on(bench: Bench) -> None:
    run, right = waits_then(
        bench, lambda run: run.write(bench.world / "a", "1"), lambda run: run.write(bench.world / "a", "2")
    )

    bench.tb.undo(run)

    assert bench.text("a") is None
    assert bench.look(run).state.value == "undone"
    with pytest.raises(takeback.Refused, match="It was taken back"):
        bench.tb.result(run, 0)
    bench.work(right)
    assert bench.text("end") is None


def test_undo_that_is_refused_leaves_the_run_as_it_was(bench: Bench) -> None:
    @flow
    def deploy(run: takeback.Run) -> None:
        run.write(bench.world / "a", "1")
        run.wait("go")
        run.write(bench.world / "b", "1")
        run.wait("more")

    run = bench.tb.submit(deploy)
    bench.work(deploy)
    (bench.world / "a").write_text("a person's")
    waiting = bench.look(run)

    for how in ("refuse", "skip"):
        with pytest.raises(takeback.Conflict):
            bench.tb.undo(run, on_conflict=how)
        assert bench.look(run)._replace(closed_at=0) == waiting._replace(closed_at=0)

    bench.tb.signal(run, "go")
    bench.work(deploy)
    bench.tb.undo(run, on_conflict="skip")
    assert bench.look(run).state.value == "partly undone"
    assert (bench.text("a"), bench.text("b")) == ("a person's", None)
