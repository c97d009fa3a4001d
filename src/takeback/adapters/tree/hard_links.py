"""Files with several names: which of the paths of an effect are the same file, and which further names there are."""

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from takeback.adapters.file.content import overlay_origin
from takeback.adapters.file.states import FileState, same
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import in_place, is_excluded, see
from takeback.adapters.tree.targets import in_order
from takeback.model.remedy import Target
from takeback.model.resource import display, file_resource, path_of
from takeback.storage.protocols import Blobs

Inode = tuple[int, int]


def is_joined(one: str, other: str, places: Places) -> bool:
    """Whether two resources are names of one inode now."""
    inode = places.inode(one)
    return inode is not None and inode == places.inode(other)


def groups(states: Iterable[tuple[str, FileState]]) -> dict[Inode, list[str]]:
    """The resources of what has several names, by inode."""
    found: dict[Inode, list[str]] = {}
    for resource, state in states:
        if has_names(state) and "ino" in state:
            found.setdefault(_inode(state), []).append(resource)
    return found


def _inode(state: FileState) -> Inode:
    return state["dev"], state["ino"]


def has_names(state: FileState) -> bool:
    """Whether it may have further names: of a file the count is known; a link or FIFO has them as well, rarely."""
    if state["type"] == "file":
        return state.get("nlink", 1) > 1
    return state["type"] not in ("absent", "dir")


def led(targets: list[Target]) -> list[Target]:
    """Twins name the one of their group that is there first: one that stays the file it is, else the first in order."""
    ranks = {target.resource: rank for rank, (_, target) in enumerate(in_order(targets))}
    by_name = {target.resource: target for target in targets}
    for side in ("before", "after"):
        teams: dict[str, list[str]] = {}
        for target in by_name.values():
            leader: str = getattr(target, side).get("twin", "")
            if leader in by_name:
                teams.setdefault(leader, [leader]).append(target.resource)
        for members in teams.values():
            _elect(by_name, members, side, ranks)
    return list(by_name.values())


def _elect(by_name: dict[str, Target], members: list[str], side: str, ranks: dict[str, int]) -> None:
    def rank(resource: str) -> tuple[bool, int]:
        before, after = by_name[resource].before, by_name[resource].after
        stays = in_place(before | {"twin": ""}, after | {"twin": ""})
        return not stays, ranks[resource]

    chosen = min(members, key=rank)
    for member in members:
        state: FileState = {
            key: value for key, value in getattr(by_name[member], side).items() if key != "twin"
        }
        if member != chosen:
            state["twin"] = chosen
        by_name[member] = by_name[member]._replace(**{side: state})


def is_unchanged(target: Target) -> bool:
    before, after = target.before, target.after
    return (
        not is_excluded(before, after)
        and "unit" not in after
        and same(before, after)
        and all(before.get(key) == after.get(key) for key in ("mtime", "twin"))
    )


def find_names(wanted: dict[Inode, int], near: bytes, most: int = 200_000) -> dict[Inode, list[bytes]]:
    """Paths of inodes, as many as wanted of each: first in the directory `near` and below, then further up, while there
    are not too many entries to look at."""
    search = _Search(wanted, most)
    top, device = near, _device(near)
    while search.goes_on():
        search.below(top, device)
        if top == b"/" or _device(os.path.dirname(top)) != device:
            break
        top = os.path.dirname(top)
    return search.found


class _Search:
    def __init__(self, wanted: dict[Inode, int], most: int) -> None:
        self._missing = dict(wanted)
        self._numbers = {inode for _, inode in wanted}
        self._left = most
        self._looked: set[bytes] = set()
        self.found: dict[Inode, list[bytes]] = {}

    def goes_on(self) -> bool:
        return bool(self._missing) and self._left > 0

    def below(self, top: bytes, device: int) -> None:
        pending = [top]
        while pending and self.goes_on():
            directory = pending.pop()
            if directory in self._looked:
                continue
            self._looked.add(directory)
            try:
                with os.scandir(directory) as entries:
                    for entry in entries:
                        self._left -= 1
                        if entry.is_dir(follow_symlinks=False):
                            if _device(entry.path) == device:
                                pending.append(entry.path)
                        elif entry.inode() in self._numbers:
                            self._take(entry)
            except OSError:
                continue  # closed to us, or removed in between

    def _take(self, entry: os.DirEntry[bytes]) -> None:
        status = entry.stat(follow_symlinks=False)
        inode = (status.st_dev, status.st_ino)
        if inode not in self._missing:
            return
        self.found.setdefault(inode, []).append(entry.path)
        self._missing[inode] -= 1
        if self._missing[inode] <= 0:
            del self._missing[inode]


def _device(path: bytes) -> int:
    try:
        return os.lstat(path).st_dev
    except OSError:
        return -1


# Files with several names in what a command left: which are one file afterwards, and which names it does
# not know of follow along, because a write through one name is seen through all.


class LayerRow(NamedTuple):
    """One path: its present state and the state in the layer, with inode numbers."""

    resource: str
    before: FileState
    after: FileState
    source: bytes | None  # where the layer has it

    @property
    def is_other(self) -> bool:
        """Whether it has other content now."""
        return self.after["type"] == "file" and not same(self.before, self.after)


class Linked:
    def __init__(self, blobs: Blobs, world: Places, stacked: bool = False) -> None:
        """`stacked`: what was left comes from several layers."""
        self._blobs = blobs
        self._stacked = stacked
        self._world = world
        self._at_end: dict[Inode, list[int]] = {}  # which rows are which inode afterwards
        self.residue: list[str] = []

    def joined(self, rows: Sequence[LayerRow]) -> list[Target]:
        targets = self._with_twins(rows)
        self.residue += self._parted(rows)
        outside = self._outside(rows)
        if not outside:
            return targets
        for number, row in enumerate(rows):
            if "ino" in row.after:
                self._at_end.setdefault(_inode(row.after), []).append(number)
        near = os.path.dirname(os.path.commonpath([path_of(names[0]) for names in outside.values()]))
        counts = {_inode(row.before): row.before["nlink"] for row in rows if "nlink" in row.before}
        wanted = {inode: counts[inode] for inode in counts if inode in outside}
        found = find_names(wanted, near)
        by_name = {target.resource: number for number, target in enumerate(targets)}
        for inode, names in outside.items():
            others = [file_resource(path) for path in found.get(inode, ())]
            others = [resource for resource in others if resource not in by_name]
            self._follow(inode, names, others, wanted[inode], targets, by_name, rows)
        return targets

    def _with_twins(self, rows: Sequence[LayerRow]) -> list[Target]:
        """By the inodes of the layer; its link counts say nothing."""
        first: dict[Inode, str] = {}
        # A name that stays what it is leads: then the others are linked to it.
        for resource, _, after, _ in sorted(rows, key=lambda row: not same(row.before, row.after)):
            if "ino" in after and after["type"] != "dir":
                first.setdefault(_inode(after), resource)
        old: dict[Inode, str] = {}
        targets: list[Target] = []
        for resource, before, after, _ in rows:
            if "ino" in after and after["type"] != "dir":
                leader = first[_inode(after)]
                after = after | {"twin": leader} if leader != resource else after
            if has_names(before) and "ino" in before:
                leader = old.setdefault(_inode(before), resource)
                before = before | {"twin": leader} if leader != resource else before
            targets.append(Target(resource, before, after))
        return targets

    def _parted(self, rows: Sequence[LayerRow]) -> list[str]:
        """Names of one file that were written in different layers, each in a copy of its own: no one knows how the file
        would look if both had been written to the same one. An upper layer does not show whether a file was written or
        replaced, so replaced files count too."""
        found: dict[Inode, dict[Inode, str]] = {}
        for row in rows if self._stacked else ():
            before, after = row.before, row.after
            if before["type"] == "file" and before.get("nlink", 1) > 1 and row.is_other and "ino" in after:
                found.setdefault(_inode(before), {}).setdefault(_inode(after), row.resource)
        return [
            f"{' and '.join(display(one) for one in copies.values())} were names of one file and are separate files now"
            for copies in found.values()
            if len(copies) > 1
        ]

    def _outside(self, rows: Sequence[LayerRow]) -> dict[Inode, list[str]]:
        """Files of which the command changed some names and not all, by inode."""
        names: dict[Inode, list[str]] = {}
        counts: dict[Inode, int] = {}
        changed: set[Inode] = set()
        for resource, before, after, _ in rows:
            if before["type"] == "file" and before.get("nlink", 1) > 1:
                inode = _inode(before)
                names.setdefault(inode, []).append(resource)
                counts[inode] = before["nlink"]
                if not same(before, after):
                    changed.add(inode)
        return {
            inode: listed
            for inode, listed in names.items()
            if inode in changed and len(listed) < counts[inode]
        }

    def _follow(
        self,
        inode: Inode,
        names: list[str],
        others: list[str],
        count: int,
        targets: list[Target],
        by_name: dict[str, int],
        rows: Sequence[LayerRow],
    ) -> None:
        mine = [rows[by_name[name]] for name in names]
        # Changed through the name it had, and not replaced by another file.
        copied = (
            row for row in mine if row.is_other and row.source and overlay_origin(row.source) is not None
        )
        written = next((row.resource for row in copied), "")
        if written:
            # Through one name: every other shows it too.
            after = targets[by_name[written]].after
            leader: str = after.get("twin", written)
            for resource in others:
                place = self._world.at(resource)
                before = see(place, after)
                if (before.get("dev"), before.get("ino")) != inode:
                    continue
                before = before | {"twin": names[0]}
                targets.append(Target(resource, before, after | {"twin": leader}))
            if len(names) + len(others) < count:
                self.residue.append(
                    f"further names of {display(written)} were not found, and stay with the file as it was"
                )
            return
        if os.geteuid() != 0 and (other := next((row for row in mine if row.is_other), None)):
            # A layer of an ordinary user does not tell a file that was written from one that was put in its place.
            self.residue.append(f"other names of {display(other.resource)} stay with the file as it was")
        moved = self._at_end.get(inode, [])
        if not others:
            # Then the file itself is kept for the undo, where that is possible.
            self.residue += [
                f"{display(rows[one].resource)} is apart from other names it had" for one in moved[:1]
            ]
            return
        for number in moved:
            # With a directory that was moved, to where it is still the same file as the names that stay.
            target = targets[number]
            targets[number] = target._replace(after=target.after | {"twin": others[0]})
        for name in names:
            number = by_name[name]
            target = targets[number]
            if "twin" not in target.before:
                targets[number] = target._replace(before=target.before | {"twin": others[0]})
