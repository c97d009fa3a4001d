"""Which effects may be forgotten and which drops erased, and why. Decides, deletes nothing."""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice
from math import inf
from typing import NamedTuple

from takeback.engine.parts import Parts
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.resource import Ground
from takeback.model.settings import DAY, HOUR, Settings, span_in_words
from takeback.storage.notes import Bound
from takeback.storage.protocols import Query

SECOND = 1_000_000


# Over a cap an effect that was accepted goes before its time, and not before this.
YOUNGEST = HOUR


class Verdict(NamedTuple):
    effect: Effect
    forget: bool
    why: str
    bound: str = ""  # of what goes by policy: a value of `Bound`
    limit: int = 0  # the number that was reached


class Weighed(NamedTuple):
    """An effect with what the decision depends on."""

    effect: Effect
    ended_at: int  # when its run ended or it was accepted; 0 while neither
    redo_gone: bool  # it is undone, and the undo was forgotten
    lasting: bool = False  # its run is that of the command line, which never ends


def decide(
    weighed: Sequence[Weighed], settings: Settings, now: int, pressed: bool = False
) -> tuple[Verdict, ...]:
    """By tier: pinned and unaccepted effects stay; accepted ones go when their time is over, or soon if `pressed`."""
    return tuple(_tier(one, settings, now, pressed) for one in weighed)


def accepted_at(one: Weighed, settings: Settings) -> int:
    """When its retention time began; 0 if it is not accepted. What was typed on the command line counts as accepted in
    time."""
    if one.effect.accepted:
        return one.ended_at
    return one.effect.at + settings.accepted_seconds * SECOND if one.lasting else 0


def _tier(one: Weighed, settings: Settings, now: int, pressed: bool) -> Verdict:
    effect = one.effect
    if effect.forgotten:
        return Verdict(effect, False, "already forgotten; its record stays for the audit")
    if effect.state is State.ABORTED:
        return Verdict(effect, False, "never happened; only its record is there")
    if effect.dropped and effect.state is State.DROPPED:
        if now >= effect.dropped.until:
            return Verdict(effect, True, "goes: it was dropped, and its time is over")
        return Verdict(effect, False, "stays for now: it was dropped, and can still be applied")
    if effect.state not in (State.DONE, State.UNDONE):
        return Verdict(effect, False, f"stays: it is {effect.state.value}")
    if effect.pinned:
        return Verdict(effect, False, "stays: it is pinned")
    if one.redo_gone:
        return Verdict(effect, True, "goes: it is undone and can no longer be brought back")
    began = accepted_at(one, settings)
    if not began:
        return Verdict(effect, False, "stays: it is not accepted, so it can be undone for ever")
    if now < began:
        days = settings.accepted_seconds // DAY
        why = f"stays: a change of the command line counts as accepted after {days} days"
        return Verdict(effect, False, why)
    age, term = (now - began) // SECOND, settings.accepted_seconds
    if age >= term:
        why = f"goes: accepted {span_in_words(age)} ago, longer than the {span_in_words(term)} it had to stay"
        return Verdict(effect, True, why, "time", term)
    if pressed and age >= YOUNGEST:
        return Verdict(effect, True, f"goes: accepted {span_in_words(age)} ago, and there is no room for it")
    left = (min(term, YOUNGEST) if pressed else term) - age
    why = f"stays: accepted {span_in_words(age)} ago, can be undone for another {span_in_words(left)}"
    return Verdict(effect, False, f"{why} while there is room")


def due(parts: Parts, settings: Settings, now: int) -> list[Verdict]:
    """What goes now, of dropped effects that can still be applied; the oldest drop first."""
    if not parts.journal.any_dropped():
        return []
    drops = (one for one in parts.journal.effects(Query(states=(State.DROPPED,))) if one.dropped)
    found = sorted(drops, key=lambda one: (one.dropped.until if one.dropped else 0, one.seq))
    over = [one for one in found if one.dropped and one.dropped.until <= now]
    decisions = [Verdict(one, True, "goes: it was dropped, and its time is over") for one in over]
    left = [one for one in found if one not in over]
    runs = parts.journal.runs(tuple({one.run for one in left})) if left else ()
    projects = {info.id: info.project for info in runs}
    for project in dict.fromkeys(projects.get(one.run, "") for one in left):
        decisions += _too_many([one for one in left if projects.get(one.run, "") == project], settings)
    return decisions


def with_their_undos(parts: Parts, decisions: Sequence[Verdict]) -> list[Verdict]:
    """With the undos that saved their content: its bytes are freed only when the undo, and the effect it undid, are
    forgotten too."""
    named = tuple(one.effect.phase.taken_back_by for one in decisions if one.effect.phase.taken_back_by)
    undos = tuple(parts.journal.effects(Query(ids=named, states=(State.DONE,)))) if named else ()
    of = tuple(one.undoes for one in undos)
    undone = parts.journal.effects(Query(ids=of, states=(State.UNDONE,))) if of else ()
    why = "goes: it was dropped in place, and is erased"
    both = (one for one in (*undos, *undone) if not one.pinned and not one.forgotten)
    return [*decisions, *(Verdict(one, True, why) for one in both)]


def _too_many(drops: Sequence[Effect], settings: Settings) -> list[Verdict]:
    """Of one project, oldest first: all but as many of the newest as there may be."""
    going: list[Verdict] = []
    size = 0
    for count, effect in enumerate(reversed(drops), 1):
        size += effect.dropped.bytes if effect.dropped else 0
        if count > settings.dropped_most:
            why = f"goes: its project has more than {settings.dropped_most} drops, and this is the oldest"
            going.append(Verdict(effect, True, why, Bound.DROPS.value, settings.dropped_most))
        elif size > settings.dropped_bytes:
            why = "goes: the drops of its project take too many bytes, and this is the oldest"
            going.append(Verdict(effect, True, why, Bound.DROPPED.value, settings.dropped_bytes))
    return going[::-1]


_NAMED = 3  # earlier effects report one that is forgotten by name


def spare(decisions: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """Of every effect there is, oldest first: what an earlier one that can be undone leans on stays as well."""
    undoable = _undoable(decisions)
    ground, standing = Ground(), set[str]()
    spared: list[Verdict] = []
    for one in decisions:
        if one.forget and _in_force(one.effect):
            earlier = ground.touched_by(_resources(one.effect)) or next(
                (n for n in one.effect.needs if n in standing), ""
            )
            if earlier:
                why = f"stays: an earlier effect, {short(earlier)}, could not be undone without it"
                one = Verdict(one.effect, False, why)
        if not one.forget and one.effect.id in undoable:
            ground.add(_resources(one.effect), one.effect.id)
            standing.add(one.effect.id)
        spared.append(one)
    return tuple(spared)


def _undoable(decisions: Sequence[Verdict]) -> set[str]:
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


def spare_among(parts: Parts, decisions: Sequence[Verdict]) -> list[Verdict]:
    """The same for a few effects of many, all of them to be forgotten: what came before is asked of the journal."""
    going = {one.effect.id: one for one in decisions}
    while True:
        resources = {target.resource for one in going.values() for target in one.effect.targets}
        first = {
            one: min((effect.order for effect in _standing(parts, one, going)), default=inf)
            for one in resources
        }
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
