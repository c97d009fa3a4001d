"""One claimed run of a workflow: settle what is in doubt, call its function, and end or suspend it."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from takeback.engine.ending import close_rolled_back
from takeback.engine.functions import named
from takeback.engine.parts import Parts
from takeback.engine.recover import open_in, settle_open
from takeback.engine.stuck import Taker
from takeback.engine.undo import not_accepted, roll_back
from takeback.errors import (
    AwaitingApproval,
    LeaseLost,
    Misuse,
    Refused,
    Spent,
    Stuck,
    TakebackError,
    Unavailable,
)
from takeback.model.attention import DECIDED, SETTLED
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.plain import as_json
from takeback.model.record import Draft, Kind
from takeback.model.run import NEVER, RunInfo, RunState
from takeback.runs import remembered
from takeback.runs.going_back import go_back, plan_back, point_of
from takeback.runs.replay import FAILING, History, Leaving, Replay, history_of
from takeback.runs.run import Run
from takeback.runs.workflow import Workflow, call_with
from takeback.storage.protocols import Query

_LONGEST = 300  # seconds between two tries at most
_MOMENT = 1.0
_MOST_WORDS = 2_000  # of an error, in the journal


class Shift(NamedTuple):
    """What whoever works on a run needs besides the run."""

    parts: Parts
    now: Callable[[], int]
    stopping: Callable[[], bool]  # whether it should stop at its next step
    tell: Callable[[str], None]
    taker: Callable[[], Taker]  # who settles what is stuck on the way back


def work_on(shift: Shift, run: Run, info: RunInfo, workflow: Workflow) -> None:
    """Until it has ended or is suspended. A run that was lost to another worker is dropped at once."""
    try:
        _carry_on(shift, run, info, workflow)
    except LeaseLost as error:
        shift.tell(f"Run {short(run.id)} was taken over: {error}")
    # Whatever it is, the next worker must not meet it again at once, and a person must hear of it.
    except Exception as error:  # noqa: BLE001
        words = str(error) if isinstance(error, TakebackError) else f"{type(error).__name__}: {error}"
        shift.tell(f"Run {short(run.id)} cannot go on: {words}")
        _put_aside(shift, run, error, words)
    finally:
        run.let_go()


def _put_aside(shift: Shift, run: Run, error: Exception, words: str) -> None:
    due = shift.now() + _LONGEST * 1_000_000 if isinstance(error, Unavailable) else NEVER
    try:
        run.suspend_workflow(Leaving(f"cannot go on: {words[:_MOST_WORDS]}", due))
    except TakebackError:
        # The store itself is in trouble. It is not asked again at once, neither by us nor, while we have the lease, by
        # others; what is recorded stays true.
        time.sleep(_MOMENT)


def _carry_on(shift: Shift, run: Run, info: RunInfo, workflow: Workflow) -> None:
    made = info.effects > 0  # what another worker has made of it; nobody else adds to it now
    history = history_of(shift.parts.journal, run.id, made)
    try:
        if info.state is RunState.SUSPENDED:
            shift.parts.journal.append(run.lease, [Draft(Kind.OPEN, run.id, "", {"resumed": True})])
        settled = made and _settle(shift, run, history)
        if history.back_to:
            _go_back(shift, run, history.back_to)
        if history.failing is not None:
            _fail(shift, run, workflow, history.failing)
            return
        if settled or history.back_to:
            # Again: what was in doubt is known now.
            history = history_of(shift.parts.journal, run.id)
        _call(shift, run, workflow, history)
    except Leaving as leaving:
        run.suspend_workflow(leaving)
    except LeaseLost:
        raise
    except Unavailable as error:
        run.suspend_workflow(_later(shift, history, error))


def _settle(shift: Shift, run: Run, history: History) -> bool:
    """What the worker before left in flight; whether there was anything. What a person has to say is waited for."""
    if functions := named(iter(open_in(shift.parts, run.id))):
        shift.tell(
            f"Going on with run {short(run.id)} ({run.name}) calls functions of {', '.join(functions)}."
        )
    found = settle_open(shift.parts, run.lease)
    for one in found:
        if one.outcome == "left":
            raise _later(shift, history, Unavailable(f"{one.summary} {one.detail}"))
    _refuse_stuck(shift, run)
    return bool(found)


def _go_back(shift: Shift, run: Run, checkpoint: str) -> None:
    """Whoever resumed it from there was killed before all that came after was taken back."""
    try:
        plan = plan_back(shift.parts, point_of(shift.parts, run.id, checkpoint))
        if plan:
            go_back(shift.parts, run.lease, plan, run.agent, shift.taker())
    except (Refused, Stuck) as error:
        _refuse_stuck(shift, run)
        raise Leaving(f"it cannot go back to its checkpoint: {error}", NEVER) from error


def _refuse_stuck(shift: Shift, run: Run) -> None:
    stuck = next(shift.parts.journal.effects(Query(run=run.id, states=(State.STUCK,))), None)
    if stuck:
        raise _parked(stuck)


def _parked(effect: Effect) -> Leaving:
    why = f"effect {short(effect.id)} is stuck: {effect.note}"
    return Leaving(why, NEVER, f"{SETTLED}{effect.id}")


def _later(shift: Shift, history: History, error: TakebackError) -> Leaving:
    again = history.again + 1
    wait = min(2 ** min(again - 1, 20), _LONGEST)
    return Leaving(f"could not go on: {error}", shift.now() + wait * 1_000_000, again=again)


def _call(shift: Shift, run: Run, workflow: Workflow, history: History) -> None:
    replay = Replay(run.id, history, shift.stopping, lambda: run.progress(workflow.step_seconds))
    run.play(replay)
    try:
        call = call_with(workflow, run, history.opened["arguments"])
    except Misuse as error:
        raise Leaving(f"{error} {error.hint}", NEVER) from None
    try:
        run.progress(workflow.step_seconds)
        result = call()
        replay.refuse_gone()
        replay.at_the_end()
        told = {"result": as_json(result, f"What {workflow.name} returns")}
    except Leaving as leaving:
        raise replay.leaving or leaving from None
    # Somebody's code: however it ends, its run must not be left hanging.
    except BaseException as error:  # noqa: BLE001
        _stopped(shift, run, workflow, replay, error)
        return
    run.end_workflow(told)


def _stopped(shift: Shift, run: Run, workflow: Workflow, replay: Replay, error: BaseException) -> None:
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
        # When its time is over, a worker goes on with the run, and the function learns that silence means no.
        raise Leaving(f"{error} {error.hint}", error.until or NEVER, f"{DECIDED}{error.effect}")
    if isinstance(error, Unavailable):
        raise error
    if isinstance(error, (Spent, Stuck)):
        _refuse_stuck(shift, run)
        raise Leaving(f"{error} {error.hint}", NEVER)
    failing = remembered.to_json(error)
    failing["message"] = failing["message"][:_MOST_WORDS]
    shift.parts.journal.append(run.lease, [Draft(Kind.REMEMBER, run.id, "", {FAILING: failing})])
    _fail(shift, run, workflow, failing)


def _fail(shift: Shift, run: Run, workflow: Workflow, failing: dict[str, Any]) -> None:
    """It is recorded that the function has failed; whoever goes on with the run goes on with this."""
    told = {
        "error": remembered.in_words(failing),
        "error_type": failing["type"],
        "hint": failing.get("hint", ""),
    }
    shift.tell(f"Run {short(run.id)} ({run.name}) failed: {told['error']}")
    if workflow.on_failure == "leave":
        run.end_workflow(told)
        return
    run.close_databases()
    result = roll_back(shift.parts, run.lease, not_accepted(shift.parts, run.id), run.agent)
    if close_rolled_back(shift.parts, run.lease, result, RunState.UNDONE.value, told):
        return
    _refuse_stuck(shift, run)
    raise Unavailable("What it did could not all be taken back yet.")
