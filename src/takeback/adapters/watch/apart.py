"""What other effects are known to have done to a watched tree, taken out of what was found there."""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from takeback.adapters.file.manifest import DIGEST, MODE, PATH, TYPE, Row, read_manifest
from takeback.adapters.file.states import ABSENT, State, same
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.remedy import Target, from_json
from takeback.model.resource import ancestors, path_of
from takeback.storage.protocols import Blobs


class Step(NamedTuple):
    """What another effect did to a path."""

    effect: str
    target: Target


Steps = dict[str, list[Step]]  # by resource, oldest first


def steps_of(others: Iterable[Effect]) -> Steps:
    steps: Steps = {}
    for effect in sorted(others, key=lambda one: one.order):
        for target in _targets(effect):
            steps.setdefault(target.resource, []).append(Step(effect.id, target))
    return steps


def _targets(effect: Effect) -> tuple[Target, ...]:
    """One that changed something inside a file holds the change of the file as well."""
    inner = effect.remedy.payload.get("file", {}).get("remedy") if effect.remedy else None
    return from_json(inner).targets if inner else effect.targets


def without(
    targets: Sequence[Target], steps: Steps, roots: Sequence[str], blobs: Blobs
) -> tuple[Target, ...]:
    """What is left when the others' part is taken out. Where the change went on from what another had left, it is told
    from there; what cannot be told apart is left to the other one."""
    if not steps:
        return tuple(targets)
    others = _Others(steps, blobs)
    found = [others.rest(target) for target in _followed(targets, steps)]
    left = [target for target in found if target is not None]
    return (*left, *others.taken_away({one.resource for one in targets}, roots))


class _Others:
    def __init__(self, steps: Steps, blobs: Blobs) -> None:
        self._steps = steps
        self._blobs = blobs
        self._rows = lru_cache(maxsize=8)(self._read)

    def rest(self, target: Target) -> Target | None:
        """None: others did all of it."""
        if _explained(target, self._steps) or self._came_with_a_directory(target):
            return None
        here = self._steps.get(target.resource)
        if not here:
            return target
        left, by = here[-1].target.after, here[-1].effect
        if _alike(left, target.after):
            if target.after["type"] == "absent":
                return target
            return _left_out(target, f"effect {short(by)} changed it after this one did")
        if left["type"] == "dir" or target.after["type"] == "dir":
            return target
        if not self._is_kept(left):
            return _left_out(target, f"effect {short(by)} changed it too")
        return target._replace(before=left)

    def taken_away(self, told: set[str], roots: Sequence[str]) -> Iterator[Target]:
        """What others made meanwhile and is gone again, by the hand that is watched."""
        for resource, here in self._steps.items():
            left = here[-1].target.after
            if (
                here[0].target.before["type"] == "absent"
                and left["type"] in ("file", "symlink")
                and resource not in told
                and any(resource.startswith(f"{root.rstrip('/')}/") for root in roots)
                and not os.path.lexists(path_of(resource))
                and self._is_kept(left)
            ):
                yield Target(resource, left, ABSENT)

    def _is_kept(self, state: State) -> bool:
        return "digest" not in state or self._blobs.has(state["digest"])

    def _came_with_a_directory(self, target: Target) -> bool:
        if target.before["type"] != "absent":
            return False
        for around in ancestors(target.resource):
            here = self._steps.get(around)
            digest = here[-1].target.after.get("manifest") if here else None
            if digest and self._blobs.has(digest):
                row = self._rows(digest).get(target.resource[len(around) + 1 :])
                return row is not None and _is_row(row, target.after)
        return False

    def _read(self, digest: str) -> dict[str, Row]:
        return {row[PATH]: row for row in read_manifest(self._blobs, digest)}


def _is_row(row: Row, state: State) -> bool:
    if row[TYPE] == "link":
        return state["type"] == "file"
    if row[TYPE] != state["type"] or row[MODE] != state.get("mode", row[MODE]):
        return False
    return row[TYPE] != "file" or row[DIGEST] == state.get("digest")


def _followed(targets: Sequence[Target], steps: Steps) -> list[Target]:
    """What is in a directory that another moved: told where it is now, if it was changed at all."""
    moves = _moves(steps)
    if not moves:
        return list(targets)
    there = {target.resource: target for target in targets}
    gone: set[str] = set()
    found: list[Target] = []
    for target in targets:
        around = next((one for one in ancestors(target.resource) if one in moves), "")
        if not around or target.after["type"] != "absent":
            continue
        name = moves[around] + target.resource[len(around) :]
        now = there.get(name)
        if now and now.before["type"] != "absent":
            continue
        if now is None and os.path.lexists(path_of(name)):
            gone.add(target.resource)  # outside of what is watched
            continue
        gone |= {target.resource, name}
        after = now.after if now else ABSENT
        if not _alike(target.before, after):
            found.append(Target(name, target.before, after))
    return [target for target in targets if target.resource not in gone] + found


def _moves(steps: Steps) -> dict[str, str]:
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


def _left_out(target: Target, why: str) -> Target:
    return target._replace(after=target.after | {"excluded": why})


def _explained(target: Target, steps: Steps) -> bool:
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


def _alike(one: State, other: State) -> bool:
    """A directory may be told as a whole by one and as a shell by the other."""
    if one["type"] == other["type"] == "dir":
        return one.get("mode") == other.get("mode")
    if "meta" in one or "meta" in other:
        return one["type"] == other["type"] and one.get("mode") == other.get("mode")
    return same(one, other)
