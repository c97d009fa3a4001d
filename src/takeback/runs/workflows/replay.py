"""Where a durable run is in its function, and what the journal has of the steps and errors before."""

import builtins
from _thread import get_ident
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from takeback import errors
from takeback.errors import Diverged, Failed, Misuse, TakebackError
from takeback.model.change import Change, intent
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.record import Draft, Kind, Record
from takeback.storage.protocols import Journal, Query


def error_to_json(error: BaseException) -> dict[str, Any]:
    told: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, TakebackError):
        optional = {"hint": error.hint, "effect": error.effect or ""}
        return told | {name: one for name, one in optional.items() if one}
    if all(isinstance(one, (str, int)) for one in error.args):
        told["args"] = list(error.args)
    return told


def error_from_json(told: dict[str, Any]) -> Exception:
    name, message = told["type"], told["message"]
    ours = getattr(errors, name, None)
    if isinstance(ours, type) and issubclass(ours, TakebackError):
        return ours(message, hint=told.get("hint", ""), effect=told.get("effect"))
    plain = getattr(builtins, name, None)
    if isinstance(plain, type) and issubclass(plain, Exception):
        try:
            return plain(*told.get("args", [message]))
        except TypeError:  # one that takes other arguments than words
            pass
    return Failed(error_in_words(told))


def lasting_error(error: Exception) -> Exception:
    """The error itself if it can be raised again from what is recorded; else one in its place that can."""
    told = error_to_json(error)
    again = error_from_json(told)
    return error if type(again) is type(error) else again


def error_in_words(told: dict[str, Any]) -> str:
    ours = getattr(errors, told["type"], None)
    if ours is not None:
        return told["message"]
    return f"{told['type']}: {told['message']}" if told["message"] else told["type"]


CHANGE, REMEMBER, SLEEP, WAIT, UNDO, CHECKPOINT, COMMAND, STATEMENT, FORK = (
    "change", "remember", "sleep", "wait", "undo", "checkpoint", "command", "statement", "fork",
)  # fmt: skip
FAILING = "failing"  # in a record that says that the function has failed, and its run is on its way back
_UNMADE = (State.PROPOSED, State.ABORTED, State.DROPPED)
_KINDS = (Kind.OPEN, Kind.CLOSE, Kind.REMEMBER, Kind.CHECKPOINT, Kind.SIGNAL)


class Leaving(BaseException):
    """Unwinds the function of a run that is suspended; no error of the function, so `except Exception` is past it."""

    def __init__(
        self,
        why: str,
        due: int = 0,
        awaits: str = "",
        read: int = 0,
        *,
        step: dict[str, Any] | None = None,
        label: str = "",
        again: int = 0,
    ) -> None:
        super().__init__(why)
        self.due, self.awaits, self.read = due, awaits, read
        self.step = step or {}  # in the middle of which it leaves
        self.label = label  # of the checkpoint that is taken first
        self.again = again  # how often in a row it could not continue

    @property
    def body(self) -> dict[str, Any]:
        told = {"due": self.due, "awaits": self.awaits, "read": self.read, "again": self.again}
        told = {name: one for name, one in told.items() if one}
        return {"outcome": "suspended", "why": str(self)} | told | self.step


class WorkflowStep(NamedTuple):
    """What is recorded of a step: its newest record, and its effect."""

    number: int
    kind: str
    says: str
    asked: str  # a digest of what was asked for
    body: dict[str, Any] = {}
    effect: Effect | None = None
    record: Record | None = None


class Signal(NamedTuple):
    seq: int
    name: str
    data: str  # JSON


class History(NamedTuple):
    opened: dict[str, Any]  # what was submitted
    steps: dict[int, WorkflowStep]
    signals: tuple[Signal, ...] = ()
    read: dict[str, int] = {}  # by event: the newest signal that a step has taken
    failing: dict[str, Any] | None = None  # the error that ended the function
    again: int = 0  # how often in a row it could not continue
    turns: int = 0  # how often it continued from a checkpoint
    back_to: str = ""  # the checkpoint that it is still on its way back to
    earlier: tuple[Effect, ...] = ()  # made after such a checkpoint, and still there
    unmade: frozenset[int] = frozenset()  # steps of which there is only something proposed or aborted

    @property
    def last(self) -> int:
        return max(self.steps, default=0)


def history_of(journal: Journal, run: str, made: bool = True) -> History:
    """`made` says whether it may have any effects."""
    records = tuple(journal.records(run=run, kinds=_KINDS))
    known = tuple(one for one in journal.effects(Query(run=run)) if one.step) if made else ()
    effects = tuple(one for one in known if one.state not in _UNMADE)
    cuts = tuple((record.seq, record.body["step"]) for record in records if _is_cut(record))

    def counts(seq: int, step: int) -> bool:
        return not any(seq < cut and step > kept for cut, kept in cuts)

    steps: dict[int, WorkflowStep] = {}
    for one in effects:
        if counts(one.seq, one.step):
            steps[one.step] = WorkflowStep(one.step, CHANGE, one.change.summary, one.asked, effect=one)
    read: dict[str, int] = {}
    failing: dict[str, Any] | None = None
    again, back_to = 0, ""
    for record in records:
        body = record.body
        if record.kind is Kind.CLOSE:
            again, back_to = body.get("again", 0), ""
        if _is_cut(record):
            failing, back_to = None, body["from"]
        elif FAILING in body:
            failing = body[FAILING]
        elif "kind" in body:
            if "signal" in body:
                read[body["says"]] = max(read.get(body["says"], 0), body["signal"])
            if counts(record.seq, body["step"]):
                before = steps.get(body["step"])
                effect = before.effect if before else _effect(journal, body)
                steps[body["step"]] = WorkflowStep(
                    body["step"], body["kind"], body["says"], body["asked"], body, effect, record
                )
    return History(
        records[0].body,
        steps,
        tuple(
            Signal(one.seq, one.body["name"], one.body["data"]) for one in records if one.kind is Kind.SIGNAL
        ),
        read,
        failing,
        again,
        len(cuts),
        back_to,
        tuple(one for one in effects if not counts(one.seq, one.step) and one.state is State.DONE),
        frozenset(one.step for one in known if one.state in _UNMADE),
    )


def _effect(journal: Journal, body: dict[str, Any]) -> Effect | None:
    """One that was made before this step, and answered it."""
    return next(journal.effects(Query(ids=(body["effect"],))), None) if "effect" in body else None


def _is_cut(record: Record) -> bool:
    """Where it continued from a checkpoint: steps after that one no longer count."""
    return record.kind is Kind.OPEN and "step" in record.body


def steps_before(journal: Journal, run: str, seq: int) -> int:
    """How many steps were behind it at that place of the journal."""
    history = history_of(journal, run)
    return max((step.number for step in history.steps.values() if _began(step) < seq), default=0)


def _began(step: WorkflowStep) -> int:
    if step.effect:
        return step.effect.seq
    assert step.record is not None
    # A checkpoint that is a step itself is behind us when we come back to it.
    return step.record.seq - (step.kind == CHECKPOINT)


class Replay:
    """Hands out step numbers, and what is recorded of each."""

    def __init__(
        self,
        run: str,
        history: History,
        stopping: Callable[[], bool] = lambda: False,
        progress: Callable[[], None] = lambda: None,
        stopped: Callable[[], str] = str,
    ) -> None:
        """`stopped`: why a person stopped the run; empty if none did."""
        self.run = run
        self.history = history
        self.at = 0  # the step that was taken last
        self.beside = False  # whether steps are being made at the same time
        self.inside = ""  # what the function is in the middle of, where no step can begin
        # What keeps it from continuing, though nothing of its own failed.
        self.broken: TakebackError | None = None
        self.leaving: Leaving | None = None
        self._earlier = list(history.earlier)
        self._last = history.last
        self.stopping = stopping
        self._thread = get_ident()
        self.progress = progress
        self.stopped = stopped

    def take(self, kind: str, says: str, asked: str, beside: bool = False) -> WorkflowStep | None:
        """The next step: what is recorded of it, None if it is yet to be made. `beside`: made at the same time as
        others, so that later ones may be recorded and this one not."""
        self.refuse_gone()
        if get_ident() != self._thread:
            raise Misuse(
                f"{says!r} is asked for in another thread than its workflow's.",
                hint="Nothing was done: in which order threads come would differ when the workflow is resumed. "
                "run.call_all(action, calls, at_once=8) makes calls at the same time.",
            )
        if self.inside:
            raise Misuse(
                f"{says!r} cannot be part of {self.inside}.",
                hint="Make it a step of its own, before or after.",
            )
        if self.stopping():
            raise self.leave(Leaving("its worker was stopped", label="its worker was stopped"))
        if why := self.stopped():
            raise self.leave(Leaving(why))
        self.progress()
        self.at += 1
        found = self.history.steps.get(self.at)
        if found is None:
            if self.at <= self._last and not beside:
                raise self.broke(_diverged(self.run, self.at, "nothing", _shown(kind, says)))
            return None
        if (found.kind, found.asked) != (kind, asked) and not _same_command(found, kind, asked):
            raise self.broke(_diverged(self.run, self.at, _shown(found.kind, found.says), _shown(kind, says)))
        return found

    def refuse_gone(self) -> None:
        """A function that is being left, or that swallowed its suspension, makes no further changes."""
        if self.leaving:
            raise self.leaving
        if self.broken:
            raise self.broken

    def made_earlier(self, change: Change) -> Effect | None:
        """After going back to a checkpoint: what could not be taken back is there, and is not made a second time."""
        for one in self._earlier:
            if intent(one.change) == intent(change):
                self._earlier.remove(one)
                return one
        return None

    def leave(self, leaving: Leaving) -> Leaving:
        self.leaving = leaving
        return leaving

    def broke(self, error: TakebackError) -> TakebackError:
        self.broken = error
        return error

    def at_the_end(self, ended: str = "the function has ended") -> None:
        """A function that asks for less than is recorded is not the one that was begun."""
        step = self.history.steps.get(self.at + 1)
        if step:
            raise self.broke(_diverged(self.run, step.number, _shown(step.kind, step.says), ended))

    def draft(self, kind: str, says: str, asked: str, told: dict[str, Any], step: int = 0) -> Draft:
        return Draft(Kind.REMEMBER, self.run, "", step_body(step or self.at, kind, says, asked) | told)

    def unread(self, event: str, signals: Iterable[Signal]) -> Signal | None:
        after = self.history.read.get(event, 0)
        return next((one for one in signals if one.name == event and one.seq > after), None)


def step_body(number: int, kind: str, says: str, asked: str) -> dict[str, Any]:
    return {"step": number, "kind": kind, "says": says, "asked": asked}


def _same_command(found: WorkflowStep, kind: str, asked: str) -> bool:
    """Its effect is recorded first, and what it answered after that: it may have been killed in between."""
    return kind in (COMMAND, STATEMENT) and found.kind == CHANGE and found.asked == asked


def _shown(kind: str, says: str) -> str:
    return says if kind in (CHANGE, COMMAND, STATEMENT) else f"{kind} {says!r}"


def _diverged(run: str, step: int, recorded: str, asked: str) -> Diverged:
    return Diverged(
        f"Step {step} of run {short(run)} is recorded as: {recorded}. The function now asks for: {asked}.",
        hint=f"Nothing was changed. Restore the function and run `takeback resume {short(run)}`. Or continue from a "
        f"checkpoint before that step (`takeback checkpoints --run {short(run)}`, then `takeback resume "
        f"{short(run)} --from-checkpoint C`). Or undo the run: `takeback undo --run {short(run)}`.",
    )
