"""Files that a command left in a layer which is thrown away afterwards: they become part of the world as they are, by a
further name, instead of being written once more. Their content is in the store all the same."""

import errno
import os
import stat
from collections.abc import Mapping
from contextlib import suppress

from takeback.adapters.file.paths import Place
from takeback.adapters.file.states import State
from takeback.adapters.file.xattrs import OVERLAY

_ORIGINS = tuple(f"{prefix}origin" for prefix in OVERLAY)
# Across a mount, one name too many, not allowed, gone: then it is made from the store.
_NOT_SO = (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOENT)


class Lent:
    """The files, by the resource they are to become, and overlay's notes that were taken off them."""

    def __init__(self, sources: Mapping[str, bytes]) -> None:
        self._sources = sources
        self._notes: list[tuple[bytes, str, bytes]] = []

    def take(self, resource: str, place: Place, state: State, durable: bool) -> bool:
        """The file under this scratch name, if there is one and it is what the state says, to the last property."""
        source = self._sources.get(resource)
        if source is None:
            return False
        try:
            if "holes" in state or not _is_it(os.stat(source, follow_symlinks=False), state):
                return False  # the kernel fills small holes of what it copies; they are made again
            if not self._unmark(source):
                return False
            os.link(source, place.name, dst_dir_fd=place.fd, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NOT_SO:
                return False
            raise
        if durable and not _synced(place):
            os.unlink(place.name, dir_fd=place.fd)
            return False
        return True

    def _unmark(self, source: bytes) -> bool:
        """Without overlay's note of which file of the world it was; any other means that it is no plain file."""
        for name in os.listxattr(source, follow_symlinks=False):
            if name.startswith(OVERLAY):
                if name not in _ORIGINS:
                    return False
                value = os.getxattr(source, name, follow_symlinks=False)
                os.removexattr(source, name, follow_symlinks=False)
                self._notes.append((source, name, value))
        return True

    def give_back(self) -> None:
        """Nothing of it was made: the layer is read once more, and must tell the same. Without a note a file counts as
        new in its place, which is at worst a conflict more."""
        for source, name, value in self._notes:
            with suppress(OSError):
                os.setxattr(source, name, value, follow_symlinks=False)
        self._notes = []


def _is_it(status: os.stat_result, state: State) -> bool:
    found = (status.st_size, status.st_mtime_ns, status.st_uid, status.st_gid, status.st_nlink)
    wanted = (state["size"], state["mtime"], state["uid"], state["gid"], 1)
    return found == wanted and stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) == state["mode"]


def _synced(place: Place) -> bool:
    try:
        fd = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place.fd)
    except PermissionError:
        return False  # closed even to its owner
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    return True
