"""Old effects go away by themselves: when a run ends, the store is brought under its caps, oldest accepted first."""

from collections.abc import Sequence

from takeback.engine.parts import Parts
from takeback.model.effect import Effect
from takeback.model.settings import Settings
from takeback.retention.forget import forget, weighed
from takeback.retention.leaning import spare_among
from takeback.retention.tiers import Decision, decide
from takeback.storage.protocols import Query

_AT_ONCE = 500  # of the oldest; the next run's end goes on
_PAGES = 10  # looked through for some that may go
_FILES_LOOKED_AT = 20
_FEW = 64


def crowding(parts: Parts, settings: Settings, now: int, ended: Sequence[Effect]) -> list[Decision]:
    """For the files this run touched: accepted versions beyond the cap, oldest first."""
    decisions: list[Decision] = []
    # What changed a whole tree is no version of a file, and looking at each of its paths would take minutes.
    # A call is the only one of its resource.
    few = [one for one in ended if one.change.adapter != "call" and len(one.targets) <= _FEW]
    resources = dict.fromkeys(target.resource for one in few for target in one.targets)
    for resource in list(resources)[:_FILES_LOOKED_AT]:
        these = Query(resource=resource, forgettable=True)
        if parts.journal.count(these) <= settings.versions_per_file:
            continue
        kept = list(parts.journal.effects(these))
        exactly = [one for one in kept if any(target.resource == resource for target in one.targets)]
        surplus = exactly[: max(0, len(exactly) - settings.versions_per_file)]
        why = f"goes: there are more than {settings.versions_per_file} accepted versions of this file"
        decisions += [one._replace(why=why) for one in _allowed(parts, settings, now, surplus)]
    return decisions


def overflow(parts: Parts, settings: Settings, now: int, total: int) -> list[Decision]:
    """The oldest accepted ones, as many as it takes to come under the store's cap."""
    decisions: list[Decision] = []
    for decision in _oldest_allowed(parts, settings, now):
        if total <= settings.store_bytes:
            break
        total -= _stored(parts, decision.effect)
        why = f"goes: the store is over its {settings.store_bytes:,} bytes, and this is the oldest that was accepted"
        decisions.append(decision._replace(why=why))
    return decisions


def keep_up(
    parts: Parts, settings: Settings, now: int, total: int, ended: Sequence[Effect], held: str
) -> bool:
    """Whether something was forgotten, so that sweeping is worth it."""
    decisions = crowding(parts, settings, now, ended)
    if total > settings.store_bytes:
        chosen = {one.effect.id for one in decisions}
        decisions += [one for one in overflow(parts, settings, now, total) if one.effect.id not in chosen]
    unique = {one.effect.id: one for one in decisions}
    forget(parts, list(unique.values()), held)
    return bool(unique)


def _oldest_allowed(parts: Parts, settings: Settings, now: int) -> list[Decision]:
    """The first page that has any: the oldest may all have to stay for the sake of one that nobody accepted."""
    after = 0
    for _ in range(_PAGES):
        page = list(parts.journal.effects(Query(forgettable=True, after=after, limit=_AT_ONCE)))
        if allowed := _allowed(parts, settings, now, page):
            return allowed
        if len(page) < _AT_ONCE:
            break
        after = page[-1].seq
    return []


def _allowed(parts: Parts, settings: Settings, now: int, effects: Sequence[Effect]) -> list[Decision]:
    if not effects:
        return []
    return spare_among(parts, [one for one in decide(weighed(parts, effects), settings, now) if one.forget])


def _stored(parts: Parts, effect: Effect) -> int:
    blobs = effect.remedy.blobs if effect.remedy else ()
    return sum(info.stored for info in parts.blobs.info(blobs)) if blobs else 0
