"""What other effects are known to have done to a watched tree, taken out of what was found there."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

from takeback.adapters.file.build import file_state, node_state
from takeback.adapters.file.directory import DIGEST, MODE, PATH, TYPE, Row, read_manifest
from takeback.adapters.file.states import ABSENT, FileState
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import shell_of
from takeback.adapters.watch.other_effects import (
    OtherStep,
    Steps,
    alike,
    explained,
    followed,
    is_watched,
    left_by,
    mixed,
    moves_in,
    note_of,
    noted,
    seen,
)
from takeback.model.remedy import Target
from takeback.model.resource import SCHEME, ancestors, file_resource, path_of
from takeback.storage.protocols import Blobs

NOT_CAPTURED = "it was created while the command ran, and removed before it was captured"

NO_PLACE = "another effect changed its directory at the same time"


def without(
    targets: Sequence[Target], steps: Steps, roots: Sequence[str], blobs: Blobs
) -> tuple[Target, ...]:
    """The change without the part of others. If it began where another had stopped, it is recorded from there. If both
    changed the path in turns, it is recorded whole, and only force takes it back, or the undo of both."""
    steps = {one: here for one, here in steps.items() if one.startswith(SCHEME) and "#" not in one}
    if not steps:
        return tuple(targets)
    others = _Others(steps, blobs, roots)
    found = [others.rest(target) for target in followed(targets, steps, roots, blobs)]
    left = {target.resource: target for target in found if target is not None}
    told = {target.resource for target in targets}
    for target in others.overturned(told):
        left.setdefault(target.resource, target)
    _add_directories(left, {target.resource: target for target in targets}, roots)
    _name_those_inside(left, steps)
    return tuple(_possible(target, left) for target in left.values())


def brought_back(targets: Sequence[Target], steps: Steps, blobs: Blobs) -> frozenset[str]:
    """Paths that are now as others restored them, together with a directory that they had removed: so they were changed
    before."""
    others = _Others(steps, blobs, ()) if steps else None
    return frozenset(one.resource for one in targets if others and others.is_brought_back(one))


def _add_directories(left: dict[str, Target], all: Mapping[str, Target], roots: Sequence[str]) -> None:
    """A path that comes back needs the directories above it, also those that another effect removed."""
    for target in list(left.values()):
        if target.after["type"] != "absent" or "excluded" in target.before:
            continue
        note = note_of(target)
        for around in ancestors(target.resource):
            inside = around in roots or is_watched(around, roots)
            if around in left or not inside or os.path.lexists(path_of(around)):
                break
            known = all[around].before if around in all else ABSENT
            before = known if known["type"] == "dir" else _like_the_one_around(around)
            then = {"then": {"type": "dir"}} if "then" in note else {}
            left[around] = noted(Target(around, before, ABSENT), note | then)


def _name_those_inside(left: dict[str, Target], steps: Steps) -> None:
    """Who put something into a directory that was made here goes back before it."""
    for resource, here in steps.items():
        for around in ancestors(resource) if here[-1].target.after["type"] != "absent" else ():
            target = left.get(around)
            if target and target.after["type"] == "dir" and target.before["type"] != "dir":
                over = [*target.after.get("over", ()), *(step.effect for step in here)]
                left[around] = target._replace(after=target.after | {"over": list(dict.fromkeys(over))})


def _like_the_one_around(resource: str) -> FileState:
    """For a directory whose earlier state is unknown."""
    for around in ancestors(resource):
        with suppress(OSError):
            return shell_of(os.lstat(path_of(around)), {})
    return shell_of(os.lstat("/"), {})


def _possible(target: Target, all: Mapping[str, Target]) -> Target:
    """A path cannot be restored inside something that is recorded as no directory."""
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
        self._moves = moves_in(steps)
        self._origins = {to: start for start, to in self._moves.items()}
        self._rows = lru_cache(maxsize=8)(self._read)

    def rest(self, target: Target) -> Target | None:
        """None: others did all of it."""
        here, moved = self._here(target.resource)
        came = target.before["type"] == "absent"
        if explained(target, here) or (came and self.is_brought_back(target)):
            return None
        around = next((one for one in ancestors(target.resource) if _removed(self._steps.get(one))), "")
        if around and target.after["type"] != "absent":
            return target._replace(before=ABSENT)  # removed by another, and made again
        if around:
            # Gone with a directory that was removed whole, just as it was at the beginning?
            row = self._row(self._steps[around][0].target.before["manifest"], target.resource, around)
            if row is not None and _is_row(row, target.before):
                return None
        if target.after["type"] == "absent" and (around := around or self._gone_around(target.resource)):
            then = here[0].target.before if here else self._was(target, around)
            return mixed(target, (*here, *self._steps[around]), None if moved else then)
        if not here:
            return target
        return self._apart_from(target, here, moved)

    def _apart_from(self, target: Target, here: Sequence[OtherStep], moved: bool) -> Target:
        first, left = here[0].target.before, left_by(here, target.before)
        types = (left["type"], target.before["type"], target.after["type"])
        if types[1] == types[2] != "dir" and all("meta" in step.target.after for step in here):
            return target._replace(before=left)  # they changed nothing but the mode
        last = alike(left, target.after)  # not changed after them
        if last and alike(left, first):
            return target  # theirs was taken back
        if left["type"] == "absent" and types[1] == types[2] == "dir":
            return target._replace(before=ABSENT)
        if last:
            then = target.after | {"mode": first["mode"]} if "meta" in first else first
            return mixed(target, here, None if moved else then)
        if "dir" in types:
            return target
        if alike(target.before, first) and self._is_kept(left):
            return target._replace(before=left)
        return mixed(target, here)

    def _here(self, resource: str) -> tuple[Sequence[OtherStep], bool]:
        """Changes by others, also at its place before they moved the directory above it; and whether they moved it."""
        here = self._steps.get(resource, [])
        for around in ancestors(resource):
            if start := self._origins.get(around):
                earlier = self._steps.get(start + resource[len(around) :], [])
                return (*earlier, *here), bool(earlier)
        return here, False

    def _gone_around(self, resource: str) -> str:
        """A directory around it that another removed, path by path; empty if none did."""
        for around in ancestors(resource):
            here = self._steps.get(around)
            if here and here[-1].target.after["type"] == "absent" and here[0].target.before["type"] == "dir":
                return around if around not in self._moves else ""
        return ""

    def _was(self, target: Target, around: str) -> FileState | None:
        """How the other found it, in a directory that it removed whole."""
        digest = self._steps[around][0].target.before.get("manifest")
        if digest is None:
            return ABSENT  # the other lists the earlier content path by path
        if not self._blobs.has(digest):
            return None
        row = self._row(digest, target.resource, around)
        if row is None:
            return ABSENT
        if row[TYPE] == "file":
            return {"type": "file", "mode": row[MODE], "digest": row[DIGEST]}
        return {"type": "dir"} if row[TYPE] == "dir" else None

    def overturned(self, told: Collection[str]) -> Iterator[Target]:
        """Paths that others changed in between and that the watched process returned to their first state: a comparison
        with the beginning does not show them."""
        with Places() as places:
            for resource, here in self._steps.items():
                if is_watched(resource, self._roots):
                    yield from self._overturned(resource, here, told, places)

    def _overturned(
        self, resource: str, here: list[OtherStep], told: Collection[str], places: Places
    ) -> Iterator[Target]:
        order, around = here[-1].order, (self._steps.get(one) for one in ancestors(resource))
        if any(one[-1].order > order and one[-1].target.after["type"] == "absent" for one in around if one):
            return  # with a directory that another moved away or removed after that
        before = here[0].target.before
        left = left_by(here, before)
        now = seen(places, resource, left, self._blobs)
        if "manifest" in left and self._blobs.has(left["manifest"]):
            yield from self._entries_gone(resource, left["manifest"])
        if now is None or self._moved_back(before) or self._moved_back(left):
            return
        if left["type"] == "dir":
            if now["type"] == "absent" and before["type"] == "absent":
                excluded = "" if self._is_known(resource, left) else NOT_CAPTURED
                yield Target(resource, _shell(left, excluded), ABSENT)
        elif before["type"] == "dir":
            if left["type"] == "absent" and now["type"] == "dir":
                yield Target(resource, ABSENT, now)
                yield from self._all_in(resource, told, places)
        elif "meta" in left and now["type"] == "absent":
            return  # it was not theirs
        elif resource not in told and not alike(left, now):
            kept = left if self._is_kept(left) else left | {"excluded": NOT_CAPTURED}
            yield Target(resource, kept, now)

    def _moved_back(self, state: FileState) -> bool:
        """A directory that is still the same, or is again at some place where it was."""
        if "identity" not in state:
            return False
        for one in self._steps:
            with suppress(OSError):
                status = os.lstat(path_of(one))
                if (status.st_dev, status.st_ino) == (state["dev"], state["ino"]):
                    return True
        return False

    def _is_known(self, resource: str, left: FileState) -> bool:
        """Whether what is in a directory is known: not if it was moved here from elsewhere."""
        return "identity" not in left or any(
            to == resource and is_watched(start, self._roots) for start, to in self._moves.items()
        )

    def _all_in(self, resource: str, told: Collection[str], places: Places) -> Iterator[Target]:
        """Everything in a directory that is there again is new."""
        for directory, folders, names in os.walk(path_of(resource)):
            for name in (*folders, *names):
                inside = file_resource(os.path.join(directory, name))
                now = seen(places, inside, ABSENT, self._blobs) if inside not in told else None
                if now is not None:
                    yield Target(inside, ABSENT, now)

    def _is_kept(self, state: FileState) -> bool:
        return "digest" not in state or self._blobs.has(state["digest"])

    def is_brought_back(self, target: Target) -> bool:
        """It is as it was in a directory that others made whole."""
        for around in ancestors(target.resource):
            here = self._steps.get(around)
            digest = here[-1].target.after.get("manifest") if here else None
            if digest and self._blobs.has(digest):
                row = self._row(digest, target.resource, around)
                return row is not None and _is_row(row, target.after)
        return False

    def _row(self, digest: str, resource: str, around: str) -> Row | None:
        """The entry of a path in the manifest of a directory."""
        return self._rows(digest).get(resource[len(around) + 1 :]) if self._blobs.has(digest) else None

    def _entries_gone(self, around: str, digest: str) -> Iterator[Target]:
        for path, row in self._rows(digest).items():
            resource = f"{around}/{path}"
            if row[TYPE] in ("dir", "file") and not os.path.lexists(path_of(resource)):
                if row[TYPE] == "dir":
                    yield Target(resource, _shell(node_state(row)), ABSENT)
                elif self._blobs.has(row[DIGEST]):
                    state = file_state(row)
                    state.pop("xattrs", None)
                    yield Target(resource, state, ABSENT)

    def _read(self, digest: str) -> dict[str, Row]:
        return {row[PATH]: row for row in read_manifest(self._blobs, digest)}


def _shell(state: FileState, excluded: str = "") -> FileState:
    kept = {name: state[name] for name in ("mode", "uid", "gid", "mtime")}
    return {"type": "dir", "shell": True, **kept} | ({"excluded": excluded} if excluded else {})


def _is_row(row: Row, state: FileState) -> bool:
    if row[TYPE] == "link":
        return state["type"] == "file"
    if row[TYPE] != state["type"] or row[MODE] != state.get("mode", row[MODE]):
        return False
    return row[TYPE] != "file" or row[DIGEST] == state.get("digest")


def _removed(steps: list[OtherStep] | None) -> bool:
    return bool(steps) and steps[-1].target.after["type"] == "absent" and "manifest" in steps[0].target.before
