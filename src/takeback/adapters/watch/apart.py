"""What other effects are known to have done to a watched tree, taken out of what was found there."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from takeback.adapters.file.manifest import (
    DIGEST,
    GID,
    MODE,
    MTIME,
    PATH,
    TYPE,
    UID,
    WHAT,
    Row,
    read_manifest,
)
from takeback.adapters.file.states import ABSENT, State, same
from takeback.adapters.file.tree import Scope
from takeback.adapters.file.trouble import CannotCapture
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import see
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.remedy import Target, from_json
from takeback.model.resource import SCHEME, ancestors, file_resource, path_of
from takeback.storage.protocols import Blobs

NOT_CAPTURED = "it came here while the command ran, and was not captured before it was removed"

NO_PLACE = "another effect changed the directory it was in meanwhile"


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
    from there; where both changed it in turns, it is told whole, and only force takes it back."""
    steps = {one: here for one, here in steps.items() if one.startswith(SCHEME) and "#" not in one}
    if not steps:
        return tuple(targets)
    others = _Others(steps, blobs, roots)
    found = [others.rest(target) for target in _followed(targets, steps)]
    left = {target.resource: target for target in found if target is not None}
    told = {target.resource for target in targets}
    for target in others.overturned(told):
        left.setdefault(target.resource, target)
    return tuple(_possible(target, left) for target in left.values())


def _possible(target: Target, all: Mapping[str, Target]) -> Target:
    """What lies in something that is told to be no directory cannot be put back in it."""
    around = all.get(target.resource.rpartition("/")[0])
    for state, outer in ((target.before, "before"), (target.after, "after")):
        if around and state["type"] != "absent" and getattr(around, outer)["type"] != "dir":
            return target._replace(after=target.after | {"excluded": NO_PLACE})
    return target


class _Others:
    def __init__(self, steps: Steps, blobs: Blobs, roots: Sequence[str]) -> None:
        self._steps = steps
        self._blobs = blobs
        self._roots = roots
        self._rows = lru_cache(maxsize=8)(self._read)

    def rest(self, target: Target) -> Target | None:
        """None: others did all of it."""
        here = self._steps.get(target.resource)
        if _explained(target, here) or self._came_with_a_directory(target):
            return None
        around = next((one for one in ancestors(target.resource) if _removed(self._steps.get(one))), "")
        if around and target.after["type"] != "absent":
            return target._replace(before=ABSENT)  # removed by another, and made anew
        if around:
            return None if self._went_with(target, around) else _mixed(target, self._steps[around][-1].effect)
        if not here:
            return target
        left, by = here[-1].target.after, here[-1].effect
        if left["type"] == "absent" and target.before["type"] == target.after["type"] == "dir":
            return target._replace(before=ABSENT)
        if "dir" in (left["type"], target.before["type"], target.after["type"]):
            return target
        went_on = _alike(target.before, here[0].target.before) and not _alike(left, target.after)
        if went_on and self._is_kept(left):
            return target._replace(before=left)
        return _mixed(target, by)

    def overturned(self, told: Collection[str]) -> Iterator[Target]:
        """What others made, brought or changed meanwhile, and is as it was at the beginning again, by the hand that is
        watched: a comparison with the beginning shows nothing of it."""
        with Places() as places:
            for resource, here in self._steps.items():
                if self._is_watched(resource):
                    yield from self._overturned(resource, here, told, places)

    def _overturned(
        self, resource: str, here: list[Step], told: Collection[str], places: Places
    ) -> Iterator[Target]:
        before, left = here[0].target.before, here[-1].target.after
        now = _seen(places, resource, left, self._blobs)
        if "manifest" in left and self._blobs.has(left["manifest"]):
            yield from self._entries_gone(resource, left["manifest"])
        if now is None or self._moved_back(before, now) or self._moved_back(left, now):
            return
        if left["type"] == "dir":
            if now["type"] == "absent" and before["type"] == "absent":
                yield Target(
                    resource, _shell(left, "" if self._is_known(resource, left) else NOT_CAPTURED), ABSENT
                )
        elif before["type"] == "dir":
            if left["type"] == "absent" and now["type"] == "dir":
                yield Target(resource, ABSENT, now)
                yield from self._all_in(resource, told, places)
        elif resource not in told and not _alike(left, now):
            kept = left if self._is_kept(left) else left | {"excluded": NOT_CAPTURED}
            yield Target(resource, kept, now)

    def _moved_back(self, state: State, now: State) -> bool:
        """A directory that is still the same, or is again at some place where it was."""
        if "identity" not in state:
            return False
        inode = (state["dev"], state["ino"])
        return any(_inode(one) == inode for one in self._steps)

    def _is_known(self, resource: str, left: State) -> bool:
        """Whether what is in a directory is known: not if it was moved here from elsewhere."""
        return "identity" not in left or any(
            to == resource and self._is_watched(start) for start, to in _moves(self._steps).items()
        )

    def _all_in(self, resource: str, told: Collection[str], places: Places) -> Iterator[Target]:
        """Everything in a directory that is there again is new."""
        for directory, folders, names in os.walk(path_of(resource)):
            for name in (*folders, *names):
                inside = file_resource(os.path.join(directory, name))
                now = _seen(places, inside, ABSENT, self._blobs) if inside not in told else None
                if now is not None:
                    yield Target(inside, ABSENT, now)

    def _is_watched(self, resource: str) -> bool:
        return any(resource.startswith(f"{root.rstrip('/')}/") for root in self._roots)

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

    def _went_with(self, target: Target, around: str) -> bool:
        """With a directory that was removed whole, just as it was at the beginning."""
        digest = self._steps[around][0].target.before["manifest"]
        row = self._rows(digest).get(target.resource[len(around) + 1 :]) if self._blobs.has(digest) else None
        return row is not None and _is_row(row, target.before)

    def _entries_gone(self, around: str, digest: str) -> Iterator[Target]:
        for path, row in self._rows(digest).items():
            resource = f"{around}/{path}"
            if row[TYPE] in ("dir", "file") and not os.path.lexists(path_of(resource)):
                state = {
                    "type": row[TYPE],
                    "mode": row[MODE],
                    "uid": row[UID],
                    "gid": row[GID],
                    "mtime": row[MTIME],
                }
                if row[TYPE] == "dir":
                    yield Target(resource, _shell(state), ABSENT)
                elif self._blobs.has(row[DIGEST]):
                    yield Target(resource, state | {"size": row[WHAT], "digest": row[DIGEST]}, ABSENT)

    def _read(self, digest: str) -> dict[str, Row]:
        return {row[PATH]: row for row in read_manifest(self._blobs, digest)}


def _seen(places: Places, resource: str, manner: State, blobs: Blobs) -> State | None:
    """None where nobody can look."""
    try:
        place = places.within_reach(resource)
        if place is None:
            return ABSENT
        manner = {"type": "dir"} if manner["type"] == "dir" else manner
        return see(place, manner, Scope(blobs))
    except (OSError, CannotCapture):
        return None


def _inode(resource: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path_of(resource))
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _shell(state: State, excluded: str = "") -> State:
    """Of a directory only what it is itself."""
    kept = {name: state[name] for name in ("mode", "uid", "gid", "mtime")}
    return {"type": "dir", "shell": True, **kept} | ({"excluded": excluded} if excluded else {})


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


def _mixed(target: Target, by: str) -> Target:
    """Whoever takes it back takes what the other did with it."""
    note = {"mixed": short(by)}
    if target.after["type"] == "absent":
        return target._replace(before=target.before | note)
    return target._replace(after=target.after | note)


def is_mixed(target: Target) -> bool:
    return "mixed" in target.after or "mixed" in target.before


def _explained(target: Target, here: list[Step] | None) -> bool:
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
