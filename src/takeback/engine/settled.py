"""What became of an effect that a crash had left, for programs and for people."""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from takeback.engine.parts import Parts
from takeback.model.effect import OPEN_STATES, PERSON, Effect, State
from takeback.model.ids import short
from takeback.model.plan import Outcome, UndoResult
from takeback.model.record import Kind
from takeback.model.resource import display, function_in
from takeback.model.run import OnDeath, RunInfo
from takeback.storage.protocols import Journal, Query


def functions_of(journal: Journal, info: RunInfo) -> tuple[str, ...]:
    """The actions whose `verify` and undo functions would be called, each once; empty if no user code is needed."""
    return named(_concerned(journal, info))


def named(effects: Iterator[Effect]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for one in effects if (name := function_in(one.change.resource))))


def _concerned(journal: Journal, info: RunInfo) -> Iterator[Effect]:
    for one in journal.effects(Query(run=info.id, states=OPEN_STATES, newest=True)):
        if one.waits_for != PERSON:
            yield one
    if info.on_death is OnDeath.UNDO:
        for one in journal.effects(Query(run=info.id, states=(State.DONE,), newest=True)):
            if not one.accepted and not one.is_undo:
                yield one
    elif info.on_death is OnDeath.FINISH:
        yield from still_to_undo(journal, info)


def still_to_undo(journal: Journal, info: RunInfo) -> Iterator[Effect]:
    """The effects that the first record of an undo asks for and that are still done; it may have died before it
    began."""
    opened = next(journal.records(kinds=(Kind.OPEN,), run=info.id))
    if wanted := tuple(opened.body.get("undoing", ())):
        yield from journal.effects(Query(ids=wanted, states=(State.DONE,), newest=True))


class Cause(StrEnum):
    PLAIN = ""
    IN_DOUBT = "in_doubt"  # whether it happened cannot be asked now
    UNWATCHED = "unwatched"  # changes without a watcher were recorded, and stay
    UNDO_FINISHED = "undo_finished"
    REDO_FINISHED = "redo_finished"


class Settled(NamedTuple):
    """What recovery did, for people to read."""

    effect: str
    run: str
    summary: str
    outcome: str  # done | aborted | stuck | undone | left | dropped
    detail: str = ""  # in words, where the outcome alone does not tell
    cause: Cause = Cause.PLAIN


def in_words(one: Settled) -> str:
    told = {
        "done": "had been made; recorded as done",
        "aborted": "was not completed; its target is in the earlier state",
        "stuck": "needs a person",
        "undone": "was taken back with its run",
        "left": "stays, because someone changed it since",
        "dropped": "was dropped",
    }
    if one.cause is Cause.IN_DOUBT:
        return f"{short(one.effect)} {one.summary} {stands(one)}"
    return f"{short(one.effect)} {one.summary}: {one.detail or told[one.outcome]}"


def stands(one: Settled) -> str:
    """Of one that was not settled: why not."""
    what = "is in doubt" if one.cause is Cause.IN_DOUBT else "is not recorded yet"
    return f"{what}: {one.detail}"


def verb_of(taken_back: Effect | None) -> str:
    return "redo" if taken_back and taken_back.is_undo else "undo"


def finished(settled: Settled, of: Effect | None) -> Settled:
    verb = verb_of(of)
    cause = Cause.REDO_FINISHED if verb == "redo" else Cause.UNDO_FINISHED
    return settled._replace(detail=f"the {verb} was finished", cause=cause)


def not_undone(effect: Effect, info: RunInfo, why: str) -> Settled:
    detail = f"the {verb_of(effect)} was not finished: {why}"
    return Settled(effect.id, info.id, effect.change.summary, "left", detail)


def told_of(parts: Parts, result: UndoResult, info: RunInfo) -> list[Settled]:
    """What became of each effect of a run that was taken back, or of an undo that was finished."""
    bad = [one for one in result.targets if one.outcome not in (Outcome.UNDONE, Outcome.ALREADY)]
    why: dict[str, str] = {}
    for one in reversed(bad):  # a detail is a whole sentence, or what can be said of the target
        why[one.effect] = f"{display(one.resource)} {one.detail}" if one.detail[:1].islower() else one.detail
    stuck = {one.undoes: one for one in parts.journal.effects(Query(run=info.id, states=(State.STUCK,)))}
    finishing = info.on_death is OnDeath.FINISH
    told: list[Settled] = []
    for effect in result.effects:
        settled = Settled(effect.id, info.id, effect.change.summary, "undone")
        if effect.id in stuck:
            undo = stuck[effect.id]
            settled = Settled(undo.id, info.id, undo.change.summary, "stuck")
        elif effect.id in why:
            settled = not_undone(effect, info, why[effect.id])
            if not finishing:
                settled = settled._replace(detail=f"stays: {why[effect.id]}")
        elif finishing:
            settled = finished(settled, effect)
        told.append(settled)
    return told
