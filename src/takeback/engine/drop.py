"""A change that is not made stays for a while: what it would leave is in the store, and `apply` makes it after all."""

from enum import StrEnum

from takeback.engine.guards import DROP
from takeback.engine.parts import DropLimits, Parts, draft
from takeback.engine.write import Terms, ready
from takeback.errors import StoreFull
from takeback.model.change import Change
from takeback.model.effect import PERSON, Dropped, DropReason, Effect, State, drop_body
from takeback.model.record import Draft, Kind
from takeback.model.run import Lease

SECOND = 1_000_000

_WHY = {
    DropReason.FAILED: "Its command failed.",
    DropReason.INTERRUPTED: "Its command was interrupted.",
    DropReason.DISCARDED: "It was held and then dropped.",
    DropReason.BOX: "Everything in the box was discarded.",
    DropReason.KILLED: "takeback was killed before the changes of the command were merged.",
}


class Final(StrEnum):
    """Why a drop cannot be taken back; the value is in JSON."""

    OFF = "off"  # `dropped_seconds` is 0
    LARGE = "large"  # more than `dropped_bytes`
    ROOM = "room"  # the store's disk is full
    UNREADABLE = "unreadable"  # part of it could not be read, or not be brought back as it was
    DATABASE = "database"  # a database rolls back for good


def refusal(limits: DropLimits, size: int) -> Final | None:
    """Why what takes this many bytes cannot be held when it is dropped; None: it can."""
    if not limits.seconds:
        return Final.OFF
    if size > limits.bytes:
        return Final.LARGE
    try:
        limits.refuse_without_room(size)
    except StoreFull:
        return Final.ROOM
    return None


def drop(
    parts: Parts, lease: Lease, change: Change, terms: Terms, reason: DropReason, size: int | None = None
) -> Effect | None:
    """Proposed and dropped in one step: there is no moment in which it waits for a person. `size`: in bytes, where its
    targets do not tell."""
    change = change._replace(phase=change.phase._replace(waits=PERSON))
    made = ready(parts, lease, change, terms._replace(key=""), DROP)
    if made is None:
        return None
    effect = made.effect
    dropped = _dropped(parts, effect, reason)
    dropped = dropped if size is None else dropped._replace(bytes=size)
    drafts = [draft(parts, Kind.PROPOSE, effect), _record(effect, dropped)]
    first, second = parts.journal.append(lease, drafts)
    return effect._replace(
        seq=first.seq, told=first.seq, at=second.at, state=State.DROPPED, dropped=dropped, note=_WHY[reason]
    )


def drop_held(parts: Parts, lease: Lease, effect: Effect, reason: DropReason) -> Effect:
    """One that waited for a person."""
    dropped = _dropped(parts, effect, reason)
    parts.journal.append(lease, [_record(effect, dropped)])
    return effect._replace(state=State.DROPPED, dropped=dropped, note=_WHY[reason])


def size_of(effect: Effect) -> int:
    """Bytes of the files that it would leave."""
    return sum(target.after.get("size", 0) for target in effect.targets)


def _dropped(parts: Parts, effect: Effect, reason: DropReason) -> Dropped:
    limits = parts.drops
    return Dropped(reason, limits.now() + limits.seconds * SECOND, size_of(effect))


def _record(effect: Effect, dropped: Dropped) -> Draft:
    return Draft(Kind.DROP, effect.run, effect.id, drop_body(dropped, _WHY[dropped.reason]))
