"""How a record changes the effects it concerns. Every journal uses this, so that all of them agree."""

from collections.abc import Callable
from typing import Any, NamedTuple

from takeback.errors import Blocked, Drifted, KeyReused, LeaseLost, RecordInvalid, StoreBusy, Superseded
from takeback.model.change import DECIDED_AT, PARTIAL, UNDO
from takeback.model.effect import (
    BROUGHT_BACK,
    PERSON,
    TAKEN_BACK,
    Dropped,
    DropReason,
    Effect,
    State,
    from_intent,
    moved,
    waits,
)
from takeback.model.format_1 import with_fields
from takeback.model.ids import short
from takeback.model.record import Kind, Record
from takeback.model.resource import display
from takeback.model.run import RunState

Find = Callable[[str], "Life | None"]

BIRTHS = (Kind.PROPOSE, Kind.INTENT)
OUTCOMES = (Kind.DONE, Kind.ABORT, Kind.STICK, Kind.DROP)
KEYLESS = (State.ABORTED, State.DROPPED)  # their keys are free for another effect
ACCEPTS = (Kind.ACCEPT, Kind.KEEP)
OF_EFFECTS = (
    *BIRTHS, *OUTCOMES, Kind.DECIDE, *ACCEPTS, Kind.PIN, Kind.UNPIN, Kind.FORGET, Kind.ERASE
)  # fmt: skip


class Life(NamedTuple):
    """How an effect stands; the rest of it is in the records these numbers point to."""

    id: str
    run: str
    state: State
    seq: int  # its first record
    told: int  # the record that says what it is: its intent, or its proposal until then and if it is dropped again
    ended: int = 0  # its newest outcome
    undoes: str = ""
    partial: bool = False  # an undo that left some targets out: what it undoes stays done
    undone_by: str = ""
    accepted_by: str = ""
    forgotten: bool = False
    pinned: bool = False


def consequences(record: Record, find: Find) -> tuple[Life, ...]:
    """The lives that this record begins or changes."""
    where = f"Record {record.seq}"
    life = find(record.effect)
    if record.kind in BIRTHS:
        return (_born(record, life, find, where),)
    if life is None:
        raise RecordInvalid(f"{where}: it speaks of effect {record.effect!r}, which has no intent.")
    life = life._replace(state=moved(life.state, record.kind, where))
    if record.kind in OUTCOMES:
        life = life._replace(ended=record.seq)
    if record.kind is Kind.DROP:  # also after an attempt to apply it: then it is again what was proposed
        life = life._replace(told=life.seq)
    if record.kind in ACCEPTS:
        life = life._replace(accepted_by="person")
    if record.kind in (Kind.PIN, Kind.UNPIN):
        life = life._replace(pinned=record.kind is Kind.PIN)
    if record.kind is Kind.FORGET:
        life = life._replace(forgotten=True)
    if record.kind is Kind.DONE and life.undoes and not life.partial:
        return (life, *_undone(life, find, where))
    return (life,)


def _born(record: Record, life: Life | None, find: Find, where: str) -> Life:
    state = moved(life.state if life else None, record.kind, where)
    undoes: str = record.body.get("undoes", "")
    partial = bool(record.body.get("args", {}).get(PARTIAL)) and record.body["kind"] == UNDO
    born = Life(record.effect, record.run, state, record.seq, record.seq, undoes=undoes, partial=partial)
    if undoes:
        _refuse_undo_of_unfit(born, find, where)
        if record.body.get("args", {}).get(DECIDED_AT, record.seq - 1) != record.seq - 1:
            raise superseded(undoes)
    return life._replace(state=state, told=record.seq, undoes=undoes, partial=partial) if life else born


def _refuse_undo_of_unfit(undo: Life, find: Find, where: str) -> None:
    """Asked before the world is touched: another process may have taken it back since the plan was made, or it is a
    redo of something that has been taken back since in another way."""
    target = find(undo.undoes)
    if target is None:
        raise RecordInvalid(f"{where}: it undoes {undo.undoes!r}, which is not in the journal.")
    try:
        _undone(undo, find, where)
    except RecordInvalid as unfit:
        raise overtaken(undo.undoes) from unfit


def overtaken(effect: str) -> Drifted:
    return Drifted(
        f"Effect {short(effect)} was undone in another way since, so there is nothing to undo.",
        hint=f"Nothing was changed. `takeback show {short(effect)}` shows its state.",
        effect=effect,
    )


def taken_over(run: str) -> LeaseLost:
    return LeaseLost(
        f"Run {short(run)} was taken over by another process while this one was away.",
        hint=f"Nothing more is written for it; `takeback log --run {short(run)}` shows where it stands.",
    )


def in_the_way(effect: str, state: str, resource: str) -> Blocked | StoreBusy:
    """Of a new effect on the same resource: one that is stuck, or one that is being made."""
    shown = f"({short(effect)})"
    if state != State.STUCK:
        return StoreBusy(
            f"Another effect {shown} is being made on {display(resource)}.",
            hint="Try again when it is finished.",
            effect=effect,
        )
    return Blocked(
        f"Effect {short(effect)} on {display(resource)} is stuck, so nothing may build on it.",
        hint=f"`takeback show {short(effect)}` shows why. Fix it and run `takeback recover`, or run `takeback undo` "
        "with `--merge`, `--skip-conflicts` or `--force`.",
        blockers=(effect,),
    )


def key_reused(key: str, of: str = "effect") -> KeyReused:
    """`of`: an effect or a run."""
    every = "change" if of == "effect" else of
    return KeyReused(
        f"The key {key!r} already belongs to another {of}.", hint=f"Give every {every} its own key, or none."
    )


def superseded(effect: str) -> Superseded:
    return Superseded(
        f"Another record was written while the undo of effect {short(effect)} was being planned.",
        hint="Nothing was changed. Try again.",
        effect=effect,
    )


def _undone(undo: Life, find: Find, where: str) -> tuple[Life, ...]:
    """The effect an undo takes back is undone; if that was itself an undo, what it had undone is back."""
    target = find(undo.undoes)
    if target is None:
        raise RecordInvalid(f"{where}: it undoes {undo.undoes!r}, which is not in the journal.")
    target = target._replace(state=moved(target.state, TAKEN_BACK, where), undone_by=undo.id)
    if not target.undoes or target.partial:
        return (target,)
    original = find(target.undoes)
    if original is None:
        raise RecordInvalid(f"{where}: it brings back {target.undoes!r}, which is not in the journal.")
    original = original._replace(state=moved(original.state, BROUGHT_BACK, where), undone_by="")
    if not original.undoes or original.partial:
        return (target, original)
    # That one is an undo as well (the redo of it was undone): what it had taken back is taken back once more.
    return (target, original, *_undone(original, find, where))


def outlives_its_run(state: State | None) -> bool:
    """It may be made when its run has ended."""
    return state in (State.PROPOSED, State.DROPPED)


def refuse_unfit_run(record: Record, run: RunState | None, in_flight: bool, proposed: bool = False) -> None:
    """An effect begins in an open run, and a run ends with no effect in flight. A suspended run has not ended: the
    process that continues it settles its effects. A `proposed` effect that waits for a person, or was dropped, outlives
    its run."""
    outlives = (
        record.kind is Kind.PROPOSE and waits(record.body.get("args", {})) == PERSON and run is not None
    )
    if record.kind in BIRTHS and run is not RunState.OPEN and not proposed and not outlives:
        state = run.value if run else "not there"
        raise RecordInvalid(
            f"Record {record.seq}: run {short(record.run)} is {state} and takes no new effects."
        )
    if record.kind is Kind.CLOSE and in_flight and record.body.get("outcome") != RunState.SUSPENDED:
        raise RecordInvalid(
            f"Record {record.seq}: run {short(record.run)} has an effect in flight and cannot end."
        )


def told(life: Life, intent: Record, outcome: Record | None, agent: str) -> Effect:
    """The whole effect, from its state and its records."""
    effect = from_intent(intent, agent, life.state)
    body = with_fields(outcome.kind, outcome.body) if outcome else {}
    return effect._replace(
        seq=life.seq,
        told=life.told,
        undone_by=life.undone_by,
        accepted_by=life.accepted_by,
        forgotten=life.forgotten,
        pinned=life.pinned,
        receipt=body.get("receipt", {}),
        note=body.get("why", ""),
        begun=body.get("begun", False),
        given_up=body.get("given_up", False),
        dropped=_dropped(body) if outcome and outcome.kind is Kind.DROP else None,
    )


def _dropped(body: dict[str, Any]) -> Dropped:
    return Dropped(DropReason(body["reason"]), body["until"], body["bytes"])


def waits_for_a_person(state: State, body: dict[str, Any]) -> bool:
    """It blocks no other effect until someone decides."""
    return state is State.PROPOSED and waits(body.get("args", {})) == PERSON


def stands_aside(state: State, body: dict[str, Any]) -> bool:
    """Proposed, and not being applied now: others may change the same targets in between, and conflicts are found when
    it is applied."""
    return state is State.PROPOSED and bool(waits(body.get("args", {})))


def touched(body: dict[str, Any]) -> tuple[str, ...]:
    targets: list[list[Any]] = body.get("remedy", {}).get("targets", [])
    return tuple([target[0] for target in targets]) or (body["resource"],)
