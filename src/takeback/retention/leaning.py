"""Undo goes newest first, so an effect that is forgotten bars the way back of every earlier one that it overlaps."""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice
from math import inf

from takeback.engine.parts import Parts
from takeback.model.effect import Effect, State
from takeback.model.ground import Ground
from takeback.model.ids import short
from takeback.retention.tiers import Decision
from takeback.storage.protocols import Query

_NAMED = 3  # earlier effects told of one that is forgotten by name


def spare(decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """Of every effect there is, oldest first: what an earlier one that can be undone leans on stays as well."""
    undoable = _undoable(decisions)
    ground, standing = Ground(), set[str]()
    spared: list[Decision] = []
    for one in decisions:
        if one.forget and _in_force(one.effect):
            earlier = ground.touched_by(_resources(one.effect)) or next(
                (n for n in one.effect.needs if n in standing), ""
            )
            if earlier:
                why = f"stays: an earlier effect, {short(earlier)}, could not be undone without it"
                one = Decision(one.effect, False, why)
        if not one.forget and one.effect.id in undoable:
            ground.add(_resources(one.effect), one.effect.id)
            standing.add(one.effect.id)
        spared.append(one)
    return tuple(spared)


def _undoable(decisions: Sequence[Decision]) -> set[str]:
    """Those in force whose way back nothing bars that was forgotten by name."""
    barred, needed = Ground(), set[str]()
    undoable: set[str] = set()
    for effect in (one.effect for one in reversed(decisions) if _in_force(one.effect)):
        if effect.forgotten:
            barred.add(_resources(effect), effect.id)
            needed.update(effect.needs)
        elif effect.id not in needed and not barred.touched_by(_resources(effect)):
            undoable.add(effect.id)
    return undoable


def spare_among(parts: Parts, decisions: Sequence[Decision]) -> list[Decision]:
    """The same for a few effects of many, all of them to be forgotten: what came before is asked of the journal."""
    going = {one.effect.id: one for one in decisions}
    while True:
        resources = {target.resource for one in going.values() for target in one.effect.targets}
        first = {one: _first_standing(parts, one, going) for one in resources}
        staying = [
            one.effect.id
            for one in going.values()
            if _in_force(one.effect)
            and (
                any(first[target.resource] < one.effect.order for target in one.effect.targets)
                or any(True for _ in _needed(parts, one.effect, going))
            )
        ]
        if not staying:
            return list(going.values())
        for id in staying:
            del going[id]


def barred_without(parts: Parts, effect: Effect, going: Collection[str]) -> str:
    """Which earlier effects can no longer be undone once this one is forgotten, in words; empty if none."""
    if not _in_force(effect):
        return ""
    found = {one.id: None for one in islice(earlier_standing(parts, effect, going), _NAMED + 1)}
    if not found:
        return ""
    names = [short(id) for id in found][:_NAMED] + (["others"] if len(found) > _NAMED else [])
    listed = " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else names[0]
    return f"{listed}, which came before, can then no longer be undone either"


def earlier_standing(parts: Parts, effect: Effect, going: Collection[str]) -> Iterator[Effect]:
    """Those before it that could not be undone without it, each once."""
    if not _in_force(effect):
        return
    seen: set[str] = set()
    around = (one for target in effect.targets for one in _standing(parts, target.resource, going))
    for one in chain(_needed(parts, effect, going), (one for one in around if one.order < effect.order)):
        if one.id not in seen:
            seen.add(one.id)
            yield one


def _first_standing(parts: Parts, resource: str, going: Collection[str]) -> float:
    return min((effect.order for effect in _standing(parts, resource, going)), default=inf)


def _standing(parts: Parts, resource: str, going: Collection[str]) -> Iterator[Effect]:
    query = Query(resource=resource, states=(State.DONE,), remembered=True)
    return (one for one in parts.journal.effects(query) if _in_force(one) and one.id not in going)


def _needed(parts: Parts, effect: Effect, going: Collection[str]) -> Iterator[Effect]:
    query = Query(ids=effect.needs, damaged_too=True)
    found = parts.journal.effects(query) if effect.needs else ()
    return (one for one in found if _in_force(one) and not one.forgotten and one.id not in going)


def _in_force(effect: Effect) -> bool:
    """An undo cancels out with what it undid, so neither bars anything."""
    return effect.state is State.DONE and not effect.is_undo


def _resources(effect: Effect) -> Iterator[str]:
    return (target.resource for target in effect.targets)
