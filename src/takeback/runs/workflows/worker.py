"""A worker: claims runs of its workflows that are due, calls each function, and ends or suspends it."""

import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NamedTuple

from takeback.engine.close_run import close_rolled_back
from takeback.engine.parts import Parts
from takeback.engine.recover import open_in, settle_open
from takeback.engine.settled import named
from takeback.engine.stop import in_words, stop_of
from takeback.engine.stuck import Taker
from takeback.engine.undo import Undoer, not_accepted, roll_back
from takeback.errors import (
    AwaitingApproval,
    InDoubt,
    LeaseLost,
    Misuse,
    Refused,
    Spent,
    Stopped,
    Stuck,
    TakebackError,
    Unavailable,
)
from takeback.model.boot_clock import since_boot
from takeback.model.effect import State
from takeback.model.functions import as_json
from takeback.model.ids import short
from takeback.model.record import Draft, Kind
from takeback.model.run import DECIDED, NEVER, SETTLED, Lease, RunInfo, RunState
from takeback.runs.core import RunCore
from takeback.runs.end import end_workflow, let_go, suspend_workflow
from takeback.runs.run import Run
from takeback.runs.workflows.function import Workflow, call_with
from takeback.runs.workflows.replay import (
    FAILING,
    History,
    Leaving,
    Replay,
    error_in_words,
    error_to_json,
    history_of,
)
from takeback.runs.workflows.rewind import go_back, point_of
from takeback.storage.owners import myself
from takeback.storage.protocols import Query

_LONGEST = 300  # seconds between two tries at most
_MOMENT = 1.0
_MOST_WORDS = 2_000  # of an error, in the journal


class Shift(NamedTuple):
    parts: Parts
    now: Callable[[], int]
    stopping: Callable[[], bool]  # whether it should stop at its next step
    tell: Callable[[str], None]
    taker: Callable[[], Taker]  # who settles what is stuck on the way back


def work_on(shift: Shift, core: RunCore, info: RunInfo, workflow: Workflow) -> None:
    """Until it has ended or is suspended. A run that was lost to another worker is dropped at once."""
    try:
        _carry_on(shift, core, info, workflow)
    except LeaseLost as error:
        shift.tell(f"Run {short(core.id)} was taken over: {error}")
    # Whatever it is, the next worker must not meet it again at once, and a person must hear of it.
    except Exception as error:  # noqa: BLE001
        words = str(error) if isinstance(error, TakebackError) else f"{type(error).__name__}: {error}"
        shift.tell(f"Run {short(core.id)} cannot continue: {words}")
        _put_aside(shift, core, error, words)
    finally:
        let_go(core)


def _put_aside(shift: Shift, core: RunCore, error: Exception, words: str) -> None:
    due = shift.now() + _LONGEST * 1_000_000 if isinstance(error, Unavailable) else NEVER
    try:
        suspend_workflow(core, Leaving(f"cannot continue: {words[:_MOST_WORDS]}", due))
    except TakebackError:
        # The store itself is in trouble. It is not asked again at once, neither by us nor, while we have the lease, by
        # others; what is recorded stays true.
        time.sleep(_MOMENT)


def _carry_on(shift: Shift, core: RunCore, info: RunInfo, workflow: Workflow) -> None:
    made = info.effects > 0  # the records of another worker; no other process adds to it now
    history = history_of(shift.parts.journal, core.id, made)
    try:
        if info.state is RunState.SUSPENDED:
            shift.parts.journal.append(core.lease, [Draft(Kind.OPEN, core.id, "", {"resumed": True})])
        settled = made and _settle(shift, core, history)
        if history.back_to:
            _go_back(shift, core, history.back_to)
        if history.failing is not None:
            _fail(shift, core, workflow, history.failing)
            return
        if settled or history.back_to:
            # Again: what was in doubt is known now.
            history = history_of(shift.parts.journal, core.id)
        _call(shift, core, workflow, history)
    except Leaving as leaving:
        suspend_workflow(core, leaving)
    except LeaseLost:
        raise
    except (InDoubt, Unavailable) as error:
        # What is in doubt is looked at before its function is called again; with nothing to look at, a person has to.
        lost = isinstance(error, InDoubt) and not error.effect
        leaving = Leaving(f"{error} {error.hint}", NEVER) if lost else _later(shift, history, error)
        suspend_workflow(core, leaving)


def _settle(shift: Shift, core: RunCore, history: History) -> bool:
    """Settle effects that the previous worker left open; whether there were any. Effects that need a person are waited
    for."""
    if functions := named(iter(open_in(shift.parts, core.id))):
        shift.tell(
            f"Continuing run {short(core.id)} ({core.name}) calls functions of {', '.join(functions)}."
        )
    found = settle_open(shift.parts, core.lease)
    for one in found:
        if one.outcome == "left":
            raise _later(shift, history, Unavailable(f"{one.summary} {one.detail}"))
    _refuse_stuck(shift, core)
    return bool(found)


def _go_back(shift: Shift, core: RunCore, checkpoint: str) -> None:
    """Finish a return to a checkpoint whose process was killed before all later effects were undone."""
    try:
        point = point_of(shift.parts, core.id, checkpoint)
        go_back(shift.parts, point, Undoer(core.lease, core.agent, shift.taker()))
    except (Refused, Stuck) as error:
        _refuse_stuck(shift, core)
        raise Leaving(f"it cannot go back to its checkpoint: {error}", NEVER) from error


def _refuse_stuck(shift: Shift, core: RunCore) -> None:
    stuck = next(shift.parts.journal.effects(Query(run=core.id, states=(State.STUCK,))), None)
    if stuck:
        why = f"effect {short(stuck.id)} is stuck: {stuck.note}"
        raise Leaving(why, NEVER, f"{SETTLED}{stuck.id}")


def _later(shift: Shift, history: History, error: TakebackError) -> Leaving:
    again = history.again + 1
    wait = min(2 ** min(again - 1, 20), _LONGEST)
    return Leaving(f"could not continue: {error}", shift.now() + wait * 1_000_000, again=again)


def _call(shift: Shift, core: RunCore, workflow: Workflow, history: History) -> None:
    def stopped() -> str:
        stop = stop_of(core.parts, core.agent, core.id)
        return in_words(stop) if stop else ""

    replay = Replay(
        core.id, history, shift.stopping, lambda: core.heartbeat.progress(workflow.step_seconds), stopped
    )
    core.replay = replay
    try:
        call = call_with(workflow, Run(core), history.opened["arguments"])
    except Misuse as error:
        raise Leaving(f"{error} {error.hint}", NEVER) from None
    try:
        core.heartbeat.progress(workflow.step_seconds)
        result = call()
        replay.refuse_gone()
        replay.at_the_end()
        told = {"result": as_json(result, f"What {workflow.name} returns")}
    except Leaving as leaving:
        raise replay.leaving or leaving from None
    # Somebody's code: however it ends, its run must not be left hanging.
    except BaseException as error:  # noqa: BLE001
        _ended_by(shift, core, workflow, replay, error)
        return
    end_workflow(core, told)


def _ended_by(shift: Shift, core: RunCore, workflow: Workflow, replay: Replay, error: BaseException) -> None:
    """By an error: of the function itself, or of something that is no failure of its."""
    if replay.leaving:  # whatever it made of that
        raise replay.leaving
    if replay.broken is None:
        try:
            replay.at_the_end(f"the function has failed: {type(error).__name__}: {error}")
        except TakebackError:
            error = replay.broken or error
    error = replay.broken or error
    if isinstance(error, AwaitingApproval):
        # When its time is over, a worker continues the run, and the function learns that silence means no.
        raise Leaving(f"{error} {error.hint}", error.until or NEVER, f"{DECIDED}{error.effect}")
    if isinstance(error, (Unavailable, InDoubt)):
        raise error
    if isinstance(error, Stopped):
        raise Leaving(str(error).rstrip("."))  # due at once, and not claimed before the stop is lifted
    if isinstance(error, (Spent, Stuck)):
        _refuse_stuck(shift, core)
        raise Leaving(f"{error} {error.hint}", NEVER)
    failing = error_to_json(error)
    failing["message"] = failing["message"][:_MOST_WORDS]
    shift.parts.journal.append(core.lease, [Draft(Kind.REMEMBER, core.id, "", {FAILING: failing})])
    _fail(shift, core, workflow, failing)


def _fail(shift: Shift, core: RunCore, workflow: Workflow, failing: dict[str, Any]) -> None:
    """Record that the function has failed; the next worker continues with this."""
    told = {
        "error": error_in_words(failing),
        "error_type": failing["type"],
        "hint": failing.get("hint", ""),
    }
    shift.tell(f"Run {short(core.id)} ({core.name}) failed: {told['error']}")
    if workflow.on_failure == "leave":
        end_workflow(core, told)
        return
    core.close_databases()
    result = roll_back(shift.parts, core.lease, not_accepted(shift.parts, core.id), core.agent)
    if close_rolled_back(shift.parts, core.lease, result, RunState.UNDONE.value, told):
        return
    _refuse_stuck(shift, core)
    raise Unavailable("Not all of its effects could be undone yet.")


POLL = 0.25  # seconds: a dead worker's run is taken over within two
_TROUBLED = 5.0  # at most, between two tries to reach the store
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Workplace(NamedTuple):
    parts: Parts
    now: Callable[[], int]
    lasts: int  # microseconds that a lease is for
    begin: Callable[[RunInfo, Lease, int], RunCore]  # with what `since_boot` said before the lease was taken
    wait: Callable[[float], None]  # until there may be work, or so many seconds are over


class Worker:
    def __init__(
        self,
        place: Workplace,
        workflows: Mapping[str, Workflow],
        concurrency: int,
        tell: Callable[[str], None],
    ) -> None:
        self._place = place
        self._workflows = dict(workflows)
        self._concurrency = concurrency
        self._tell = tell
        # Threads that are through, and None to wake us; its `put` may be called by a signal's function.
        self._wakes: queue.SimpleQueue[threading.Thread | None] = queue.SimpleQueue()
        self._working: set[threading.Thread] = set()
        self._stopping = False
        self.worked = 0  # how many times it continued a run

    def stop(self) -> None:
        """No new runs; those at hand are suspended at their next step."""
        self._stopping = True
        self._wakes.put(None)

    def work(self, *, until_idle: bool = False) -> None:
        """Until it is stopped; with `until_idle` until nothing is due and nothing is at work here."""
        trouble = 0.0
        while not self._stopping:
            try:
                claimed = self._claim_all()
                trouble = 0.0
            except TakebackError as error:
                # Not ours to solve: the operator of the store does, and then we continue.
                trouble = min(trouble * 2 or POLL, _TROUBLED)
                self._tell(f"The store cannot be asked for work: {error}")
                claimed = False
            if until_idle and not claimed and not self._working and not trouble:
                return
            self._pause(trouble or POLL)
        if self._working:
            count = len(self._working)
            waits = "a run is" if count == 1 else f"{count} runs are"
            self._tell(f"Stopping when {waits} at the next step; a second signal does not wait for that.")
        while self._working:
            self._pause(POLL)

    def _pause(self, seconds: float) -> None:
        """Until there may be something to do; a store that cannot be asked is no reason to end."""
        if self._stopping or self._working or not self._waited(seconds):
            with suppress(queue.Empty):
                self._through(self._wakes.get(timeout=seconds))
        with suppress(queue.Empty):
            while True:
                self._through(self._wakes.get_nowait())

    def _waited(self, seconds: float) -> bool:
        try:
            self._place.wait(seconds)
        except TakebackError:
            return False
        return True

    def _through(self, thread: threading.Thread | None) -> None:
        if thread:
            thread.join()
            self._working.discard(thread)

    def _claim_all(self) -> bool:
        place, claimed = self._place, False
        while len(self._working) < self._concurrency and not self._stopping:
            begun = since_boot()
            lease = place.parts.leases.claim(
                myself(), place.now(), place.lasts, tuple(self._workflows), place.parts.stops()
            )
            if lease is None:
                break
            claimed = True
            self.worked += 1
            thread = threading.Thread(
                target=self._work_on, args=(lease, begun), name=f"takeback-run-{lease.run}"
            )
            thread.daemon = True  # a second signal does not wait for it
            self._working.add(thread)
            thread.start()
        return claimed

    def _work_on(self, lease: Lease, begun: int) -> None:
        place = self._place
        try:
            info = next(place.parts.journal.runs((lease.run,)))
            core = place.begin(info, lease, begun)
            shift = Shift(
                place.parts, place.now, lambda: self._stopping, self._tell,
                lambda: Taker(myself(), place.now(), place.lasts),
            )  # fmt: skip
            work_on(shift, core, info, self._workflows[info.workflow])
        except TakebackError as error:
            self._tell(f"Run {lease.run[:8]} is left for later: {error}")
        finally:
            self._wakes.put(threading.current_thread())


@contextmanager
def stopped_by_signals(worker: Worker, at_once: Callable[[int], None]) -> Iterator[None]:
    """The first one lets the runs at hand come to their next step; the second one ends the process."""
    seen: list[int] = []

    def heard(number: int, frame: FrameType | None) -> None:
        if seen:
            at_once(number)
        seen.append(number)
        worker.stop()

    before = {number: signal.signal(number, heard) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, function in before.items():
            signal.signal(number, function)
