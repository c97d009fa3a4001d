"""Later effects that stand on one: they touch what it touched, said that they need it, or nothing tells them apart."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from takeback.adapters.protocol import Dividing, Neighbouring, Relating
from takeback.engine.parts import Parts
from takeback.engine.portion import standing
from takeback.errors import InDoubt, Unavailable
from takeback.model.change import OnConflict
from takeback.model.effect import Effect, State
from takeback.model.plan import Bond
from takeback.model.remedy import APART, BY_MEANING, Target
from takeback.model.resource import Ground, ancestors
from takeback.storage.protocols import Query

_FEW = 64  # targets that are asked for one by one


class LaterEffects:
    """For several effects of one undo, so that the journal is asked once and not for each of them."""

    def __init__(self, parts: Parts, chosen: Mapping[str, Effect]) -> None:
        self.chosen = chosen  # they go themselves, so they are not in the way
        self.since: dict[str, int] = {}  # from where on each resource was looked at
        self.later: Sequence[Effect] | None = (
            None  # all that came later, where that is not much more than these
        )
        if len(chosen) > 1:
            later = _later_than(min(one.order for one in chosen.values()))
            few = 4 * len(chosen) + _FEW
            if parts.journal.count(later._replace(limit=few + 1)) <= few:
                self.later = [one for one in parts.journal.effects(later) if one.id not in chosen]


def dependents(parts: Parts, effect: Effect, asked: LaterEffects | None = None) -> Iterable[Effect]:
    """Later effects, still in force, that touch the same or a containing resource or said they need this one.

    An undo cancels out with what it undid, so neither counts; what an undo left different is found by comparing.
    """
    same = _later_on_the_same(parts, effect, asked)
    for later in (*same, *needing(parts, effect), *neighbours(parts, effect)):
        if not (later.is_undo or later.is_elsewhere) and later.id not in (effect.id, effect.undoes):
            yield later


def related(parts: Parts, effect: Effect, on_conflict: OnConflict) -> Iterable[Effect]:
    """By rows, which only the database knows. Asked for a cascade alone: without one a row that a later effect changed
    is a conflict, which names that effect, and the others of the same effect need not wait for it."""
    adapter = parts.adapters.get(effect.change.adapter)
    if not isinstance(adapter, Relating):
        return ()
    try:
        ids = tuple(adapter.standing_on(effect))
    except (Unavailable, InDoubt):
        if not on_conflict.skips:
            raise
        return ()  # it will be left itself
    return parts.journal.effects(Query(ids=ids, states=(State.DONE,), made=True)) if ids else ()


def needing(parts: Parts, effect: Effect) -> Iterable[Effect]:
    return parts.journal.effects(Query(needing=effect.id, states=(State.DONE,), made=True))


def barring_merge(parts: Parts, effect: Effect) -> Iterable[Effect]:
    """Later effects that a merge cannot leave as they are: those that said that they need this one, and those that took
    away what it had moved. Without them its content would be there twice, under its first name and its last."""
    yield from needing(parts, effect)
    if moved := _moved_to(parts, effect):
        for later in dependents(parts, effect):
            if moved.touched_by(_taken_away(standing(parts, later))):
                yield later


def _moved_to(parts: Parts, effect: Effect) -> Ground | None:
    adapter = parts.adapters.get(effect.change.adapter)
    if adapter is None or not adapter.traits.divides:
        return None
    bonds = cast("Dividing", adapter).bonds(effect)
    moved = {name for bond, names in bonds if bond is Bond.MOVE for name in names}
    there = [one.resource for one in effect.targets if one.resource in moved and not _is_absent(one.after)]
    ground = Ground()
    ground.add(there, effect.id)
    return ground if there else None


def _taken_away(effect: Effect) -> list[str]:
    return [one.resource for one in effect.targets if _is_absent(one.after) and not _is_absent(one.before)]


def _is_absent(state: dict[str, Any]) -> bool:
    return state.get("type") == "absent"


def neighbours(parts: Parts, effect: Effect) -> Iterable[Effect]:
    """Later ones that nothing tells apart from this one: refused rather than overwritten."""
    adapter = parts.adapters.get(effect.change.adapter)
    if effect.is_undo or not isinstance(adapter, Neighbouring):
        return ()
    query = Query(resource=effect.change.resource, states=(State.DONE,), told_after=effect.order, made=True)
    return [one for one in parts.journal.effects(query) if adapter.may_be_about_one(effect, one)]


def _later_than(order: int) -> Query:
    return Query(states=(State.DONE,), told_after=order, made=True)


def _later_on_the_same(parts: Parts, effect: Effect, asked: LaterEffects | None) -> Iterable[Effect]:
    if asked is not None and asked.later is not None:
        reach = _Reach(effect)
        for one in asked.later:
            fresh = one.order > effect.order and one.id not in asked.chosen
            if fresh and reach.may_meet(one) and reach.touched_by(one) and _still(parts, reach, one):
                yield one
        return
    if len(effect.targets) > 1 and parts.journal.newest() <= effect.order + 1:
        return  # nothing was recorded since, but that it was done
    later = _later_than(effect.order)
    reach = _Reach(effect)
    if len(effect.targets) <= _FEW:
        for target in effect.targets:
            if asked is not None and not effect.is_undo:
                if asked.since.get(target.resource, effect.order) < effect.order:
                    continue  # what came after an earlier one was found with that
                asked.since[target.resource] = effect.order
            found = parts.journal.effects(later._replace(resource=target.resource))
            yield from (one for one in found if reach.touched_by(one) and _still(parts, reach, one))
        return
    # Asking for each of fifty thousand paths takes longer than looking at what came later, which is seldom much.
    found = parts.journal.effects(later)
    yield from (one for one in found if reach.touched_by(one) and _still(parts, reach, one))


def _still(parts: Parts, reach: "_Reach", later: Effect) -> bool:
    """Not by paths that were taken back since."""
    stands = standing(parts, later)
    return not stands.narrowed or (bool(stands.targets) and reach.touched_by(stands))


class _Reach:
    """The paths of an effect. A journal finds others by where they began too, which may be a directory around all that
    they touched."""

    def __init__(self, effect: Effect) -> None:
        self._effect = effect.id
        self._targets = {target.resource: target for target in effect.targets}
        self._ground = Ground()
        self._ground.add(self._targets, effect.id)

    def touched_by(self, other: Effect) -> bool:
        return not other.targets or any(self._meets(target) for target in other.targets)

    def may_meet(self, other: Effect) -> bool:
        """As a journal finds it: one without targets by what it is about."""
        return bool(other.targets or self._ground.overlapping(other.change.resource))

    def _meets(self, target: Target) -> bool:
        if target.after.get(BY_MEANING) == APART:
            return False
        if any(self._effect in state.get("over", ()) for state in (target.before, target.after)):
            return False  # it was changed before
        if target.resource in self._targets:
            return True
        around = (self._targets.get(one) for one in ancestors(target.resource))
        if any(one is not None and not _is_shell(one) for one in around):
            return True
        return not _is_shell(target) and self._ground.is_around(target.resource)


def _is_shell(target: Target) -> bool:
    """A directory that stays, and gets another mode or owner: nothing in it is touched."""
    return "shell" in target.before and "shell" in target.after
