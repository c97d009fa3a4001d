"""What other effects are known to have done to a watched tree, taken out of what was found there."""

from collections.abc import Iterable
from typing import NamedTuple

from takeback.adapters.file.states import same
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.remedy import Target
from takeback.model.resource import ancestors


class Step(NamedTuple):
    """What another effect did to a path."""

    effect: str
    target: Target


Steps = dict[str, list[Step]]  # by resource, oldest first


def steps_of(others: Iterable[Effect]) -> Steps:
    steps: Steps = {}
    for effect in sorted(others, key=lambda one: one.order):
        for target in effect.targets:
            steps.setdefault(target.resource, []).append(Step(effect.id, target))
    return steps


def without(targets: Iterable[Target], steps: Steps) -> tuple[Target, ...]:
    return tuple(_ours(target, steps) for target in targets if not _explained(target, steps))


def _ours(target: Target, steps: dict[str, list[Step]]) -> Target:
    here = steps.get(target.resource)
    if not here or not _alike(here[-1].target.after, target.after) or target.after["type"] == "absent":
        return target
    why = f"effect {short(here[-1].effect)} changed it after this one did"
    return target._replace(after=target.after | {"excluded": why})


def _explained(target: Target, steps: dict[str, list[Step]]) -> bool:
    if target.after["type"] == "absent" and any(
        _removed(steps.get(one)) for one in ancestors(target.resource)
    ):
        return True
    here = steps.get(target.resource)
    if not here:
        return False
    state = target.before
    for step in here:
        if not _alike(state, step.target.before):
            return False
        state = step.target.after
    return _alike(state, target.after)


def _removed(steps: list[Step] | None) -> bool:
    return bool(steps) and steps[-1].target.after["type"] == "absent" and "manifest" in steps[0].target.before


def _alike(one: dict[str, object], other: dict[str, object]) -> bool:
    """A directory may be told as a whole by one and as a shell by the other."""
    if one["type"] == other["type"] == "dir":
        return one.get("mode") == other.get("mode")
    if "meta" in one or "meta" in other:
        return one["type"] == other["type"] and one.get("mode") == other.get("mode")
    return same(one, other)
