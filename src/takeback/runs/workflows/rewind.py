"""Continue from a checkpoint: later effects are undone, and those that cannot be undone are asked about."""

import json
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from takeback.adapters.protocol import traits_of
from takeback.engine.parts import Parts
from takeback.engine.plan import Wishes
from takeback.engine.undo import Undoer, not_accepted, undo
from takeback.errors import Misuse, Spent
from takeback.model.change import Change, intent
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.plan import Plan
from takeback.model.record import Draft, Kind, Record
from takeback.model.remedy import Strategy
from takeback.model.run import Checkpoint
from takeback.runs import checkpoints
from takeback.storage.protocols import Journal, Query


def point_of(parts: Parts, run: str, checkpoint: "Checkpoint | str") -> Checkpoint:
    point = checkpoints.find(parts.journal, checkpoint, run)
    if point.run != run:
        raise Misuse(
            f"Checkpoint {short(point.id)} is not of run {short(run)}.",
            hint=f"`takeback checkpoints --run {short(run)}` lists those that are.",
        )
    return point


def go_back(parts: Parts, point: Checkpoint, undoer: Undoer, *first: Draft) -> None:
    """Take back what came after the point, once `first` is recorded; raises before that when something stands in the
    way. What only a person could take back stays, and answers for itself when it is asked for again."""
    later = [one for one in not_accepted(parts, point.run) if one.order > point.seq]
    can_be = [one for one in later if one.remedy is not None and one.remedy.strategy not in _FOR_GOOD]

    @contextmanager
    def begin(plan: Plan) -> Generator[Undoer, None, None]:
        if first:
            parts.journal.append(undoer.lease, first)
        yield undoer

    undo(parts, can_be, Wishes(), begin, always_begins=True)


BACK, FORK = "back_to", "fork"
_FOR_GOOD = (Strategy.IRREVERSIBLE, Strategy.MANUAL)


class Past(NamedTuple):
    """Calls that came after a point which the run went back to, oldest first; and how often it was forked."""

    spent: tuple[Effect, ...] = ()
    forks: int = 0


def past_of(journal: Journal, run: str) -> Past:
    told = journal.records(kinds=(Kind.OPEN, Kind.REMEMBER), run=run)
    records = [one for one in told if BACK in one.body or FORK in one.body]
    if not records:
        return Past()
    calls = [one for one in journal.effects(Query(run=run, made=True)) if traits_of(one.change).calls]
    past = Past()
    for record in records:
        past = after(past, record, calls)
    return past


def after(past: Past, record: Record, calls: Iterable[Effect]) -> Past:
    """A fork starts a new run; a return makes everything after that point the past."""
    if FORK in record.body:
        return Past((), past.forks + 1)
    known = {one.id for one in past.spent}
    more = (
        one
        for one in calls
        if record.body[BACK] < one.order < record.seq
        and one.id not in known
        and _cannot_come_again(one, said=record.kind is Kind.OPEN)
    )
    return past._replace(spent=(*past.spent, *more))


def _cannot_come_again(effect: Effect, said: bool) -> bool:
    """`said`: a person resumed the run from a checkpoint, so undone steps are made again."""
    if effect.state is State.UNDONE:
        return not said
    return effect.state is State.DONE and effect.remedy is not None and effect.remedy.strategy in _FOR_GOOD


def answer(spent: Sequence[Effect], change: Change, now: int) -> Effect | None:
    """The effect that answers this request; None if it is a new one. `Spent` if a person has to decide that."""
    for one in spent:
        if intent(one.change) == intent(change) and one.state is State.DONE:
            return one
    wanted = _meaning(change, now)
    for one in spent:
        if _meaning(one.change, one.at) == wanted:
            raise _asked_about(one, change)
    return None


def _meaning(change: Change, at: int) -> Any:
    from takeback.policy.patterns import sameness

    return [change.args.get("action"), sameness(json.loads(change.args["arguments"]), at=at)]


def _asked_about(one: Effect, change: Change) -> Spent:
    became = "and taken back since" if one.state is State.UNDONE else "and cannot be taken back"
    written = "" if intent(one.change) == intent(change) else ", written in another way"
    return Spent(
        f"{change.summary}: effect {short(one.id)} did this before{written} ({one.change.summary}), {became}.",
        hint="Nothing was called. Use the recorded result; or let the program fork the run, say why, and call it "
        "again: a new intent with a key and an approval of its own.",
        effect=one.id,
    )
