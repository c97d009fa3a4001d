"""Which effects a rehearsal is about."""

from collections.abc import Iterator

from takeback.engine.parts import Parts
from takeback.engine.plan import Wishes, plan_undo
from takeback.engine.rehearse import unfit
from takeback.errors import TakebackError
from takeback.model.effect import Effect, State
from takeback.model.rehearsal import Proven
from takeback.storage.protocols import Journal, Query

Kinds = dict[tuple[str, str], Proven]
DAY = 86_400_000_000  # microseconds
_TRIED = 20  # of one kind, before one with later effects on it is taken


def in_force(journal: Journal) -> Iterator[Effect]:
    """Newest first, with those that have a way back which can be tried."""
    which = Query(states=(State.DONE,), remembered=True, made=True, newest=True)
    return (one for one in journal.effects(which) if not unfit(one))


def kind_of(effect: Effect) -> tuple[str, str]:
    return effect.change.adapter, effect.remedy.strategy.value if effect.remedy else ""


def with_every_kind(journal: Journal, kinds: Kinds, never: Proven) -> Kinds:
    """Also those of effects in force that were never tried."""
    return {kind_of(one): never for one in in_force(journal)} | kinds


def due(parts: Parts, kinds: Kinds, days: int, now: int) -> tuple[Effect, ...]:
    """One effect of each kind whose last proof is older than that: the newest that nothing stands on."""
    fresh = {kind for kind, one in kinds.items() if one.worked_at and one.worked_at > now - days * DAY}
    chosen: dict[tuple[str, str], Effect] = {}
    free: set[tuple[str, str]] = set()
    looked: dict[tuple[str, str], int] = {}
    for effect in in_force(parts.journal):
        kind = kind_of(effect)
        if kind in fresh or kind in free or looked.get(kind, 0) >= _TRIED:
            continue
        chosen.setdefault(kind, effect)
        looked[kind] = looked.get(kind, 0) + 1
        if not _stood_on(parts, effect):
            chosen[kind] = effect
            free.add(kind)
    return tuple(chosen.values())


def _stood_on(parts: Parts, effect: Effect) -> bool:
    try:
        return bool(plan_undo(parts, (effect,), Wishes()).blockers)
    except TakebackError:
        return False  # the rehearsal says what is wrong with it


def with_later(parts: Parts, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
    """With all later effects that depend on these, as `--cascade` takes them. Of what cannot even be planned the
    rehearsal says why."""
    try:
        return plan_undo(parts, effects, Wishes(cascade=True)).effects or effects
    except TakebackError:
        return effects
