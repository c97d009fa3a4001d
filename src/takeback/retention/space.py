"""Effects that takeback forgets by itself when a run ends, or if a capture has no room; oldest accepted first."""

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from takeback.adapters.protocol import TRAITS, Keeper, traits_of
from takeback.engine.parts import Parts
from takeback.errors import RecordInvalid
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.run import OnDeath
from takeback.model.settings import Limits, Settings
from takeback.retention.candidates import SECOND, Verdict, decide, spare_among
from takeback.retention.forget import weighed
from takeback.storage import bodies
from takeback.storage.notes import Bound
from takeback.storage.protocols import Query

_BLOBS = ("content", "baseline", "targets")
NEEDED = (State.PROPOSED, State.INTENDED, State.DONE, State.UNDONE, State.STUCK, State.DROPPED)


def needing(parts: Parts, what: str) -> Iterator[Effect]:
    """Every effect that may need `what` it has in the store: now, or when it is settled."""
    for effect in parts.journal.effects(Query(states=NEEDED)):
        if effect.forgotten:
            continue
        if effect.change.kind == "damaged":
            raise RecordInvalid(
                f"The record of effect {short(effect.id)} is damaged, so the {what} it needs are unknown.",
                hint="Nothing was swept. `takeback verify` shows the extent; forget that effect to sweep without it.",
            )
        yield effect


def live(parts: Parts) -> Iterator[str]:
    """Every blob that a remedy lists which can still be used, or might be when its effect is settled."""
    for effect in needing(parts, "blobs"):
        if effect.remedy:
            yield from effect.remedy.blobs
        # A proposal may have no remedy yet; what it needs is named in its arguments. What is being applied may be held
        # or dropped again.
        if effect.state in (State.PROPOSED, State.INTENDED, State.DROPPED):
            yield from _named(effect)
    yield from bodies.needed(parts.journal)
    # The listings of watched trees, so that the next look need not read all files again; the variables of boxes.
    for name in [name for name, traits in TRAITS.items() if traits.keeps]:
        adapter = parts.adapters.get(name)
        if isinstance(adapter, Keeper):
            yield from adapter.needed()


def sweep(parts: Parts, grace: int, erased: Sequence[Effect] = ()) -> int:
    """`erased`: drops whose bytes go now, however young they are."""
    going = [digest for one in erased for digest in (*_blobs_of(one), *_named(one))]
    # It was all in the store when it was recorded.
    put_until = max((one.at for one in erased), default=0) // SECOND
    with parts.progress.stage("Sweeping", "blob"):
        return parts.blobs.sweep(lambda: live(parts), grace, going, put_until, parts.progress)


def _blobs_of(effect: Effect) -> tuple[str, ...]:
    return effect.remedy.blobs if effect.remedy else ()


def _named(effect: Effect) -> Iterator[str]:
    found = (*(effect.change.args.get(name) for name in _BLOBS), effect.phase.first_targets or None)
    return (digest for digest in found if isinstance(digest, str))


_AT_ONCE = 500  # of the oldest; the end of the next run continues
_PAGES = 10  # looked through for some that may go
_FILES_LOOKED_AT = 20
_FEW = 64


class Space(NamedTuple):
    """How a store stands with its disk, in bytes."""

    taken: int  # by the store, without what is pinned
    free: int  # of its disk

    def over(self, limits: Limits) -> tuple[int, Bound]:
        """How much has to go, and why; 0: nothing."""
        too_large, too_full = self.taken - limits.store, limits.free - self.free
        if too_full > too_large:
            return max(0, too_full), Bound.DISK
        return max(0, too_large), Bound.STORE


def due(parts: Parts, settings: Settings, limits: Limits, now: int, space: Space) -> list[Verdict]:
    """What goes now: by time, and as many of the oldest accepted ones as bring the store under its limits."""
    going = {one.effect.id: one for one in expired(parts, settings, now)}
    more, bound = space.over(limits)
    more -= sum(_stored(parts, one.effect) for one in going.values()) if more else 0
    if more > 0:
        limit = limits.free if bound is Bound.DISK else limits.store
        for one in overflow(parts, settings, now, more):
            going.setdefault(one.effect.id, one._replace(bound=bound.value, limit=limit))
    return list(going.values())


def crowding(parts: Parts, settings: Settings, now: int, ended: Sequence[Effect]) -> list[Verdict]:
    """For the files this run touched: accepted versions beyond the cap, oldest first."""
    decisions: list[Verdict] = []
    most = settings.versions_per_file
    # What changed a whole tree is no version of a file, and looking at each of its paths would take minutes.
    # A call is the only one of its resource.
    few = [one for one in ended if not traits_of(one.change).calls and len(one.targets) <= _FEW]
    resources = dict.fromkeys(target.resource for one in few for target in one.targets)
    for resource in list(resources)[:_FILES_LOOKED_AT]:
        these = Query(resource=resource, forgettable=True)
        if parts.journal.count(these) <= most:
            continue
        accepted = [one for one in parts.journal.effects(these) if not one.pinned]
        exactly = [one for one in accepted if any(target.resource == resource for target in one.targets)]
        surplus = exactly[: max(0, len(exactly) - most)]
        why = f"goes: there are more than {most} accepted versions of this file"
        allowed = _allowed(parts, settings, now, surplus, pressed=True)
        decisions += [one._replace(why=why, bound=Bound.VERSIONS.value, limit=most) for one in allowed]
    return decisions


def expired(parts: Parts, settings: Settings, now: int) -> list[Verdict]:
    """Of the oldest, those whose time is over; nothing is read while even the oldest is younger than that."""
    oldest = next(_oldest(parts, 1), None)
    if oldest is None or now - oldest.at < settings.accepted_seconds * SECOND:
        return []
    return _first_allowed(parts, settings, now, pressed=False)


def overflow(parts: Parts, settings: Settings, now: int, more: int) -> list[Verdict]:
    """The oldest accepted ones, as many as it takes to free that many bytes."""
    decisions: list[Verdict] = []
    for decision in _first_allowed(parts, settings, now, pressed=True):
        if more <= 0:
            break
        more -= _stored(parts, decision.effect)
        why = "goes: there is no room, and this is the oldest that was accepted"
        decisions.append(decision._replace(why=why))
    return decisions


def pinned_bytes(parts: Parts) -> int:
    """Pinned effects do not count against the cap."""
    if not parts.journal.tally().get("pinned"):
        return 0
    return _stored(parts, *parts.journal.effects(Query(pinned=True, remembered=True)))


def _first_allowed(parts: Parts, settings: Settings, now: int, pressed: bool) -> list[Verdict]:
    """The first page that has any: the oldest may all have to stay for the sake of one that stays."""
    page: list[Effect] = []
    pages = 0
    for effect in _oldest(parts):
        page.append(effect)
        if len(page) < _AT_ONCE:
            continue
        if allowed := _allowed(parts, settings, now, page, pressed):
            return allowed
        page, pages = [], pages + 1
        if pages == _PAGES:
            return []
    return _allowed(parts, settings, now, page, pressed)


def _oldest(parts: Parts, limit: int = 0) -> Iterator[Effect]:
    """What may go at all, oldest first: accepted effects, and those of the command line, which count so in time."""
    lasting = [info.id for info in parts.journal.runs(unfinished=True) if info.on_death is OnDeath.LEAVE]
    made = (State.DONE, State.UNDONE)
    sources = [parts.journal.effects(Query(forgettable=True, limit=limit))]
    of_run = Query(states=made, remembered=True, limit=limit)
    sources += [parts.journal.effects(of_run._replace(run=run)) for run in lasting]
    return (one for one in heapq.merge(*sources, key=lambda one: one.seq) if limit or not one.pinned)


def _allowed(
    parts: Parts, settings: Settings, now: int, effects: Sequence[Effect], pressed: bool
) -> list[Verdict]:
    if not effects:
        return []
    decisions = decide(weighed(parts, effects), settings, now, pressed)
    return spare_among(parts, [one for one in decisions if one.forget])


def _stored(parts: Parts, *effects: Effect) -> int:
    blobs = {blob for one in effects for blob in _blobs_of(one)}
    return sum(info.stored for info in parts.blobs.info(tuple(blobs))) if blobs else 0
