"""Files with several names: which of the paths of an effect are the same file, and which further names there are."""

import os
from collections.abc import Iterable, Sequence

from takeback.adapters.file.states import FileState, same
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import in_place, is_excluded, see
from takeback.adapters.tree.targets import in_order
from takeback.model.remedy import Target
from takeback.model.resource import display, file_resource, path_of
from takeback.storage.protocols import Blobs


def is_joined(one: str, other: str, places: Places) -> bool:
    """Whether two resources are names of one inode now."""
    found: list[tuple[int, int]] = []
    for resource in (one, other):
        place = places.if_there(resource) if resource else None
        status = place.stat() if place else None
        if status is None:
            return False
        found.append((status.st_dev, status.st_ino))
    return found[0] == found[1]


def groups(states: Iterable[tuple[str, FileState]]) -> dict[tuple[int, int], list[str]]:
    """The resources of what has several names, by inode."""
    found: dict[tuple[int, int], list[str]] = {}
    for resource, state in states:
        if has_names(state) and "ino" in state:
            found.setdefault((state["dev"], state["ino"]), []).append(resource)
    return found


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


Inode = tuple[int, int]


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
                continue  # closed to us, or gone meanwhile

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
# not know of
# follow along, because a write through one name is seen through all.


_ORIGINS = ("trusted.overlay.origin", "user.overlay.origin")

# resource, before, after, where the layer has it
LeftPath = tuple[str, FileState, FileState, bytes | None]


class Linked:
    def __init__(self, blobs: Blobs, world: Places, stacked: bool = False) -> None:
        """`stacked`: what was left comes from several layers."""
        self._blobs = blobs
        self._stacked = stacked
        self._world = world
        self._at_end: dict[Inode, list[int]] = {}  # which rows are which inode afterwards
        self.residue: list[str] = []

    def joined(self, rows: Sequence[LeftPath]) -> list[Target]:
        targets = self._with_twins(rows)
        self.residue += self._parted(rows)
        outside = self._outside(rows)
        if not outside:
            return targets
        for number, (_, _, after, _) in enumerate(rows):
            if "ino" in after:
                self._at_end.setdefault((after["dev"], after["ino"]), []).append(number)
        near = os.path.dirname(os.path.commonpath([path_of(names[0]) for names in outside.values()]))
        wanted = {inode: by_nlink for inode, by_nlink in self._counts(rows).items() if inode in outside}
        found = find_names(wanted, near)
        by_name = {target.resource: number for number, target in enumerate(targets)}
        for inode, names in outside.items():
            others = [file_resource(path) for path in found.get(inode, ())]
            others = [resource for resource in others if resource not in by_name]
            self._follow(inode, names, others, wanted[inode], targets, by_name, rows)
        return targets

    def _with_twins(self, rows: Sequence[LeftPath]) -> list[Target]:
        """By the inodes of the layer; its link counts say nothing."""
        first: dict[Inode, str] = {}
        # A name that stays what it is leads: then the others are linked to it.
        for resource, _, after, _ in sorted(rows, key=lambda row: not same(row[1], row[2])):
            if "ino" in after and after["type"] != "dir":
                first.setdefault((after["dev"], after["ino"]), resource)
        old: dict[Inode, str] = {}
        targets: list[Target] = []
        for resource, before, after, _ in rows:
            if "ino" in after and after["type"] != "dir":
                leader = first[after["dev"], after["ino"]]
                after = after | {"twin": leader} if leader != resource else after
            if has_names(before) and "ino" in before:
                leader = old.setdefault((before["dev"], before["ino"]), resource)
                before = before | {"twin": leader} if leader != resource else before
            targets.append(Target(resource, before, after))
        return targets

    def _parted(self, rows: Sequence[LeftPath]) -> list[str]:
        """Names of one file that were written in different layers, each in a copy of its own: nobody can tell how the
        file would look if both had gone to the same one. Upper layers do not tell what was written from what was
        replaced, so that counts too."""
        found: dict[Inode, dict[Inode, str]] = {}
        for row in rows if self._stacked else ():
            resource, before, after, _ = row
            if before["type"] == "file" and before.get("nlink", 1) > 1 and _is_other(row) and "ino" in after:
                copies = found.setdefault((before["dev"], before["ino"]), {})
                copies.setdefault((after["dev"], after["ino"]), resource)
        return [
            f"{' and '.join(display(one) for one in copies.values())} were names of one file and are separate files now"
            for copies in found.values()
            if len(copies) > 1
        ]

    def _counts(self, rows: Sequence[LeftPath]) -> dict[Inode, int]:
        return {(row[1]["dev"], row[1]["ino"]): row[1]["nlink"] for row in rows if "nlink" in row[1]}

    def _outside(self, rows: Sequence[LeftPath]) -> dict[Inode, list[str]]:
        """Files of which the command changed some names and not all, by inode."""
        names: dict[Inode, list[str]] = {}
        counts: dict[Inode, int] = {}
        changed: set[Inode] = set()
        for resource, before, after, _ in rows:
            if before["type"] == "file" and before.get("nlink", 1) > 1:
                inode = (before["dev"], before["ino"])
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
        rows: Sequence[LeftPath],
    ) -> None:
        written = next((name for name in names if self._is_written(rows[by_name[name]])), "")
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
        if os.geteuid() != 0 and (name := next((one for one in names if _is_other(rows[by_name[one]])), "")):
            # A layer of an ordinary user does not tell a file that was written from one that was put in its place.
            self.residue.append(f"other names of {display(name)} stay with the file as it was")
        moved = self._at_end.get(inode, [])
        if not others:
            # Then the file itself is kept for the undo, where that is possible.
            self.residue += [f"{display(rows[one][0])} is apart from other names it had" for one in moved[:1]]
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

    def _is_written(self, row: LeftPath) -> bool:
        """Changed through the name it had, and not replaced by another file."""
        _, before, after, source = row
        if after["type"] != "file" or source is None or same(before, after):
            return False
        return any(_has(source, name) for name in _ORIGINS)


def _is_other(row: LeftPath) -> bool:
    _, before, after, _ = row
    return after["type"] == "file" and not same(before, after)


def _has(path: bytes, attribute: str) -> bool:
    try:
        os.getxattr(path, attribute, follow_symlinks=False)
    except OSError:
        return False
    return True
