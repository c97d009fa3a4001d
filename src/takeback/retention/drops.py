"""Which drops are erased: those whose time is over, and the oldest of a project that has too many."""

from collections.abc import Sequence

from takeback.engine.parts import Parts
from takeback.model.effect import TAKEN_BACK_BY, Effect, State
from takeback.model.settings import Settings
from takeback.retention.tiers import Decision
from takeback.storage.given_up import Bound
from takeback.storage.protocols import Query


def drops_in(parts: Parts) -> tuple[Effect, ...]:
    """What was dropped and can still be applied; the oldest drop first."""
    if not parts.journal.tally().get(State.DROPPED.value):
        return ()
    found = (one for one in parts.journal.effects(Query(states=(State.DROPPED,))) if one.dropped)
    return tuple(sorted(found, key=lambda one: (one.dropped.until if one.dropped else 0, one.seq)))


def due(parts: Parts, settings: Settings, now: int) -> list[Decision]:
    """What goes now."""
    found = drops_in(parts)
    over = [one for one in found if one.dropped and one.dropped.until <= now]
    decisions = [Decision(one, True, "goes: it was dropped, and its time is over") for one in over]
    left = [one for one in found if one not in over]
    projects = (
        {info.id: info.project for info in parts.journal.runs(tuple({one.run for one in left}))}
        if left
        else {}
    )
    for project in dict.fromkeys(projects.get(one.run, "") for one in left):
        decisions += _too_many([one for one in left if projects.get(one.run, "") == project], settings)
    return decisions


def with_their_undos(parts: Parts, decisions: Sequence[Decision]) -> list[Decision]:
    """What was taken back in place was saved by an undo: its bytes go only when that one, and what it undid, are
    forgotten too."""
    args = (one.effect.change.args for one in decisions)
    named: tuple[str, ...] = tuple(one[TAKEN_BACK_BY] for one in args if TAKEN_BACK_BY in one)
    undos = tuple(parts.journal.effects(Query(ids=named, states=(State.DONE,)))) if named else ()
    of = tuple(one.undoes for one in undos)
    undone = parts.journal.effects(Query(ids=of, states=(State.UNDONE,))) if of else ()
    why = "goes: it was dropped in place, and is erased"
    both = (one for one in (*undos, *undone) if not one.pinned and not one.forgotten)
    return [*decisions, *(Decision(one, True, why) for one in both)]


def _too_many(drops: Sequence[Effect], settings: Settings) -> list[Decision]:
    """Of one project, oldest first: all but as many of the newest as there may be."""
    going: list[Decision] = []
    size = 0
    for count, effect in enumerate(reversed(drops), 1):
        size += effect.dropped.bytes if effect.dropped else 0
        if count > settings.dropped_most:
            why = f"goes: its project has more than {settings.dropped_most} drops, and this is the oldest"
            going.append(Decision(effect, True, why, Bound.DROPS.value, settings.dropped_most))
        elif size > settings.dropped_bytes:
            why = "goes: the drops of its project take too many bytes, and this is the oldest"
            going.append(Decision(effect, True, why, Bound.DROPPED.value, settings.dropped_bytes))
    return going[::-1]
