"""An effect, and the one table that says how its state moves."""

from enum import StrEnum
from typing import Any, NamedTuple

from takeback.errors import Misuse, RecordInvalid
from takeback.model.change import Change, Phase, change_recorded, recorded_args
from takeback.model.record import Kind, Record
from takeback.model.remedy import BY_WHOM, UNKNOWN, Remedy, Target, from_json
from takeback.model.resource import function_in


class State(StrEnum):
    PROPOSED = "proposed"
    INTENDED = "intended"
    DONE = "done"
    UNDONE = "undone"
    ABORTED = "aborted"
    DROPPED = "dropped"  # not made, and kept for a while: `apply` makes it after all
    STUCK = "stuck"


def state_named(name: str) -> State:
    try:
        return State(name)
    except ValueError:
        known = ", ".join(State)
        raise Misuse(f"There is no state {name!r} of an effect.", hint=f"It is one of {known}.") from None


PERSON = "person"
COMMAND = "command"


class DropReason(StrEnum):
    """Why a change was dropped; the value is in the record."""

    FAILED = "failed"  # its command ended with another exit code than 0
    INTERRUPTED = "interrupted"  # by a signal to takeback, or a time limit
    DISCARDED = "discarded"  # a person said so
    BOX = "box"  # everything in a box was discarded
    KILLED = "killed"  # takeback was killed before it was merged


class Dropped(NamedTuple):
    reason: DropReason
    until: int  # microseconds since 1970: until then it can be applied
    bytes: int  # of the files that it would leave


def drop_body(dropped: Dropped, why: str) -> dict[str, Any]:
    return {"reason": dropped.reason.value, "until": dropped.until, "bytes": dropped.bytes, "why": why}


OPEN_STATES = (State.PROPOSED, State.INTENDED, State.STUCK)

# What another effect's done does to the one it undoes, and to the one that one had undone.
TAKEN_BACK = "taken back"
BROUGHT_BACK = "brought back"

TRANSITIONS: dict[tuple[State | None, str], State] = {
    (None, Kind.PROPOSE): State.PROPOSED,
    (None, Kind.INTENT): State.INTENDED,
    (State.PROPOSED, Kind.DECIDE): State.PROPOSED,
    (State.PROPOSED, Kind.INTENT): State.INTENDED,
    (State.PROPOSED, Kind.ABORT): State.ABORTED,
    (State.INTENDED, Kind.DONE): State.DONE,
    (State.INTENDED, Kind.ABORT): State.ABORTED,
    (State.INTENDED, Kind.STICK): State.STUCK,
    (State.PROPOSED, Kind.DROP): State.DROPPED,
    (State.DROPPED, Kind.INTENT): State.INTENDED,
    (State.INTENDED, Kind.DROP): State.DROPPED,  # it was being applied, and could not be
    (State.DROPPED, Kind.ERASE): State.ABORTED,  # its time is over
    (State.STUCK, Kind.DONE): State.DONE,
    (State.STUCK, Kind.ABORT): State.ABORTED,
    **{
        (state, kind): state
        for state in (State.DONE, State.UNDONE)
        for kind in (Kind.ACCEPT, Kind.KEEP, Kind.PIN, Kind.UNPIN, Kind.FORGET)
    },
    (State.DONE, TAKEN_BACK): State.UNDONE,
    (State.UNDONE, BROUGHT_BACK): State.DONE,
}


class Effect(NamedTuple):
    id: str
    run: str
    agent: str
    seq: int  # of its first record: the order of the store
    state: State
    change: Change
    key: str = ""
    needs: tuple[str, ...] = ()
    undoes: str = ""
    undone_by: str = ""
    reason: str = ""  # why this strategy, in one sentence
    remedy: Remedy | None = None
    receipt: dict[str, Any] = {}
    accepted_by: str = ""  # "" not accepted · "run" its run ended well · "person" said so
    pinned: bool = False  # its way back is never forgotten
    forgotten: bool = False
    note: str = ""  # why it was aborted or is stuck
    at: int = 0
    told: int = 0  # the record that says what it is: its intent, or its proposal until then
    step: int = 0  # which durable operation of a workflow function it is, from 1; 0 in ordinary runs
    asked: str = ""  # what that operation asked for, as a digest: a replay must ask for the same
    begun: bool = False  # stuck while it was taken back: whether its undo has happened is not known
    given_up: bool = False  # an undo that was stuck and aborted, because a person chose another way back
    roots: tuple[str, ...] = ()  # projects it touches; with no `places` either: only the one its run began in
    places: tuple[str, ...] = ()  # directories it touches that are in no project
    dropped: Dropped | None = None  # also while it is being applied
    of: "Effect | None" = None  # for an undo, the effect it takes back; not stored, looked up
    redacted: bool = False  # its content was erased: what it did and its way back are not known any more
    narrowed: bool = False  # not stored: only some of its targets are listed here

    @property
    def accepted(self) -> bool:
        return bool(self.accepted_by)

    @property
    def targets(self) -> tuple[Target, ...]:
        return self.remedy.targets if self.remedy else ()

    @property
    def order(self) -> int:
        """The position at which it took effect: a change proposed early and applied late comes after those applied in
        between."""
        return self.told or self.seq

    @property
    def watched_since(self) -> int:
        """The position from which it was watched: some watches are proposed only when something is found."""
        return self.change.args.get("since", self.seq)

    @property
    def not_by_agent(self) -> str:
        """Why it does not count as its agent's, in the words of `log`; "" for one that does."""
        if not self.change.facts.others or self.state in (State.PROPOSED, State.ABORTED):
            return ""
        return "author unknown" if self.change.args.get(BY_WHOM) == UNKNOWN else "not the agent"

    @property
    def is_elsewhere(self) -> bool:
        """It changed only what was not watched: that is known of it, and there is no way back."""
        return bool(self.outside) and not self.targets and self.state is State.DONE

    @property
    def outside(self) -> tuple[str, ...]:
        """Paths that it is known to have changed beyond what was watched."""
        return tuple(self.change.args.get("outside", ()))

    @property
    def waits_for(self) -> str:
        """While proposed: `PERSON` to apply or discard it, `COMMAND` to end; "" for one that is being made."""
        return self.change.phase.waits if self.state is State.PROPOSED else ""

    @property
    def phase(self) -> Phase:
        return self.change.phase

    @property
    def plan(self) -> str:
        """What a person must approve: the way back, or that there is none; "" if no one must."""
        return self.phase.gate.plan if self.phase.gate else ""

    @property
    def is_undo(self) -> bool:
        return bool(self.undoes)


def waits_for_approval(effect: Effect) -> bool:
    """The run that asked applies it, not the person who approves it."""
    return effect.state is State.PROPOSED and effect.phase.gate is not None


def applied_once_approved(effect: Effect) -> bool:
    """It waits for an approval because a rule says so, and a person can make it: its run need not ask again."""
    by_rule = waits_for_approval(effect) and effect.phase.ruling is not None
    return by_rule and not function_in(effect.change.resource)


def waits(args: dict[str, Any]) -> str:
    """As a record has it."""
    return args.get("waits", "")


def moved(state: State | None, event: str, where: str) -> State:
    """The state after an event; one that does not fit is an alarm, never skipped."""
    after = TRANSITIONS.get((state, event))
    if after is None:
        raise RecordInvalid(
            f"{where}: {event!r} cannot follow state {state.value if state else 'none'!r}.",
            hint="Run `takeback verify` to see how far the damage goes.",
        )
    return after


def intent_body(effect: Effect, remedy: dict[str, Any] | None) -> dict[str, Any]:
    """The body of a propose or intent record; empty fields are left out."""
    change = effect.change
    body: dict[str, Any] = {
        "adapter": change.adapter,
        "kind": change.kind,
        "resource": change.resource,
        "summary": change.summary,
        "key": effect.key,
    }
    optional: dict[str, Any] = {
        "args": recorded_args(change),
        "needs": list(effect.needs),
        "undoes": effect.undoes,
        "reason": effect.reason,
        "remedy": remedy,
        "step": effect.step,
        "asked": effect.asked,
        "roots": list(effect.roots),
        "places": list(effect.places),
    }
    return body | {name: value for name, value in optional.items() if value}


def from_intent(record: Record, agent: str, state: State) -> Effect:
    """The effect that a propose or intent record announces."""
    body = record.body
    change = change_recorded(
        body["adapter"], body["kind"], body["resource"], body["summary"], body.get("args", {})
    )
    remedy = body.get("remedy")
    return Effect(
        id=record.effect,
        run=record.run,
        agent=agent,
        seq=record.seq,
        state=state,
        change=change,
        key=body["key"],
        needs=tuple(body.get("needs", ())),
        undoes=body.get("undoes", ""),
        reason=body.get("reason", ""),
        remedy=from_json(remedy) if remedy else None,
        at=record.at,
        step=body.get("step", 0),
        asked=body.get("asked", ""),
        roots=tuple(body.get("roots", ())),
        places=tuple(body.get("places", ())),
        redacted="redacted" in body,
    )
