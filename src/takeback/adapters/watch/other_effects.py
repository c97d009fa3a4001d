"""Changes of other effects to a watched tree during the watch, path by path, and the report of a change with several
authors."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from takeback.adapters.file.directory import ReadScope
from takeback.adapters.file.os_errors import CannotCapture
from takeback.adapters.file.states import ABSENT, FileState, same
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import see, signed_alike
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.remedy import Target, from_json
from takeback.model.resource import ancestors, file_resource, path_of
from takeback.storage.protocols import Blobs

_TELLING = ("type", "digest", "target", "mode")


class OtherStep(NamedTuple):
    effect: str
    target: Target
    order: int  # of the effect


Steps = Mapping[str, list[OtherStep]]  # by resource, oldest first


def steps_of(others: Iterable[Effect]) -> dict[str, list[OtherStep]]:
    steps: dict[str, list[OtherStep]] = {}
    for effect in sorted(others, key=lambda one: one.order):
        for target in _targets(effect):
            steps.setdefault(target.resource, []).append(OtherStep(effect.id, target, effect.order))
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


def mixed(target: Target, by: Sequence[OtherStep], then: FileState | None = None) -> Target:
    """Its undo takes the changes of the others back with it. `then` is how they found it, if they were the last to
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
    """A directory that another effect removed, listed only because something in it was changed before."""
    then = target.before.get("then", {})
    return target.before["type"] == then.get("type") == "dir" and target.after["type"] == "absent"


def explained(target: Target, here: Sequence[OtherStep]) -> bool:
    """Whether the others did all of it."""
    state = target.before
    for step in here:
        if not alike(state, step.target.before):
            return False
        state = _stepped(state, step)
    return bool(here) and alike(state, target.after)


def left_by(here: Sequence[OtherStep], before: FileState) -> FileState:
    """The state that they left; if they changed only the mode, the rest is the earlier state."""
    for step in here:
        before = _stepped(before, step)
    return before


def _stepped(state: FileState, step: OtherStep) -> FileState:
    after = step.target.after
    return state | {"mode": after["mode"]} if "meta" in after and "mode" in state else after


def alike(one: FileState, other: FileState) -> bool:
    """One effect may record a directory as a whole, the other as a shell."""
    if one["type"] == other["type"] == "dir":
        return one.get("mode") == other.get("mode")
    if "meta" in one or "meta" in other:
        return one["type"] == other["type"] and one.get("mode") == other.get("mode")
    return same(one, other)


# Content of directories that other effects moved in between: recorded at its present place, if it was changed at all.


def followed(targets: Sequence[Target], steps: Steps, roots: Sequence[str], blobs: Blobs) -> list[Target]:
    moves = moves_in(steps)
    if not moves:
        return list(targets)
    there = {target.resource: target for target in targets}
    with Places() as places:
        return _Following(there, steps, moves, roots, blobs, places).all()


class _Following:
    def __init__(
        self,
        there: Mapping[str, Target],
        steps: Steps,
        moves: Mapping[str, str],
        roots: Sequence[str],
        blobs: Blobs,
        places: Places,
    ) -> None:
        self._there = there
        self._steps = steps
        self._moves = moves
        self._roots = roots
        self._blobs = blobs
        self._places = places
        self._gone: set[str] = set()
        self._found: list[Target] = []

    def all(self) -> list[Target]:
        for target in self._there.values():
            around = next((one for one in ancestors(target.resource) if one in self._moves), "")
            to = self._moves.get(target.resource)
            if not around and to and not is_watched(to, self._roots):
                around = target.resource
            if around and target.after["type"] == "absent":
                self._follow(target, around)
        for start, to in self._moves.items():
            if not is_watched(to, self._roots):
                self._found += self._new(start, to)
        return [one for one in self._there.values() if one.resource not in self._gone] + self._found

    def _follow(self, target: Target, around: str) -> None:
        to = self._moves[around]
        name = to + target.resource[len(around) :]
        now = self._there.get(name)
        if now and now.before["type"] != "absent":
            return
        before = _renamed(target.before, around, to)
        after = now.after if now else ABSENT
        if now is None and os.path.lexists(path_of(name)):
            self._gone.add(target.resource)
            told_there = is_watched(name, self._roots) or "excluded" in before
            looked = None if told_there else seen(self._places, name, before, self._blobs)
            if looked is None:
                return
            after = looked
        self._gone |= {target.resource, name}
        if alike(before, after):
            return
        taken = self._there.get(to)
        if taken is not None and taken.before["type"] not in ("absent", "dir"):
            # It came to a place where something else had been: so it is recorded at its earlier place.
            self._found.append(mixed(target, self._steps[around], after))
        else:
            self._found.append(Target(name, before, after))

    def _new(self, start: str, to: str) -> Iterator[Target]:
        """New entries in a directory that was moved out of the watched roots."""
        for root in self._roots:
            if start == root or start.startswith(f"{root.rstrip('/')}/"):
                yield from self._new_in(start, start, to)
            elif root.startswith(f"{start}/"):
                yield from self._new_in(root, start, to)

    def _new_in(self, top: str, start: str, to: str) -> Iterator[Target]:
        for directory, folders, names in os.walk(path_of(to + top[len(start) :])):
            for name in (*folders, *names):
                resource = file_resource(os.path.join(directory, name))
                known = self._there.get(start + resource[len(to) :])
                if known is None:
                    now = seen(self._places, resource, ABSENT, self._blobs)
                    if now is not None:
                        yield Target(resource, ABSENT, now)
                elif "excluded" in known.before and name in folders:
                    folders.remove(name)  # it was not looked into then either


def is_watched(resource: str, roots: Collection[str]) -> bool:
    return any(resource.startswith(f"{root.rstrip('/')}/") for root in roots)


def seen(places: Places, resource: str, manner: FileState, blobs: Blobs) -> FileState | None:
    """The present state. None if it cannot be read."""
    try:
        place = places.within_reach(resource)
        status = place.stat() if place else None
        if place is None or status is None:
            return ABSENT
        if signed_alike(status, manner):
            return manner
        manner = {"type": "dir"} if manner["type"] == "dir" else manner
        return see(place, manner, ReadScope(blobs))
    except (OSError, CannotCapture):
        return None


def _renamed(state: FileState, start: str, to: str) -> FileState:
    """Names in it that begin with `start` begin with `to` now."""
    moved = [key for key in ("twin", "unit") if state.get(key, "").startswith(f"{start}/")]
    return state | {key: to + state[key][len(start) :] for key in moved}
