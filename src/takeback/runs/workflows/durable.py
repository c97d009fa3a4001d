"""What a function of a durable workflow can do besides changing things: remember, sleep, wait. In an ordinary run they
work as well, and are never replayed."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from takeback.engine.plan import Wishes
from takeback.errors import InDoubt, Misuse, Spent, Stuck, TakebackError, Unavailable
from takeback.model.functions import as_json
from takeback.model.plan import UndoResult, outcome_from
from takeback.model.record import Draft, Kind, canonical
from takeback.model.run import NEVER, SETTLED
from takeback.runs.workflows.function import digest_of
from takeback.runs.workflows.replay import (
    CHECKPOINT,
    FORK,
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

    from takeback.engine.parts import Parts
    from takeback.runs.lease import OwnLock

T = TypeVar("T")
_SHORT = 1_000_000  # microseconds that are slept without letting go of the run
_POLL = 0.05
_UNITS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


class Durable(ABC):
    """The part of a run that lasts: in a workflow each of these is a step, and its outcome is recorded."""

    _parts: "Parts"
    _lock: "OwnLock"
    _now: Callable[[], int]
    _replay: Replay | None
    _heard: dict[str, int]  # in an ordinary run: by event, the signal that was taken last

    @property
    @abstractmethod
    def id(self) -> str: ...

    @abstractmethod
    def _append(self, draft: Draft) -> Any: ...

    @abstractmethod
    def _refuse_ended(self) -> None: ...

    def remember(self, name: str, fn: Callable[[], Any]) -> Any:
        """What `fn()` returned the first time: in a workflow it is not called again when the run is resumed. For
        whatever may answer differently tomorrow: the time, a random number, a model. JSON; it must change nothing."""
        _refuse_nameless(name, "The remembered value")
        if not callable(fn):
            raise Misuse(f"{fn!r} cannot be asked.", hint='For example run.remember("plan", lambda: ask(…)).')
        if self._replay is None:
            self._refuse_ended()
            text = as_json(fn(), f"What {name!r} remembers")
            said = bodies.kept(self._parts.blobs, "value", text, f"{name} of {self.id}")
            self._append(Draft(Kind.REMEMBER, self.id, "", {"name": name, **said}))
            return json.loads(text)
        replay = self._replay

        def make() -> str:
            replay.inside = f"remember({name!r})"
            try:
                return as_json(fn(), f"What {name!r} remembers")
            finally:
                replay.inside = ""

        text = self._once(
            REMEMBER,
            name,
            digest_of(name),
            make,
            lambda text: bodies.kept(self._parts.blobs, "value", text, f"{name} of {self.id}"),
            lambda step: bodies.text_of(self._parts.blobs, step.body["value"]),
        )
        return json.loads(text)

    def sleep(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Go on after that time. A workflow needs no process meanwhile: its run is suspended, and a worker goes on."""
        given = (days, hours, minutes, seconds)
        if not all(type(one) in (int, float) and 0 <= one < 1e9 for one in given) or not any(given):
            raise Misuse(
                "How long to sleep is not said.",
                hint="For example run.sleep(days=3) or run.sleep(seconds=5).",
            )
        lasts = sum(round(one * size * 1_000_000) for one, size in zip(given, _UNITS.values(), strict=True))
        if self._replay is None:
            self._refuse_ended()
            self._pass_time(self._now() + lasts)
            return
        says = " ".join(f"{one:g} {unit}" for one, unit in zip(given, _UNITS, strict=True) if one)
        until = self._once(
            SLEEP,
            says,
            digest_of(lasts),
            lambda: self._now() + lasts,
            lambda until: {"until": until},
            lambda step: step.body["until"],
        )
        if until - self._now() > _SHORT:
            raise self._replay.leave(Leaving(f"sleeps for {says}", due=until))
        self._pass_time(until)

    def wait(self, event: str, *, timeout: float | None = None) -> Any:
        """The data of the next `tb.signal(run, event, data)`, also of one that was sent before. `TimeoutError` after
        that many seconds. A workflow needs no process meanwhile: its run is suspended, for weeks if need be."""
        _refuse_nameless(event, "An event")
        if event.startswith(SETTLED):
            raise Misuse(
                f"Events that begin with {SETTLED!r} are takeback's own.", hint="Choose another name."
            )
        if timeout is not None and not (type(timeout) in (int, float) and 0 <= timeout < 1e9):
            raise Misuse(f"A time of {timeout!r} seconds makes no sense.", hint="For example timeout=86_400.")
        lasts = None if timeout is None else round(timeout * 1_000_000)
        signal = (
            self._wait_here(event, lasts) if self._replay is None else self._wait(self._replay, event, lasts)
        )
        if signal is None:
            raise TimeoutError(f"No one sent {event!r} in time.")
        return json.loads(signal.data)

    def _wait_here(self, event: str, lasts: int | None) -> Signal | None:
        until = None if lasts is None else self._now() + lasts
        while True:
            self._refuse_ended()
            for one in self._signals_sent(event):
                if one.seq > self._heard.get(event, 0):
                    self._heard[event] = one.seq
                    return one
            if until is not None and self._now() >= until:
                return None
            time.sleep(_POLL)

    def _wait(self, replay: Replay, event: str, lasts: int | None) -> Signal | None:
        with self._lock:
            self._refuse_ended()
            asked = digest_of(event, lasts)
            step = replay.take(WAIT, event, asked)
            body = step.body if step else {}
            if "signal" in body:
                return next(one for one in replay.history.signals if one.seq == body["signal"])
            if "timed_out" in body:
                return None
            until: int | None = None if lasts is None else body.get("until", self._now() + lasts)
            with self._unbroken(replay):
                signal = replay.unread(event, self._signals_sent(event))
                over = until is not None and self._now() >= until
                if signal or over:
                    ended: dict[str, Any] = {"signal": signal.seq} if signal else {"timed_out": True}
                    self._append(replay.draft(WAIT, event, asked, ended))
                    if signal:
                        replay.history.read[event] = signal.seq
                    return signal
            told = step_body(replay.at, WAIT, event, asked) | ({"until": until} if until is not None else {})
            read = replay.history.read.get(event, 0)
            raise replay.leave(
                Leaving(f"waits for {event!r}", NEVER if until is None else until, event, read, step=told)
            )

    def _signals_sent(self, event: str) -> tuple[Signal, ...]:
        found = self._parts.journal.records(run=self.id, kinds=(Kind.SIGNAL,))
        return tuple(Signal(one.seq, event, one.body["data"]) for one in found if one.body["name"] == event)

    def _pass_time(self, until: int) -> None:
        while (left := until - self._now()) > 0:
            time.sleep(min(left / 1_000_000, _POLL if self._replay else 3600))
            if self._replay and self._replay.stopped:
                raise self._replay.leave(Leaving("its worker was stopped", due=until))

    # Steps.

    def _step_of_checkpoint(self, label: str) -> tuple[WorkflowStep | None, dict[str, Any]]:
        """What is recorded of it; and what its record says of the step, if it is yet to be made."""
        if self._replay is None:
            return None, {}
        asked = digest_of(label)
        step = self._replay.take(CHECKPOINT, label, asked)
        return step, step_body(self._replay.at, CHECKPOINT, label, asked)

    def _undo_once(self, what: str, wishes: Wishes, make: Callable[[], UndoResult]) -> UndoResult:
        asked = digest_of(what, wishes.cascade, wishes.with_needs, wishes.on_conflict.value)
        return self._once(UNDO, what, asked, make, _keep_undo, self._undone_before)

    def _forked(self, reason: str, fork: Callable[[], None]) -> None:
        if self._replay is None:
            self._refuse_ended()
            fork()
            return
        self._once(FORK, reason, digest_of(reason), fork, lambda _: {}, lambda _: None)

    def _undone_before(self, step: WorkflowStep) -> UndoResult:
        told = json.loads(step.body["result"])
        ids = told["effects"], told["undo"]
        effects, undo = (
            tuple(self._parts.journal.effects(Query(ids=tuple(one)))) if one else () for one in ids
        )
        targets = tuple(outcome_from(one) for one in told["targets"])
        return UndoResult(told["outcome"], effects, targets, undo, told["state"])

    def _once(
        self,
        kind: str,
        says: str,
        asked: str,
        make: Callable[[], T],
        keep: Callable[[T], dict[str, Any]],
        again: Callable[[WorkflowStep], T],
    ) -> T:
        """Made and recorded, or as it was recorded; one that failed fails again in the same way."""
        replay = self._replay
        assert replay is not None
        with self._lock:
            self._refuse_ended()
            step = replay.take(kind, says, asked)
            if step:
                raise_again(step)
                return again(step)
            with self._unbroken(replay):
                try:
                    value = make()
                except (Stuck, Unavailable, InDoubt):
                    raise
                except Exception as error:
                    self._append(replay.draft(kind, says, asked, {"failed": error_to_json(error)}))
                    lasting = lasting_error(error)
                    if lasting is error:
                        raise
                    raise lasting from error
                self._append(replay.draft(kind, says, asked, keep(value)))
                return value

    @contextmanager
    def _unbroken(self, replay: Replay) -> "Iterator[None]":
        """What is no failure of the function stops it, even where it is swallowed."""
        try:
            yield
        except (Spent, Stuck, Unavailable, InDoubt) as error:
            replay.broke(error)
            raise

    def _refuse_in_workflow(self, what: str, instead: str) -> None:
        """What could not be answered from the journal when the function is replayed."""
        if self._replay is not None:
            raise Misuse(f"{what} cannot be a step of a workflow.", hint=f"Nothing was changed. {instead}")


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


def as_failed(error: TakebackError) -> dict[str, Any]:
    return {"failed": error_to_json(error)}


def _refuse_nameless(name: object, what: str) -> None:
    if not isinstance(name, str) or not name.strip():
        raise Misuse(f"{what} needs a name.", hint='For example "approved".')
    canonical(name)  # refuses what the journal could not hold
