"""Where a command runs apart from the world: whether that can be, and the directory its layer lies in."""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from takeback.adapters.file.kernel import Freeing
from takeback.engine.parts import Parts
from takeback.errors import ResourceUnreachable
from takeback.model.ids import new_id
from takeback.model.resource import path_of
from takeback.storage.disk import reachable
from takeback.storage.owners import (
    ABOUT,
    LAYER,
    break_layer,
    is_busy,
    is_dead,
    is_whole,
    myself,
    name_of,
)

if TYPE_CHECKING:
    from takeback.sandbox.ability import Ability


class CommandRoom(NamedTuple):
    able: "Ability"
    store: str  # covered inside


def hidden(store: str, place: str) -> tuple[str, ...]:
    """Paths that a sandboxed command must not reach: the store and the layers being made, under every name."""
    from takeback.adapters.file.mounts import names_of

    apart = () if f"{place}/".startswith(f"{store}/") else names_of(os.fsencode(place))
    return tuple(os.fsdecode(name) for name in (*names_of(os.fsencode(store)), *apart))


def room_of(parts: Parts) -> CommandRoom:
    from takeback.sandbox.ability import ability

    parts.refuse_if_suspect()
    store = os.fsdecode(path_of(parts.off_limits))
    able = ability(store)
    if not able.engine:
        raise ResourceUnreachable(
            f"There is no sandbox on this machine: {able.why}",
            hint="Nothing was run. `takeback run --in-place` works without one.",
        )
    return CommandRoom(able, store)


# Where a command's layer lies while the command runs: a directory of its own, which says whose it is, so that the next
# process clears what a killed one left.


_LONGEST = 24 * 3600  # seconds


@contextmanager
def workshop(place: str) -> Iterator[str]:
    """A new private directory below `place`; gone at the end."""
    mine = os.path.join(place, name_of(new_id(), myself()))
    with reachable(place, "written"):
        os.makedirs(place, mode=0o700, exist_ok=True)
        clear(place)
        os.mkdir(mine, 0o700)
    try:
        yield mine
    finally:
        # Its content is merged, held or dropped; the next process clears the rest.
        with suppress(OSError):
            remove_all(mine)


def clear(place: str) -> int:
    """Remove what dead processes left; how many. The changes of a killed command stay until they are recorded as a
    drop, at most a day."""
    count = 0
    for path in leftovers(place):
        # Another process is clearing it too, or it cannot be cleared: no change may fail because of that.
        with suppress(OSError):
            remove_all(path)
        count += 1
    return count


def leftovers(place: str) -> Iterator[str]:
    """Each is judged only when it is asked for: until then the last process of a killed command may put its layer
    there."""
    names = os.listdir(place) if os.path.isdir(place) else ()
    for path in (os.path.join(place, name) for name in names if is_dead(name)):
        if not _is_wanted(path):
            yield path


def _is_wanted(path: str) -> bool:
    """Whether it holds, or soon will, what `rescue` saves. Half of a layer is what a killed process had not
    removed yet: its files may have other names in the world."""
    if is_busy(path):
        return True
    if not path.endswith(f".{myself().boot}") or not is_whole(os.path.join(path, LAYER)):
        return False
    try:
        return time.time() - os.stat(os.path.join(path, ABOUT)).st_mtime < _LONGEST
    except OSError:
        return False


def remove_all(path: str) -> None:
    """The whole directory, without following links or crossing into anything mounted; overlay leaves directories that
    even their owner may not enter."""
    break_layer(path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        with Freeing() as freeing:
            _empty(fd, os.fstat(fd).st_dev, freeing)
    finally:
        os.close(fd)
    os.rmdir(path)


def _empty(fd: int, device: int, freeing: Freeing) -> None:
    with os.scandir(fd) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in names:
        if not is_directory:
            freeing.unlink(name, dir_fd=fd)
            continue
        inner = _opened(fd, name)
        try:
            if os.fstat(inner).st_dev == device:
                _empty(inner, device, freeing)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=fd)


def _opened(fd: int, name: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    wanted = stat.S_IRWXU
    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
    if status.st_mode & wanted != wanted:
        os.chmod(name, stat.S_IMODE(status.st_mode) | wanted, dir_fd=fd)
    return os.open(name, flags, dir_fd=fd)
