"""Decide on what is held: make it or drop it, whoever's run it came from."""

from collections.abc import Callable

from takeback.engine.do import Terms
from takeback.engine.held import drop_held, keep_held
from takeback.engine.parts import Parts
from takeback.model.effect import PERSON, Effect
from takeback.model.plan import Outcome, TargetOutcome, UndoResult
from takeback.model.run import Owner
from takeback.storage.protocols import Query


def is_held(effect: Effect) -> bool:
    return effect.waits_for == PERSON


def decide(parts: Parts, effect: Effect, keep: bool, me: Owner, now: Callable[[], int], lasts: int) -> Effect:
    """Under the lease of its own run, so that two who decide at once do not both."""
    lease = parts.leases.acquire(effect.run, me, now(), lasts)
    try:
        (effect,) = parts.journal.effects(Query(ids=(effect.id,)))
        if keep:
            return keep_held(parts, lease, effect, effect.change, Terms(effect.key))
        return drop_held(parts, lease, effect)
    finally:
        parts.leases.release(lease)


def dropped(effects: tuple[Effect, ...]) -> UndoResult:
    """As the result of an undo: it had not been made, so all of it is as it was."""
    targets = tuple(
        TargetOutcome(target.resource, Outcome.UNDONE, "was held and is dropped", effect.id)
        for effect in effects
        for target in effect.targets
    )
    return UndoResult("done", effects, targets)
