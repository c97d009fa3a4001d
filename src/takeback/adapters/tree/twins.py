"""Files with several names: which of the paths of an effect are the same file, and which further names there are."""

import os
from collections.abc import Iterable

from takeback.adapters.file.states import State, same
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import in_place, is_excluded
from takeback.adapters.tree.units import in_order
from takeback.model.remedy import Target


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


def groups(states: Iterable[tuple[str, State]]) -> dict[tuple[int, int], list[str]]:
    """The resources of what has several names, by inode."""
    found: dict[tuple[int, int], list[str]] = {}
    for resource, state in states:
        if has_names(state) and "ino" in state:
            found.setdefault((state["dev"], state["ino"]), []).append(resource)
    return found


def has_names(state: State) -> bool:
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
        state: State = {key: value for key, value in getattr(by_name[member], side).items() if key != "twin"}
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
