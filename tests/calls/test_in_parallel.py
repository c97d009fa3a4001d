"""Calls of one run in several threads: they run at the same time, none is lost, none is made twice."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import takeback
from examples.office import ROOT
from takeback.model.effect import State
from takeback.runs.lease import OwnLock
from tests.calls.counter import ticking, ticks

MANY = 4
ENOUGH = 60  # seconds; only a failing test waits that long
GATE = threading.Barrier(MANY, timeout=ENOUGH)
HELD = threading.Event()
BEGUN = threading.Event()
CALLED: list[tuple[int, str]] = []


@takeback.action(name="tests.meet", timeout=2 * ENOUGH)
def meet(number: int, *, key: str) -> Any:
    """Comes back when as many are under way as the gate is for."""
    GATE.wait()
    CALLED.append((number, key))
    return {"number": number}


@meet.undo
def unmeet(receipt: Any, number: int) -> None:
    CALLED[:] = [one for one in CALLED if one[0] != number]


@takeback.action(name="tests.hold", timeout=2 * ENOUGH, undo=lambda receipt: None)
def hold(number: int, *, key: str) -> Any:
    BEGUN.set()
    assert HELD.wait(ENOUGH)
    CALLED.append((number, key))
    return key


@takeback.action(name="tests.odd", undo=lambda receipt: None)
def odd(number: int) -> Any:
    CALLED.append((number, ""))
    if number % 2:
        raise takeback.DidNotHappen("It is odd.")
    return number


@takeback.workflow(name="tests.meeting")
def meeting(run: takeback.Run) -> Any:
    met = run.call_all(meet, [{"number": number} for number in range(MANY)], at_once=MANY)
    return [met, run.wait("go")]


@takeback.workflow(name="tests.astray")
def astray(run: takeback.Run) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run.call, odd, 2).result()


@takeback.workflow(name="tests.failing", on_failure="leave")
def failing(run: takeback.Run) -> Any:
    try:
        run.call_all(odd, [{"number": number} for number in (0, 1, 2, 4, 6, 8)], at_once=2)
    except takeback.DidNotHappen as error:
        told = str(error)
    else:
        told = ""
    run.wait("go")
    return told


@pytest.fixture(autouse=True)
def afresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger"))
    CALLED.clear()
    HELD.clear()
    BEGUN.clear()
    GATE.reset()


@pytest.fixture
def tb(store: Path) -> Any:
    with takeback.open(store) as tb:
        yield tb


def in_threads(work: Callable[[int], Any], many: int = MANY) -> list[Any]:
    with ThreadPoolExecutor(many) as pool:
        return list(pool.map(work, range(many)))


def numbers() -> list[int]:
    return sorted(number for number, _ in CALLED)


def test_finding_r6_threads_of_one_run_call_at_the_same_time(tb: takeback.Takeback) -> None:
    with tb.run("meets") as run:
        met = in_threads(lambda number: run.call(meet, number))
    assert met == [{"number": number} for number in range(MANY)]
    effects = tb.effects()
    assert [one.state for one in effects] == [State.DONE] * MANY and len({one.key for one in effects}) == MANY
    tb.undo(tb.runs()[0])
    assert not CALLED


def test_finding_r6_call_all_calls_several_at_once(tb: takeback.Takeback) -> None:
    with tb.run("meets") as run:
        assert run.call_all(meet, [{"number": n} for n in range(2 * MANY)], at_once=MANY) == [
            {"number": n} for n in range(2 * MANY)
        ]
    assert numbers() == list(range(2 * MANY)) and tb.verify().sound


def test_finding_r6_the_same_asked_for_by_several_threads_is_called_by_each(tb: takeback.Takeback) -> None:
    with tb.run("meets") as run:
        in_threads(lambda _: run.call(meet, 7))
    assert numbers() == [7] * MANY and len({key for _, key in CALLED}) == MANY


def test_finding_r6_of_several_threads_with_one_key_one_calls_and_all_have_its_answer(
    tb: takeback.Takeback,
) -> None:
    HELD.set()
    with tb.run("holds") as run:
        assert in_threads(lambda _: run.call(hold, 1, key="mine")) == ["mine"] * MANY
    assert CALLED == [(1, "mine")] and len(tb.effects()) == 1


def test_finding_r6_no_lock_is_held_while_a_function_runs(tb: takeback.Takeback, tmp_path: Path) -> None:
    with tb.run("holds") as run, ThreadPoolExecutor(1) as pool:
        called = pool.submit(run.call, hold, 1)
        assert BEGUN.wait(ENOUGH)
        run.write(tmp_path / "file", "written")
        run.checkpoint("here")
        assert not called.done() and (tmp_path / "file").read_text() == "written"
        HELD.set()
    assert [one.state for one in tb.effects()] == [State.DONE] * 2


@pytest.mark.parametrize("fails", [False, True])
def test_finding_r6_a_run_waits_for_its_calls_before_it_ends(
    tb: takeback.Takeback, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    waits = OwnLock.wait_for_calls

    def waiting(self: OwnLock) -> None:
        assert self.others or HELD.is_set()
        HELD.set()
        waits(self)
        assert not self.others  # its end needs the lock, which is held here

    with ThreadPoolExecutor(1) as pool:
        try:
            with tb.run("holds") as run:
                called = pool.submit(run.call, hold, 1)
                assert BEGUN.wait(ENOUGH)
                monkeypatch.setattr(OwnLock, "wait_for_calls", waiting)
                if fails:
                    raise RuntimeError
        except RuntimeError:
            assert fails
        assert called.result() and len(CALLED) == 1
        with pytest.raises(takeback.Misuse, match="has ended"):
            run.call(hold, 2)
    (effect, *_) = tb.effects()
    assert effect.state is (State.UNDONE if fails else State.DONE)


def test_finding_r6_who_asks_again_after_others_called_has_the_same_key(tb: takeback.Takeback) -> None:
    """Before, a call in between changed the key, and the other side could not tell the second try from a new one."""
    tried: list[str] = []

    @takeback.action(name="tests.declines", undo=lambda receipt: None)
    def declines(*, key: str) -> None:
        tried.append(key)
        if len(tried) == 1:
            raise takeback.DidNotHappen("Not now.")

    HELD.set()
    with tb.run("tries") as run:
        with pytest.raises(takeback.DidNotHappen):
            run.call(declines)
        run.call(hold, 1)
        run.call(declines)
        run.call(declines)
    assert tried[0] == tried[1] != tried[2]


def test_finding_r6_two_lists_that_need_each_others_keys_do_not_wait_for_ever(tb: takeback.Takeback) -> None:
    HELD.set()
    orders = (("a", "b"), ("b", "a"), ("a", "b"))
    with tb.run("crossing") as run:
        lists = [[{"number": 1, "key": key} for key in order] for order in orders]
        answers = in_threads(lambda turn: run.call_all(hold, lists[turn]), len(orders))
    assert answers == [list(order) for order in orders]
    assert sorted(key for _, key in CALLED) == ["a", "b"] and tb.verify().sound


def test_finding_r6_after_the_first_that_fails_none_is_begun(tb: takeback.Takeback) -> None:
    with tb.run("odd") as run, pytest.raises(takeback.DidNotHappen, match="odd"):
        run.call_all(odd, [{"number": number} for number in (0, 1, *range(2, 800, 2))], at_once=2)
    assert len(CALLED) < 200
    made = [one for one in tb.effects() if one.state is State.DONE]
    assert len(made) == len(CALLED) - 1


@pytest.mark.parametrize("at_once", [0, -1, "2", True])
def test_finding_r6_an_odd_number_of_calls_is_refused(tb: takeback.Takeback, at_once: Any) -> None:
    with tb.run("odd") as run, pytest.raises(takeback.Misuse, match="make no sense"):
        run.call_all(odd, [{"number": 2}], at_once=at_once)
    assert not CALLED


# In a workflow.


def test_finding_r6_a_workflow_calls_several_at_once_and_has_the_same_answers_again(
    tb: takeback.Takeback,
) -> None:
    info = tb.submit(meeting)
    tb.work(meeting, until_idle=True)
    assert numbers() == list(range(MANY)) and tb.find_run(info.id).awaits == "go"
    steps = [one.step for one in tb.effects()]
    assert sorted(steps) == list(range(1, MANY + 1))
    tb.signal(info, "go", "on")
    tb.work(meeting, until_idle=True)
    assert tb.result(info, 0) == [[{"number": number} for number in range(MANY)], "on"]
    assert numbers() == list(range(MANY))


def test_finding_r6_a_failure_among_several_is_the_same_when_the_workflow_is_resumed(
    tb: takeback.Takeback,
) -> None:
    info = tb.submit(failing)
    tb.work(failing, until_idle=True)
    called = sorted(CALLED)
    tb.signal(info, "go")
    tb.work(failing, until_idle=True)
    assert "It is odd" in tb.result(info, 0) and sorted(CALLED) == called


def test_finding_r6_a_step_in_another_thread_of_a_workflow_is_refused(tb: takeback.Takeback) -> None:
    info = tb.submit(astray)
    tb.work(astray, until_idle=True)
    with pytest.raises(takeback.TakebackError, match="in another thread than its workflow's"):
        tb.result(info, 0)
    assert not CALLED


# Killed in the middle.

WORKS = """
import sys, takeback
from tests.calls.counter import ticking
with takeback.open(sys.argv[1]) as tb:
    tb.work(ticking, until_idle=True)
"""
THREADS = """
import sys, takeback
from concurrent.futures import ThreadPoolExecutor
from tests.calls.counter import tick
with takeback.open(sys.argv[1]) as tb:
    run = tb.session("ticks")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: run.call(tick, number, key=KEYS(number)), range(4)))
    run.leave()
"""


def killed(program: str, store: Path, at: int) -> bool:
    paths = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep)
    end = subprocess.run(
        [sys.executable, "-c", program, str(store)], check=False, capture_output=True, timeout=240,
        env=os.environ | {"KILLED_AT": str(at), "PYTHONPATH": paths},
    )  # fmt: skip
    assert end.returncode in (0, -9), end.stderr
    return end.returncode == -9


@pytest.mark.sampled(8)
@pytest.mark.parametrize("at", range(1, 2 * (MANY + 1)))
def test_finding_r6_a_workflow_killed_among_several_calls_makes_each_once(store: Path, at: int) -> None:
    with takeback.open(store) as tb:
        info = tb.submit(ticking, MANY)
    assert killed(WORKS, store, at)
    with takeback.open(store) as tb:
        tb.work(ticking, until_idle=True)
        assert tb.result(info, 0) == [{"number": number} for number in range(MANY + 1)]
        assert tb.verify().sound and {one.state for one in tb.effects()} <= {State.DONE, State.ABORTED}
    assert sorted(int(line.split()[0]) for line in ticks()) == list(range(MANY + 1))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("at", range(1, 2 * MANY + 1))
def test_finding_r6_threads_killed_among_their_calls_make_each_once(store: Path, at: int) -> None:
    program = THREADS.replace("KEYS(number)", 'f"key-{number}"')
    assert killed(program, store, at)
    assert not killed(program, store, 0)
    assert sorted(ticks()) == [f"{number} key-{number}" for number in range(MANY)]
    with takeback.open(store) as tb:
        assert tb.verify().sound and sum(one.state is State.DONE for one in tb.effects()) == MANY


@pytest.mark.parametrize("at", [2, 5])
def test_finding_r6_what_threads_called_without_keys_is_known_after_a_kill(store: Path, at: int) -> None:
    """Asked for again they are new calls; each that happened is recorded as done, none is in doubt."""
    assert killed(THREADS.replace("KEYS(number)", '""'), store, at)
    with takeback.open(store) as tb:
        tb.recover()
        done = {f"{number} {one.key}" for one in tb.effects(state="done") for number in range(MANY)}
        assert set(ticks()) <= done and not tb.effects(state=("intended", "stuck"))
