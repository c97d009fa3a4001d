"""What other effects did to a watched tree meanwhile, path by path, and how a change is told that they had part in."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from takeback.adapters.file.states import State, same
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.remedy import Target, from_json

_TELLING = ("type", "digest", "target", "mode")


class Step(NamedTuple):
    """What another effect did to a path."""

    effect: str
    target: Target
    order: int  # of the effect


Steps = Mapping[str, list[Step]]  # by resource, oldest first


def steps_of(others: Iterable[Effect]) -> dict[str, list[Step]]:
    steps: dict[str, list[Step]] = {}
    for effect in sorted(others, key=lambda one: one.order):
        for target in _targets(effect):
            steps.setdefault(target.resource, []).append(Step(effect.id, target, effect.order))
    return steps


def _targets(effect: Effect) -> tuple[Target, ...]:
    """One that changed something inside a file holds the change of the file as well."""
    inner = effect.remedy.payload.get("file", {}).get("remedy") if effect.remedy else None
    return from_json(inner).targets if inner else effect.targets


def moves_in(steps: Steps) -> dict[str, str]:
    """From where to where directories were moved whole."""
    came: dict[tuple[int, int], str] = {}
    for resource, here in steps.items():
        state = here[-1].target.after
        if "identity" in state:
            came[state["dev"], state["ino"]] = resource
    moves: dict[str, str] = {}
    for resource, here in steps.items():
        state = here[0].target.before
        if "identity" in state and here[-1].target.after["type"] == "absent":
            if to := came.get((state["dev"], state["ino"])):
                moves[resource] = to
    return moves


def mixed(target: Target, by: Sequence[Step], then: State | None = None) -> Target:
    """Whoever takes it back takes what the others did with it. `then` is how they found it, if they were the last to
    change it: when they are taken back it is that again, and can go back from there."""
    note: dict[str, Any] = {"mixed": short(by[-1].effect)}
    if then is not None and (then["type"] in ("absent", "dir") or "digest" in then or "target" in then):
        note["then"] = {key: then[key] for key in _TELLING if key in then}
        note["over"] = list(dict.fromkeys(step.effect for step in by))
    return noted(target, note)


def noted(target: Target, note: dict[str, Any]) -> Target:
    if target.after["type"] == "absent":
        return target._replace(before=target.before | note)
    return target._replace(after=target.after | note)


def note_of(target: Target) -> dict[str, Any]:
    """Empty if no other effect had a part in it."""
    state = target.before if target.after["type"] == "absent" else target.after
    return {key: state[key] for key in ("mixed", "then", "over") if key in state}


def is_mixed(target: Target) -> bool:
    return "mixed" in target.after or "mixed" in target.before


def is_around(target: Target) -> bool:
    """A directory that another removed, which is told only because something in it was changed before."""
    then = target.before.get("then", {})
    return target.before["type"] == then.get("type") == "dir" and target.after["type"] == "absent"


def explained(target: Target, here: Sequence[Step]) -> bool:
    """Whether the others did all of it."""
    state = target.before
    for step in here:
        if not alike(state, step.target.before):
            return False
        state = _stepped(state, step)
    return bool(here) and alike(state, target.after)


def left_by(here: Sequence[Step], before: State) -> State:
    """What they left; of what they gave another mode only, the rest is as it was before."""
    for step in here:
        before = _stepped(before, step)
    return before


def _stepped(state: State, step: Step) -> State:
    after = step.target.after
    return state | {"mode": after["mode"]} if "meta" in after and "mode" in state else after


def alike(one: State, other: State) -> bool:
    """A directory may be told as a whole by one and as a shell by the other."""
    if one["type"] == other["type"] == "dir":
        return one.get("mode") == other.get("mode")
    if "meta" in one or "meta" in other:
        return one["type"] == other["type"] and one.get("mode") == other.get("mode")
    return same(one, other)
