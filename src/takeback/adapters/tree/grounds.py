"""The directories that units lie in: their times are put back, and those closed to their owner are opened meanwhile."""

import os
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from takeback.adapters.file.build import chmod_inode
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import OPEN
from takeback.adapters.tree.units import Unit


class Ground(NamedTuple):
    """One directory, with its mode and time before and after; the mode is -1 where it need not be opened."""

    resource: str
    times: tuple[int, int]
    modes: tuple[int, int] = (-1, -1)


def to_json(grounds: Iterable[Ground]) -> list[list[object]]:
    return [[one.resource, *one.times, *(one.modes if one.modes[0] >= 0 else ())] for one in grounds]


def from_json(rows: Iterable[Sequence[object]]) -> list[Ground]:
    found: list[Ground] = []
    for resource, *numbers in rows:
        before, after, *modes = (int(str(number)) for number in numbers)
        pair = (modes[0], modes[1]) if modes else (-1, -1)
        found.append(Ground(str(resource), (before, after), pair))
    return found


def under(units: Iterable[Unit]) -> list[str]:
    """The directories whose entries change, outermost first."""
    parents = {unit.parent for unit in units if not unit.adjusts}
    return sorted((parent for parent in parents if parent != "file://"), key=lambda one: one.split("/"))


def open_up(grounds: Iterable[Ground], places: Places) -> None:
    """Outermost first. Who dies now leaves modes that verify knows as ours."""
    for ground in grounds:
        if ground.modes[0] < 0:
            continue
        place = places.if_there(ground.resource)
        status = place.stat() if place else None
        if place and status and stat.S_IMODE(status.st_mode) in ground.modes:
            chmod_inode(place.fd, place.name, stat.S_IMODE(status.st_mode) | OPEN)
            places.forget(ground.resource)


def put_right(grounds: Sequence[Ground], places: Places, forward: bool) -> None:
    """Innermost first: the time that belongs there, and the mode if it was opened."""
    for ground in reversed(grounds):
        place = places.if_there(ground.resource)
        status = place.stat() if place else None
        if place is None or status is None or not stat.S_ISDIR(status.st_mode):
            continue
        _put_time(place.fd, place.name, status, ground.times[forward])
        wanted = ground.modes[forward]
        opened = {mode | OPEN for mode in ground.modes}
        if wanted >= 0 and stat.S_IMODE(status.st_mode) in opened and stat.S_IMODE(status.st_mode) != wanted:
            chmod_inode(place.fd, place.name, wanted)


def close_up(grounds: Sequence[Ground], places: Places) -> None:
    """Innermost first: those that a process which died had opened; their times are nobody's to choose any more."""
    for ground in reversed(grounds):
        place = places.if_there(ground.resource) if ground.modes[0] >= 0 else None
        status = place.stat() if place else None
        if place and status and stat.S_IMODE(status.st_mode) in {mode | OPEN for mode in ground.modes}:
            chmod_inode(place.fd, place.name, ground.modes[0])


def _put_time(fd: int, name: bytes, status: os.stat_result, mtime: int) -> None:
    if status.st_mtime_ns == mtime:
        return
    try:
        os.utime(name, ns=(status.st_atime_ns, mtime), dir_fd=fd, follow_symlinks=False)
    except OSError:
        return  # someone else's directory, such as /tmp: its time is not ours to choose, and not worth failing


def still_open(grounds: Iterable[Ground], places: Places) -> bool:
    """Whether an interrupted process left one open."""
    for ground in grounds:
        if ground.modes[0] < 0:
            continue
        place = places.if_there(ground.resource)
        status = place.stat() if place else None
        if status is None:
            continue
        mode = stat.S_IMODE(status.st_mode)
        if mode not in ground.modes and mode in {one | OPEN for one in ground.modes}:
            return True
    return False
