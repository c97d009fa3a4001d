"""What a durable workflow can do besides making changes: remember, sleep, wait. In an ordinary run they work as well,
and are never replayed."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from takeback.engine.plan import Wishes
from takeback.errors import InDoubt, Misuse, Spent, Stopped, Stuck, Unavailable
from takeback.model.functions import as_json
from takeback.model.plan import UndoResult, outcome_from
from takeback.model.record import Draft, Kind, canonical
from takeback.model.run import NEVER, SETTLED, Checkpoint, Position
from takeback.runs import checkpoints
from takeback.runs.core import RunCore
from takeback.runs.workflows.function import digest_of
from takeback.runs.workflows.replay import (
    CHECKPOINT,
    REMEMBER,
    SLEEP,
    UNDO,
    WAIT,
    Leaving,
    Replay,
    Signal,
    WorkflowStep,
    error_from_json,
    error_to_json,
    lasting_error,
    step_body,
)
from takeback.storage import bodies
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")
_SHORT = 1_000_000  # microseconds that are slept without letting go of the run
_POLL = 0.05
_UNITS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


def remember(core: RunCore, name: str, fn: Callable[[], Any]) -> Any:
    _refuse_nameless(name, "The remembered value")
    if not callable(fn):
        raise Misuse(f"{fn!r} cannot be asked.", hint='For example run.remember("plan", lambda: ask(…)).')

    def kept(text: str) -> dict[str, Any]:
        return bodies.kept(core.parts.blobs, "value", text, f"{name} of {core.id}")

    replay = core.replay
    if replay is None:
        core.refuse_ended()
        text = as_json(fn(), f"What {name!r} remembers")
        core.append(Draft(Kind.REMEMBER, core.id, "", {"name": name, **kept(text)}))
        return json.loads(text)

    def make() -> str:
        replay.inside = f"remember({name!r})"
        try:
            return as_json(fn(), f"What {name!r} remembers")
        finally:
            replay.inside = ""

    def again(step: WorkflowStep) -> str:
        return bodies.text_of(core.parts.blobs, step.body["value"])

    return json.loads(once(core, replay, REMEMBER, name, digest_of(name), make, kept, again))


def sleep(core: RunCore, *given: float) -> None:
    """Days, hours, minutes, seconds."""
    if not all(type(one) in (int, float) and 0 <= one < 1e9 for one in given) or not any(given):
        raise Misuse(
            "How long to sleep is not said.",
            hint="For example run.sleep(days=3) or run.sleep(seconds=5).",
        )
    lasts = sum(round(one * size * 1_000_000) for one, size in zip(given, _UNITS.values(), strict=True))
    replay = core.replay
    if replay is None:
        core.refuse_ended()
        _pass_time(core, core.now() + lasts)
        return
    says = " ".join(f"{one:g} {unit}" for one, unit in zip(given, _UNITS, strict=True) if one)
    until = once(
        core,
        replay,
        SLEEP,
        says,
        digest_of(lasts),
        lambda: core.now() + lasts,
        lambda until: {"until": until},
        lambda step: step.body["until"],
    )
    if until - core.now() > _SHORT:
        raise replay.leave(Leaving(f"sleeps for {says}", due=until))
    _pass_time(core, until)


def wait(core: RunCore, event: str, timeout: float | None) -> Any:
    _refuse_nameless(event, "An event")
    if event.startswith(SETTLED):
        raise Misuse(f"Events that begin with {SETTLED!r} are takeback's own.", hint="Choose another name.")
    if timeout is not None and not (type(timeout) in (int, float) and 0 <= timeout < 1e9):
        raise Misuse(f"A time of {timeout!r} seconds makes no sense.", hint="For example timeout=86_400.")
    lasts = None if timeout is None else round(timeout * 1_000_000)
    signal = _wait_here(core, event, lasts) if core.replay is None else _wait(core, core.replay, event, lasts)
    if signal is None:
        raise TimeoutError(f"No one sent {event!r} in time.")
    return json.loads(signal.data)


def _wait_here(core: RunCore, event: str, lasts: int | None) -> Signal | None:
    until = None if lasts is None else core.now() + lasts
    while True:
        core.refuse_ended()
        for one in _signals_sent(core, event):
            if one.seq > core.heard.get(event, 0):
                core.heard[event] = one.seq
                return one
        if until is not None and core.now() >= until:
            return None
        time.sleep(_POLL)


def _wait(core: RunCore, replay: Replay, event: str, lasts: int | None) -> Signal | None:
    with core.lock:
        core.refuse_ended()
        asked = digest_of(event, lasts)
        step = replay.take(WAIT, event, asked)
        body = step.body if step else {}
        if "signal" in body:
            return next(one for one in replay.history.signals if one.seq == body["signal"])
        if "timed_out" in body:
            return None
        until: int | None = None if lasts is None else body.get("until", core.now() + lasts)
        with unbroken(replay):
            signal = replay.unread(event, _signals_sent(core, event))
            over = until is not None and core.now() >= until
            if signal or over:
                ended: dict[str, Any] = {"signal": signal.seq} if signal else {"timed_out": True}
                core.append(replay.draft(WAIT, event, asked, ended))
                if signal:
                    replay.history.read[event] = signal.seq
                return signal
        told = step_body(replay.at, WAIT, event, asked) | ({"until": until} if until is not None else {})
        read = replay.history.read.get(event, 0)
        raise replay.leave(
            Leaving(f"waits for {event!r}", NEVER if until is None else until, event, read, step=told)
        )


def _signals_sent(core: RunCore, event: str) -> tuple[Signal, ...]:
    found = core.parts.journal.records(run=core.id, kinds=(Kind.SIGNAL,))
    return tuple(Signal(one.seq, event, one.body["data"]) for one in found if one.body["name"] == event)


def _pass_time(core: RunCore, until: int) -> None:
    while (left := until - core.now()) > 0:
        time.sleep(min(left / 1_000_000, _POLL if core.replay else 3600))
        if core.replay and core.replay.stopping():
            raise core.replay.leave(Leaving("its worker was stopped", due=until))


# Steps.


def checkpoint(
    core: RunCore,
    label: str,
    state: Any,
    environment: Sequence[str],
    path: Sequence[str],
    summary: str,
    position: Position | None = None,
) -> Checkpoint:
    if not isinstance(label, str) or not label.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Misuse("A checkpoint needs a name.", hint='For example run.checkpoint("before-migrate").')
    if position is not None:
        core.refuse_in_workflow("A checkpoint at an earlier position", "Make the checkpoint there.")
        if not isinstance(position, Position) or not 0 < position.seq <= core.parts.journal.newest():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(f"{position!r} is no position of this store.", hint="Take it from run.position().")
    with core.lock:
        core.refuse_ended()
        told: dict[str, Any] = {"position": [position.seq, position.at]} if position else {}
        if core.replay is not None:
            asked = digest_of(label)
            step = core.replay.take(CHECKPOINT, label, asked)
            if step and step.record:
                return checkpoints.with_state(core.parts.blobs, checkpoints.from_record(step.record))
            told = step_body(core.replay.at, CHECKPOINT, label, asked)
        said = checkpoints.kept_state(core.parts.blobs, core.id, state)
        draft = checkpoints.draft(core.id, label, said, environment=environment, path=path, summary=summary)
        record = core.append(draft._replace(body=draft.body | told))
        core.since_checkpoint = 0
        return checkpoints.with_state(core.parts.blobs, checkpoints.from_record(record))


def undo_once(
    core: RunCore, replay: Replay, what: str, wishes: Wishes, make: Callable[[], UndoResult]
) -> UndoResult:
    def again(step: WorkflowStep) -> UndoResult:
        told = json.loads(step.body["result"])
        ids = told["effects"], told["undo"]
        effects, undo = (
            tuple(core.parts.journal.effects(Query(ids=tuple(one)))) if one else () for one in ids
        )
        targets = tuple(outcome_from(one) for one in told["targets"])
        return UndoResult(told["outcome"], effects, targets, undo, told["state"])

    asked = digest_of(what, wishes.cascade, wishes.with_needs, wishes.on_conflict.value)
    return once(core, replay, UNDO, what, asked, make, _keep_undo, again)


def once(
    core: RunCore,
    replay: Replay,
    kind: str,
    says: str,
    asked: str,
    make: Callable[[], T],
    keep: Callable[[T], dict[str, Any]],
    again: Callable[[WorkflowStep], T],
) -> T:
    """Made and recorded, or as it was recorded; one that failed fails again in the same way."""
    with core.lock:
        core.refuse_ended()
        step = replay.take(kind, says, asked)
        if step:
            raise_again(step)
            return again(step)
        with unbroken(replay):
            try:
                value = make()
            except (Stopped, Stuck, Unavailable, InDoubt):
                raise
            except Exception as error:
                core.append(replay.draft(kind, says, asked, {"failed": error_to_json(error)}))
                lasting = lasting_error(error)
                if lasting is error:
                    raise
                raise lasting from error
            core.append(replay.draft(kind, says, asked, keep(value)))
            return value


@contextmanager
def unbroken(replay: Replay) -> "Iterator[None]":
    """An error that is no failure of the function stops it, even if the function swallows it."""
    try:
        yield
    except (Spent, Stopped, Stuck, Unavailable, InDoubt) as error:
        replay.broke(error)
        raise


@contextmanager
def in_step(core: RunCore, replay: Replay, asked: str) -> "Iterator[None]":
    """What changes in the block is the effect of this step."""
    core.part_of = (replay.at, asked)
    try:
        yield
    finally:
        core.part_of = None


def _keep_undo(result: UndoResult) -> dict[str, Any]:
    told = {
        "outcome": result.outcome,
        "effects": [one.id for one in result.effects],
        "targets": [list(one) for one in result.targets],
        "undo": [one.id for one in result.undo],
        "state": result.state,
    }
    return {"result": json.dumps(told)}


def raise_again(step: WorkflowStep) -> None:
    if "failed" in step.body:
        raise error_from_json(step.body["failed"])


def _refuse_nameless(name: object, what: str) -> None:
    if not isinstance(name, str) or not name.strip():
        raise Misuse(f"{what} needs a name.", hint='For example "approved".')
    canonical(name)  # refuses what the journal could not hold
