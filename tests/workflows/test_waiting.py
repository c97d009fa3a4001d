"""Sleeping, waiting for an event, signals: without a process, for as long as it takes."""

import threading

import pytest

import takeback
from takeback.model.run import NEVER
from tests.approvals.words import words
from tests.workflows.conftest import Bench
from tests.workflows.test_replay import flow

DAY = 86_400


def test_a_run_sleeps_for_days_without_a_worker(bench: Bench) -> None:
    @flow
    def deploy(run: takeback.Run) -> str:
        run.write(bench.world / "a", "1")
        run.sleep(days=3)
        run.write(bench.world / "b", "1")
        return "awake"

    run = bench.tb.submit(deploy)
    bench.work(deploy)
    asleep = bench.look(run)
    assert (asleep.state.value, asleep.note) == ("suspended", "sleeps for 3 days")
    assert asleep.due_at - asleep.opened_at >= 3 * DAY * 1_000_000
    assert bench.tb.store.leases.free(run.id, 0)

    bench.ahead = 2 * DAY
    bench.work(deploy)
    assert (bench.text("a"), bench.text("b")) == ("1", None)

    bench.ahead = 3 * DAY + 60
    bench.work(deploy)
    assert bench.tb.result(run, 0) == "awake"
    assert bench.text("b") == "1"


def test_a_short_sleep_stays_in_the_process(bench: Bench) -> None:
    @flow
    def deploy(run: takeback.Run) -> str:
        run.sleep(seconds=0.05)
        return "awake"

    assert bench.done(deploy) == "awake"
    closed = [one for one in bench.tb.store.journal.records() if one.kind.value == "close"]
    assert [one.body["outcome"] for one in closed] == ["accepted"]


def test_a_signal_sent_before_is_not_lost(bench: Bench) -> None:
    @flow
    def deploy(run: takeback.Run) -> list[object]:
        return [run.wait("go"), run.wait("go"), run.wait("other")]

    run = bench.tb.submit(deploy)
    for event, data in (("go", 1), ("other", None), ("go", "two")):
        bench.tb.signal(run, event, data)
    bench.work(deploy)

    assert bench.tb.result(run, 0) == [1, "two", None]


def test_each_signal_is_taken_once(bench: Bench) -> None:
    @flow
    def deploy(run: takeback.Run) -> list[object]:
        return [run.wait("go"), run.wait("go")]

    run = bench.tb.submit(deploy)
    bench.tb.signal(run, "go", 1)
    bench.work(deploy)
    waiting = bench.look(run)
    assert (waiting.awaits, waiting.due_at, waiting.note) == ("go", NEVER, "waits for 'go'")

    bench.tb.signal(run, "something else")
    bench.work(deploy)
    assert bench.look(run).state.value == "suspended"

    bench.tb.signal(run, "go", 2)
    bench.work(deploy)
    assert bench.tb.result(run, 0) == [1, 2]


def test_waiting_has_an_end(bench: Bench) -> None:
    @flow
    def deploy(run: takeback.Run) -> object:
        run.write(bench.world / "a", "1")
        try:
            return run.wait("approved", timeout=7 * DAY)
        except TimeoutError as silence:
            run.undo()
            return str(silence)

    run = bench.tb.submit(deploy)
    bench.work(deploy)
    bench.ahead = 6 * DAY
    bench.work(deploy)
    assert bench.look(run).state.value == "suspended"

    bench.ahead = 7 * DAY + 60
    bench.work(deploy)
    assert bench.tb.result(run, 0) == "No one sent 'approved' in time."
    assert bench.text("a") is None


def test_silence_that_nobody_catches_takes_the_run_back(bench: Bench) -> None:
    @flow
    def deploy(run: takeback.Run) -> None:
        run.write(bench.world / "a", "1")
        run.wait("approved", timeout=0)

    run = bench.tb.submit(deploy)
    bench.work(deploy)

    assert bench.look(run).state.value == "undone"
    assert bench.text("a") is None
    with pytest.raises(takeback.Failed, match="TimeoutError: No one sent 'approved' in time"):
        bench.tb.result(run, 0)


def test_a_run_that_has_ended_takes_no_signal(bench: Bench) -> None:
    @flow
    def deploy(run: takeback.Run) -> None: ...

    run = bench.tb.submit(deploy)
    bench.work(deploy)

    with pytest.raises(takeback.Refused, match="has ended"):
        bench.tb.signal(run, "go")


def test_in_an_ordinary_run_they_work_as_well(bench: Bench) -> None:
    with bench.tb.run("ordinary") as run:
        run.sleep(seconds=0.01)
        assert run.remember("x", lambda: {"n": 1.5}) == {"n": 1.5}
        threading.Timer(0.05, lambda: bench.tb.signal(run.id, "go", 3)).start()
        assert run.wait("go") == 3
        with pytest.raises(TimeoutError):
            run.wait("go", timeout=0.01)


def test_what_makes_no_sense_is_refused(bench: Bench) -> None:
    with bench.tb.run("ordinary") as run:
        for odd in (
            run.sleep,
            lambda: run.sleep(seconds=-1),
            lambda: run.sleep(days=float("inf")),
            lambda: run.wait(""),
            lambda: run.wait("settled:x"),
            lambda: run.wait("go", timeout=-1),
            lambda: run.remember("", int),
            lambda: run.remember("x", object),
            lambda: run.remember("x", lambda: {1: 2}),
            lambda: run.remember("x", lambda: float("nan")),
            lambda: bench.tb.signal(run.id, ""),
            lambda: bench.tb.signal(run.id, "go", object()),
        ):
            with pytest.raises(takeback.Misuse):
                odd()


@takeback.action(undo=takeback.IRREVERSIBLE("it is out"), name="waiting.announce")
def announce(text: str) -> str:
    return text


def test_what_a_workflow_asked_for_is_given_up_when_it_is_taken_back(bench: Bench) -> None:
    @flow
    def release(run: takeback.Run) -> None:
        run.write(bench.world / "a", "1")
        run.call(announce, "v1", key="v1")

    run = bench.tb.submit(release)
    bench.work(release)
    (waiting,) = bench.tb.pending()

    bench.tb.undo(run)

    assert bench.look(run).state.value == "undone"
    assert (bench.tb.pending(), bench.tb.effect(waiting.id).state.value) == ((), "aborted")
    with pytest.raises(takeback.Refused, match="does not wait for an approval"):
        bench.tb.approve(waiting, by="bea", answer=words(bench.tb, waiting))


@pytest.mark.parametrize("end", ["returns", "fails"])
def test_a_workflow_that_swallows_that_it_has_to_wait_waits_all_the_same(bench: Bench, end: str) -> None:
    """So nothing that it asked for is left when it has ended."""

    @flow
    def release(run: takeback.Run) -> str:
        try:
            return run.call(announce, "v1", key="v1")
        except takeback.AwaitingApproval:
            if end == "fails":
                raise ValueError("not now") from None
            return "not now"

    run = bench.tb.submit(release)
    bench.work(release)
    for waiting in bench.tb.pending():
        assert bench.look(run).state.value == "suspended"
        bench.tb.approve(waiting, by="bea", answer=words(bench.tb, waiting))
    bench.work(release)

    assert bench.look(run).state.value in ("accepted", "undone")
    assert not [one for one in bench.tb.effects() if one.state.value == "proposed"]


def test_finding_13_a_run_goes_on_when_no_one_approved_in_time(bench: Bench) -> None:
    @flow
    def release(run: takeback.Run) -> None:
        run.write(bench.world / "a", "1")
        run.call(announce, "v1", key="v1")

    run = bench.tb.submit(release)
    bench.work(release)
    assert len(bench.tb.pending()) == 1
    bench.ahead = 23 * 3600
    bench.work(release)
    assert bench.look(run).state.value == "suspended"

    bench.ahead = DAY + 60
    bench.work(release)

    assert bench.look(run).state.value == "undone" and bench.text("a") is None
    with pytest.raises(takeback.ApprovalExpired, match="not approved in time"):
        bench.tb.result(run, 0)


def test_finding_13_a_late_approval_is_refused_and_nothing_is_called(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    @flow
    def release(run: takeback.Run) -> None:
        calls.append(run.call(announce, "v1", key="v1"))

    bench.tb.submit(release)
    bench.work(release)
    (waiting,) = bench.tb.pending()
    late = waiting.at + (DAY + 60) * 1_000_000
    monkeypatch.setattr("takeback.api.decisions.now", lambda: late)

    assert bench.tb.pending() == ()
    with pytest.raises(takeback.ApprovalExpired, match="silence means no"):
        bench.tb.approve(waiting, by="bea", answer=words(bench.tb, waiting))
    bench.work(release)
    assert calls == []
