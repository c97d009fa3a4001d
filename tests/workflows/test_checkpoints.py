"""Going on from a checkpoint: what came after it is taken back, and is no longer replayed."""

import pytest

import takeback
from takeback.model.run import needs_attention
from tests.workflows.conftest import Bench
from tests.workflows.test_replay import flow


def test_a_workflow_goes_on_from_a_checkpoint_with_another_function(bench: Bench) -> None:
    called: list[str] = []

    @flow
    def before(run: takeback.Run) -> None:
        run.write(bench.world / "a", "1")
        run.remember("x", lambda: called.append("x"))
        run.checkpoint("half", {"n": 1})
        run.write(bench.world / "b", "old")
        run.wait("go")

    @flow
    def after(run: takeback.Run) -> str:
        run.write(bench.world / "a", "1")
        run.remember("x", lambda: called.append("x"))
        run.checkpoint("half", {"n": 1})
        run.write(bench.world / "b", "new")
        run.write(bench.world / "c", "1")
        return run.wait("go")

    run = bench.tb.submit(before)
    bench.work(before)
    bench.tb.signal(run, "go", "late")
    bench.work(after)
    assert needs_attention(bench.look(run))

    left = bench.tb.resume(run, from_checkpoint="half")
    assert bench.text("b") is None
    with pytest.raises(takeback.Misuse, match="has ended"):
        left.write(bench.world / "d", "not by us")
    bench.work(after)

    assert bench.tb.result(run, 0) == "late"
    assert [bench.text(name) for name in "abc"] == ["1", "new", "1"]
    assert called == ["x"]


def test_the_same_step_can_be_made_again_after_going_back(bench: Bench) -> None:
    @flow
    def deploy(run: takeback.Run) -> None:
        run.checkpoint("start")
        run.write(bench.world / "a", "1", key="the only one")
        run.wait("go")

    run = bench.tb.submit(deploy)
    for _ in range(3):
        bench.work(deploy)
        assert bench.text("a") == "1"
        bench.tb.resume(run, from_checkpoint="start")
        assert bench.text("a") is None
    bench.work(deploy)
    bench.tb.signal(run, "go")
    bench.work(deploy)

    assert bench.look(run).state.value == "accepted"
    assert [one.state.value for one in bench.tb.effects(run=run) if not one.is_undo] == ["undone"] * 3 + [
        "done"
    ]


def test_what_stays_after_going_back_is_answered_and_not_made_a_second_time(bench: Bench) -> None:
    ids: list[str] = []

    @flow
    def deploy(run: takeback.Run) -> None:
        run.checkpoint("start")
        made = run.write(bench.world / "a", "1")
        assert made is not None
        ids.append(made.id)
        run.accept(made)
        run.wait("go")

    run = bench.tb.submit(deploy)
    bench.work(deploy)
    bench.tb.resume(run, from_checkpoint="start")
    assert bench.text("a") == "1"
    bench.work(deploy)
    bench.tb.signal(run, "go")
    bench.work(deploy)

    assert bench.look(run).state.value == "accepted"
    assert len(set(ids)) == 1 and len(ids) == 3


def test_a_signal_that_was_taken_stays_taken(bench: Bench) -> None:
    @flow
    def deploy(run: takeback.Run) -> object:
        run.checkpoint("start")
        answer = run.wait("approved")
        run.write(bench.world / "a", "1")
        run.wait("go")
        return answer

    run = bench.tb.submit(deploy)
    bench.tb.signal(run, "approved", 1)
    bench.work(deploy)
    bench.tb.resume(run, from_checkpoint="start")
    bench.work(deploy)

    assert bench.look(run).awaits == "approved"


def test_automatic_checkpoints_are_places_to_go_on_from(bench: Bench) -> None:
    @flow
    def deploy(run: takeback.Run) -> None:
        for number in range(12):
            run.write(bench.world / f"f{number}", "1")
        run.wait("go")

    run = bench.tb.submit(deploy)
    bench.work(deploy)
    (point,) = bench.tb.checkpoints(run)
    assert (point.label, point.automatic) == ("after 10 effects", True)
    bench.tb.resume(run, from_checkpoint=point)
    assert [bench.text(f"f{number}") for number in (8, 9, 10, 11)] == ["1", "1", None, None]
    bench.work(deploy)
    bench.tb.signal(run, "go")
    bench.work(deploy)

    assert bench.look(run).state.value == "accepted"
    assert bench.text("f11") == "1"
    assert len(bench.tb.effects(run=run, state="done")) == 12 + 2


def test_an_ordinary_run_goes_on_from_a_checkpoint_with_its_state(bench: Bench) -> None:
    run = bench.tb.run("ordinary")
    run.write(bench.world / "a", "1")
    run.checkpoint("half", {"n": 0.5})
    run.write(bench.world / "b", "1")
    run.suspend("later")

    with bench.tb.resume("ordinary", from_checkpoint="half") as again:
        assert again.state == {"n": 0.5}
        assert (bench.text("a"), bench.text("b")) == ("1", None)
        again.write(bench.world / "c", "1")

    assert bench.text("c") == "1"


def test_a_checkpoint_of_another_run_is_refused(bench: Bench) -> None:
    with bench.tb.run("other") as other:
        point = other.checkpoint("elsewhere")
    run = bench.tb.run("ordinary")
    run.suspend("later")

    for named in (point, "elsewhere"):
        with pytest.raises(takeback.Misuse):
            bench.tb.resume("ordinary", from_checkpoint=named)
    with bench.tb.resume("ordinary"):
        pass  # it is not held by the attempts before


CALLED: list[str] = []


def unmark(word: str) -> None:
    CALLED.remove(word)


@takeback.action(undo=unmark, name="tests.workflows.mark")
def mark(word: str) -> str:
    CALLED.append(word)
    return word


@takeback.workflow
def called_twice(run: takeback.Run) -> str:
    run.call(mark, "a")
    run.checkpoint("mid")
    run.call(mark, "b")
    return run.wait("go")


@takeback.workflow
def goes_back_itself(run: takeback.Run) -> None:
    run.checkpoint("mid")
    run.call(mark, "b")
    run.undo(to="mid")
    run.call(mark, "b")


def test_who_resumes_from_a_checkpoint_means_what_was_taken_back_anew(bench: Bench) -> None:
    CALLED.clear()
    run = bench.tb.submit(called_twice)
    bench.work(called_twice)
    bench.tb.resume(run, from_checkpoint="mid")
    assert CALLED == ["a"]
    bench.work(called_twice)
    assert CALLED == ["a", "b"]
    bench.tb.signal(run, "go", "home")
    bench.work(called_twice)
    assert bench.tb.result(run, 0) == "home"
    assert CALLED == ["a", "b"]


def test_a_workflow_that_asks_again_for_what_it_took_back_waits_for_a_person(bench: Bench) -> None:
    CALLED.clear()
    run = bench.tb.submit(goes_back_itself)
    bench.work(goes_back_itself)
    assert CALLED == []
    with pytest.raises(takeback.Stuck, match="did this before"):
        bench.tb.result(run, 0)
    assert bench.look(run).state == "suspended"
