"""The directories that units lie in: their times are restored, and those closed to their owner are opened for the
work."""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from takeback.adapters.file.build import chmod_inode
from takeback.adapters.file.paths import Handles, Place, open_below
from takeback.adapters.file.states import FileState
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import LOOK, OPEN, is_closed
from takeback.adapters.tree.targets import Unit
from takeback.model.resource import unquote

# Directories that are closed even to their owner (mode 000): an ordinary user opens them to look or to
# empty them.
#
# A process that dies in between leaves a mode that verify knows as ours.


def open_inside(place: Place, state: FileState, inside: dict[str, FileState], to: int = OPEN) -> None:
    """A directory with all that is in it, outermost first."""
    if os.geteuid() == 0:
        return
    if is_closed(state, to=to):
        chmod_inode(place.fd, place.name, state["mode"] | OPEN)
    closed = {path: entry["mode"] | OPEN for path, entry in inside.items() if is_closed(entry, to=to)}
    _chmod_inside(place, closed)


@contextmanager
def readable(place: Place, state: FileState, inside: dict[str, FileState]) -> Iterator[None]:
    """While it is looked at."""
    if os.geteuid() == 0 or not is_closed(state, *inside.values(), to=LOOK):
        yield
        return
    try:
        open_inside(place, state, inside, LOOK)
        yield
    finally:
        back = [path for path in reversed(inside) if is_closed(inside[path], to=LOOK)]
        _chmod_inside(place, {path: inside[path]["mode"] for path in back})
        if is_closed(state, to=LOOK) and place.stat() is not None:
            chmod_inode(place.fd, place.name, state["mode"])


def _chmod_inside(place: Place, modes: dict[str, int]) -> None:
    if not modes:
        return
    root = open_below(place.fd, place.name, os.O_RDONLY | os.O_DIRECTORY, cross_mounts=False)
    try:
        with Handles(root) as handles:
            for path, mode in modes.items():
                parent, _, name = path.rpartition("/")
                with suppress(FileNotFoundError):  # removed by the attempt that was interrupted
                    chmod_inode(handles.open(parent), unquote(name), mode)
    finally:
        os.close(root)


class ParentDirectory(NamedTuple):
    """One directory, with its mode and time before and after; the mode is -1 where it need not be opened."""

    resource: str
    times: tuple[int, int]
    modes: tuple[int, int] = (-1, -1)

    @property
    def while_open(self) -> set[int]:
        return {mode | OPEN for mode in self.modes}


def to_json(grounds: Iterable[ParentDirectory]) -> list[list[object]]:
    return [[one.resource, *one.times, *(one.modes if one.modes[0] >= 0 else ())] for one in grounds]


def from_json(rows: Iterable[Sequence[object]]) -> list[ParentDirectory]:
    found: list[ParentDirectory] = []
    for resource, *numbers in rows:
        before, after, *modes = (int(str(number)) for number in numbers)
        pair = (modes[0], modes[1]) if modes else (-1, -1)
        found.append(ParentDirectory(str(resource), (before, after), pair))
    return found


def under(units: Iterable[Unit]) -> list[str]:
    """The directories whose entries change, outermost first."""
    parents = {unit.parent for unit in units if not unit.adjusts}
    return sorted((parent for parent in parents if parent != "file://"), key=lambda one: one.split("/"))


def open_up(grounds: Iterable[ParentDirectory], places: Places) -> None:
    """Outermost first. Who dies now leaves modes that verify knows as ours."""
    for ground, place, mode in _to_be_opened(grounds, places):
        if mode in ground.modes:
            chmod_inode(place.fd, place.name, mode | OPEN)
            places.forget(ground.resource)


def _to_be_opened(
    grounds: Iterable[ParentDirectory], places: Places
) -> Iterator[tuple[ParentDirectory, Place, int]]:
    """Those that are closed to their owner, each with the mode that it has now."""
    for ground in grounds:
        place = places.if_there(ground.resource) if ground.modes[0] >= 0 else None
        status = place.stat() if place else None
        if place and status:
            yield ground, place, stat.S_IMODE(status.st_mode)


def put_right(grounds: Sequence[ParentDirectory], places: Places, forward: bool) -> None:
    """Innermost first: the time that belongs there, and the mode if it was opened."""
    for ground in reversed(grounds):
        place = places.if_there(ground.resource)
        status = place.stat() if place else None
        if place is None or status is None or not stat.S_ISDIR(status.st_mode):
            continue
        mtime, wanted, mode = ground.times[forward], ground.modes[forward], stat.S_IMODE(status.st_mode)
        if status.st_mtime_ns != mtime:
            with suppress(OSError):  # someone else's, such as /tmp: not ours to choose, and not worth failing
                os.utime(place.name, ns=(status.st_atime_ns, mtime), dir_fd=place.fd, follow_symlinks=False)
        if wanted >= 0 and mode != wanted and mode in ground.while_open:
            chmod_inode(place.fd, place.name, wanted)


def close_up(grounds: Sequence[ParentDirectory], places: Places) -> None:
    """Innermost first: directories that a dead process had opened. Their earlier times are lost."""
    for ground, place, mode in _to_be_opened(reversed(grounds), places):
        if mode in ground.while_open:
            chmod_inode(place.fd, place.name, ground.modes[0])


def still_open(grounds: Iterable[ParentDirectory], places: Places) -> bool:
    """Whether an interrupted process left one open."""
    found = _to_be_opened(grounds, places)
    return any(mode not in ground.modes and mode in ground.while_open for ground, _, mode in found)
