"""Durable workflows of an opened store: submit, signal, result, resume, work."""

import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from takeback.api.store import OpenStore, now
from takeback.api.upkeep import before_change
from takeback.errors import Failed, KeyReused, Misuse, Refused, Stuck, TakebackError, Unavailable
from takeback.model.effect import PERSON, Effect, State
from takeback.model.format_1 import with_fields
from takeback.model.functions import refuse_while_looking
from takeback.model.ids import new_id, short
from takeback.model.record import Draft, Kind, canonical
from takeback.model.run import NEVER, SETTLED, Lease, OnDeath, RunInfo, RunState, needs_attention
from takeback.runs.scope import opening
from takeback.runs.selection import name_of, refuse_odd_key, run_of
from takeback.storage.owners import myself
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.model.plan import UndoResult
    from takeback.model.run import Checkpoint
    from takeback.runs.run import Run
    from takeback.runs.workflows.function import Workflow

_ENDED = (RunState.ACCEPTED, RunState.UNDONE, RunState.PARTLY)
_BEING_TAKEN_BACK = "is being taken back"
_SOONEST, _LATEST = 0.01, 0.5  # seconds between two looks for an end


def submit(
    opened: OpenStore,
    workflow: "Workflow",
    *args: Any,
    key: str = "",
    agent: str = "",
    name: str = "",
    **kwargs: Any,
) -> RunInfo:
    """Submit a run of that workflow; a worker (`takeback worker MODULE`) carries it out. The arguments are JSON. With a
    key it is submitted once: a second call returns the same run, and refuses other arguments."""
    from takeback.runs.workflows.function import arguments_of, refuse_unfindable

    found = refuse_unfindable(workflow)
    return submit_named(
        opened, found.name, arguments_of(found, args, kwargs), key=key, agent=agent, name=name
    )


def submit_named(
    opened: OpenStore, workflow: str, arguments: str, *, key: str = "", agent: str = "", name: str = ""
) -> RunInfo:
    for what, given in (("key", key), ("agent", agent), ("name", name)):
        if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(
                f"The {what} of a run is text, not {given!r}.", hint=f'For example {what}="deploy-42".'
            )
    refuse_odd_key(key)
    name = name or workflow.rpartition(":")[2]
    body = {
        "name": name,
        "agent": agent,
        "on_death": OnDeath.RESUME.value,
        "workflow": workflow,
        "arguments": arguments,
    } | ({"key": key} if key else {})
    belongs = opening(opened.store.journal)
    body |= belongs
    canonical(body)
    refuse_while_looking()
    opened.store.refuse_if_suspect()
    before_change(opened)
    if key and (there := _submitted(opened, key, workflow, arguments)):
        return there
    id = new_id()
    try:
        (record,) = opened.store.journal.append(None, [Draft(Kind.OPEN, id, "", body)])
    except KeyReused:
        # Another process was quicker.
        there = _submitted(opened, key, workflow, arguments)
        if there is None:
            raise
        return there
    return RunInfo(
        id, name, agent, RunState.OPEN, OnDeath.RESUME, record.at, key=key, workflow=workflow,
        project=belongs.get("project", ""),
    )  # fmt: skip


def _submitted(opened: OpenStore, key: str, workflow: str, arguments: str) -> RunInfo | None:
    info = next(opened.store.journal.runs(key=key), None)
    if info is None:
        return None
    first = next(opened.store.journal.records(run=info.id, kinds=(Kind.OPEN,)))
    if (info.workflow, first.body.get("arguments")) != (workflow, arguments):
        raise KeyReused(
            f"The key {key!r} was used for another run: {info.workflow} with {_cut(first.body['arguments'])}.",
            hint=f"Nothing was submitted. Give every piece of work its own key; that one is run {short(info.id)}.",
        )
    return info


def signal(opened: OpenStore, run: "str | RunInfo | Run", event: str, data: Any = None) -> None:
    """Send a run an event with data (JSON): `run.wait(event)` in it returns the data, now or later."""
    info = _named(opened, run)
    if not isinstance(event, str) or not event.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Misuse("A signal needs the name of an event.", hint='For example tb.signal(run, "approved").')
    from takeback.model.functions import as_json

    body = {"name": event, "data": as_json(data, "The data of a signal")}
    before_change(opened)
    opened.store.journal.append(None, [Draft(Kind.SIGNAL, info.id, "", body)])


def result(opened: OpenStore, run: "str | RunInfo | Run", timeout: float | None = None) -> Any:
    """The result of the workflow, or the error that ended it. Raises `Unavailable` if it has not ended within that many
    seconds, `Stuck` if it cannot continue without a person."""
    if timeout is not None and not (type(timeout) in (int, float) and 0 <= timeout < 1e9):
        raise Misuse(f"A time of {timeout!r} seconds makes no sense.", hint="For example timeout=60.")
    info = _named(opened, run)
    if info.on_death is not OnDeath.RESUME:
        raise Misuse(
            f"Run {short(info.id)} ({info.name}) is no workflow, so it returns nothing.",
            hint="`takeback show` shows its state.",
        )
    until = None if timeout is None else time.monotonic() + timeout
    pause = _SOONEST
    while True:
        info = next(opened.store.journal.runs((info.id,)))
        if info.state in _ENDED:
            return _ended(opened, info)
        if needs_attention(info):
            raise Stuck(
                f"Run {short(info.id)} cannot continue: {info.note}",
                hint=f"`takeback show {short(info.id)}` shows what is known.",
            )
        left = pause if until is None else until - time.monotonic()
        if left <= 0:
            raise Unavailable(
                f"Run {short(info.id)} has not ended yet ({info.note or info.state.value}).",
                hint="Wait longer, and see that a worker is there: `takeback worker MODULE`.",
            )
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, _LATEST)


def _ended(opened: OpenStore, info: RunInfo) -> Any:
    from takeback.runs.workflows.replay import error_from_json

    *_, closed = opened.store.journal.records(run=info.id, kinds=(Kind.CLOSE,))
    if "error" in closed.body:
        kind = closed.body.get("error_type", "Failed")
        hint: str = closed.body.get("hint", "")
        error = error_from_json({"type": kind, "message": closed.body["error"], "hint": hint})
        if not isinstance(error, TakebackError):
            error = Failed(closed.body["error"], hint=hint)
        raise error
    if "result" not in closed.body:
        raise Refused(f"Run {short(info.id)} was taken back ({info.state.value}).", hint="It has no result.")
    return json.loads(closed.body["result"])


def _named(opened: OpenStore, run: "str | RunInfo | Run") -> RunInfo:
    journal, name = opened.store.journal, name_of(run, "run")
    return run_of(journal, name) if isinstance(run, str) else next(journal.runs((name,)))


def resume(
    opened: OpenStore,
    run: "str | RunInfo",
    wait: float = 0,
    *,
    from_checkpoint: "Checkpoint | str | None" = None,
) -> "Run":
    """Continue a run that was suspended or left open. From a checkpoint: the effects after it are undone, and
    `run.state` is the agent's state of that time. A workflow does not continue here: a worker can take it from now on,
    and the returned run is already released."""
    from takeback.runs.checkpoints import state_of
    from takeback.runs.end import leave
    from takeback.runs.run import Run

    info = run_of(opened.store.journal, run) if isinstance(run, str) else run
    _refuse_over(info)
    before_change(opened)
    lease = opened.acquire(info.id, wait)
    try:
        # Asked again now that no other process can add to it: keys are made from the number of its effects.
        info = next(opened.store.journal.runs((info.id,)))
        _refuse_over(info)
        durable = info.on_death is OnDeath.RESUME
        if not durable or from_checkpoint is not None:
            _settle_calls(opened, info, lease)
        point = _gone_back(opened, info, lease, from_checkpoint) if from_checkpoint is not None else None
        if point is None and (durable or info.state is RunState.SUSPENDED):
            opened.store.journal.append(lease, [Draft(Kind.OPEN, info.id, "", {"resumed": True})])
        if durable:
            due = {"outcome": RunState.SUSPENDED.value, "why": "is due for a worker"}
            opened.store.journal.append(lease, [Draft(Kind.CLOSE, info.id, "", due)])
        core = opened.hold_run(next(opened.store.journal.runs((info.id,))), lease)
    except BaseException:
        opened.store.leases.release(lease)
        raise
    core.state = state_of(opened.store.blobs, point)
    if durable:
        leave(core)
    return Run(core)


def _settle_calls(opened: OpenStore, info: RunInfo, lease: Lease) -> None:
    """Of a run that continues or ends: find out whether calls that its process left unfinished have happened."""
    from takeback.engine.recover import open_in, settle_all
    from takeback.engine.settled import named
    from takeback.model.resource import function_in

    left = [one for one in open_in(opened.parts, info.id) if function_in(one.change.resource)]
    left = [one for one in left if one.waits_for != PERSON]
    if left:
        functions = ", ".join(named(iter(left)))
        opened.say(f"Continuing run {short(info.id)} ({info.name}) calls functions of {functions}.")
        settle_all(opened.parts, lease, left)


def _gone_back(
    opened: OpenStore, info: RunInfo, lease: Lease, checkpoint: "Checkpoint | str"
) -> "Checkpoint":
    """Take back everything after the checkpoint. This is recorded first, so that recovery finishes an interrupted
    return."""
    from takeback.engine.recover import settle_open
    from takeback.engine.stuck import Taker
    from takeback.engine.undo import Undoer
    from takeback.runs.workflows.replay import steps_before
    from takeback.runs.workflows.rewind import BACK, go_back, point_of

    point = point_of(opened.parts, info.id, checkpoint)
    settle_open(opened.parts, lease)
    told: dict[str, Any] = {"resumed": True, "from": point.id, BACK: point.seq}
    if info.on_death is OnDeath.RESUME:
        told["step"] = steps_before(opened.store.journal, info.id, point.seq)
    undoer = Undoer(lease, info.agent, Taker(myself(), now(), opened.lease_lasts))
    go_back(opened.parts, point, undoer, Draft(Kind.OPEN, info.id, "", told))
    return point


def wake_settled(opened: OpenStore) -> None:
    for info in opened.store.journal.runs(unfinished=True):
        if needs_attention(info) and info.awaits:
            effect = next(opened.store.journal.effects(Query(ids=(info.awaits.removeprefix(SETTLED),))), None)
            if effect and effect.state is not State.STUCK:
                signal(opened, info, info.awaits, effect.state.value)


def is_being_taken_back(opened: OpenStore, info: RunInfo) -> bool:
    closed = tuple(opened.store.journal.records(run=info.id, kinds=(Kind.CLOSE,)))
    suspended = info.state is RunState.SUSPENDED and bool(closed)
    return suspended and with_fields(Kind.CLOSE, closed[-1].body).get("taking_back", False)


def unfinished_workflow(opened: OpenStore, what: Any) -> RunInfo | None:
    """The run that is meant, if it is one of a workflow that has not ended."""
    if isinstance(what, Effect):
        return None
    name: Any = getattr(what, "id", what)
    if isinstance(name, (list, tuple)):
        several = cast("Sequence[Any]", name)
        return unfinished_workflow(opened, several[0]) if len(several) == 1 else None
    info = next(opened.store.journal.runs((name,)), None) if isinstance(name, str) and name else None
    return info if info and info.on_death is OnDeath.RESUME and info.state not in _ENDED else None


def end_by_undo(opened: OpenStore, info: RunInfo, undo: "Callable[[bool], UndoResult]") -> "UndoResult":
    """Undo the effects of the run, and end it. Until then no worker continues it."""
    from takeback.engine.close_run import closing
    from takeback.engine.recover import open_in, settle_open
    from takeback.model.plan import UndoResult
    from takeback.runs.end import leave
    from takeback.runs.selection import stuck_in

    core = opened.hold_run(info, opened.acquire(info.id, 0))
    try:
        _settle_calls(opened, info, core.lease)
        settle_open(opened.parts, core.lease)
        anything = any(opened.store.journal.effects(Query(run=info.id, states=(State.DONE, State.PROPOSED))))
        if anything:
            undo(True)  # what is refused is refused before anything changes
        why = {
            "outcome": RunState.SUSPENDED.value,
            "why": _BEING_TAKEN_BACK,
            "due": NEVER,
            "taking_back": True,
        }
        _reopen(opened, info, core.lease, [Draft(Kind.CLOSE, info.id, "", why)])
        try:
            result = undo(False) if anything else UndoResult("done", (), ())
        except Refused:
            from takeback.runs.workflows.replay import Leaving, history_of

            read = history_of(opened.store.journal, info.id).read.get(info.awaits, 0)
            as_before = Leaving(info.note, info.due_at, info.awaits, read).body
            _reopen(opened, info, core.lease, [Draft(Kind.CLOSE, info.id, "", as_before)])
            raise
        if not stuck_in(opened.store.journal, info):
            outcome = RunState.UNDONE if result.outcome == "done" else RunState.PARTLY
            told = {"outcome": outcome.value, "error": "It was taken back.", "error_type": "Refused"}
            left = open_in(opened.parts, info.id)
            _reopen(opened, info, core.lease, closing(opened.parts, info.id, told, left))
        return result
    finally:
        leave(core)


def _reopen(opened: OpenStore, info: RunInfo, lease: Lease, end: list[Draft]) -> None:
    """To be closed again, in another way."""
    again = Draft(Kind.OPEN, info.id, "", {"resumed": True})
    opened.store.journal.append(lease, [again, *end])


def _refuse_over(info: RunInfo) -> None:
    if info.state in _ENDED:
        raise Refused(f"Run {short(info.id)} has ended ({info.state.value}).", hint="Start another one.")


def _cut(text: str) -> str:
    return text if len(text) <= 100 else text[:99] + "…"
