"""Effects that changed the same in turns: a command that is watched is recorded when it has ended, after those that
changed its paths meanwhile; so what it changed before them goes back after them."""

from collections.abc import Collection, Iterable

from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.remedy import Target


def went_over(effect: Effect) -> set[str]:
    """Effects that changed the same after this one did, though it was recorded after them."""
    states = (state for target in effect.targets for state in (target.before, target.after))
    return {id for state in states for id in state.get("over", ())}


def in_turn(effects: Iterable[Effect]) -> list[Effect]:
    """Newest first; but after those that went over it."""
    ordered = sorted(effects, key=lambda effect: -effect.order)
    for effect in list(ordered):
        if over := went_over(effect):
            ordered.remove(effect)
            at = [index for index, one in enumerate(ordered) if one.id in over]
            place = max(at) + 1 if at else sum(one.order > effect.order for one in ordered)
            ordered.insert(place, effect)
    return ordered


def only_forced(target: Target) -> bool:
    """A file that was captured before the effect and could not be captured after it: its old content can come back,
    but nothing tells whether what is there now is what the effect left."""
    return "excluded" in target.after and "excluded" not in target.before and "digest" in target.before


def way_to_both(effect: Effect, resources: Collection[str]) -> str:
    """How to take back what others had a part in too; empty if they had none in these."""
    states = [
        state
        for target in effect.targets
        if target.resource in resources
        for state in (target.before, target.after)
    ]
    if any("mixed" in state and "over" not in state for state in states):
        return f'`takeback undo {short(effect.id)} --force` (on_conflict="force") goes back to how it was before both.'
    if any("over" in state for state in states):
        return f"`takeback undo {short(effect.id)} --cascade` (cascade=True) takes back both."
    if any(only_forced(target) for target in effect.targets if target.resource in resources):
        return f'`takeback undo {short(effect.id)} --force` (on_conflict="force") goes back to how it was before.'
    return ""
