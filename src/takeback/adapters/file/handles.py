"""Directories below one root, each opened from a neighbour that is still open: depth costs no time and few handles."""

import os
from types import TracebackType

from takeback.adapters.file.paths import open_below
from takeback.model.resource import unquote

_KEPT = 32
_LIST = os.O_RDONLY | os.O_DIRECTORY


class Handles:
    """By quoted path from the root. A handle that is given out stays open until many others were asked for."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._kept: dict[str, int] = {}  # the one used last stands last
        self._inodes: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> "Handles":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fd in self._kept.values():
            os.close(fd)
        self._kept.clear()

    def open(self, path: str) -> int:
        """Never through a symbolic link or a mount point; those are refused by the kernel."""
        if not path:
            return self._root
        fd = self._kept.pop(path, -1)
        if fd < 0:
            fd = self._opened(path)
            if len(self._kept) >= _KEPT:
                os.close(self._kept.pop(next(iter(self._kept))))
        self._kept[path] = fd
        return fd

    def _opened(self, path: str) -> int:
        parent, _, name = path.rpartition("/")
        above = self._kept.get(parent, -1)
        if above >= 0:
            # It is needed again by the others in it.
            self._kept[parent] = self._kept.pop(parent)
            fd = open_below(above, unquote(name), _LIST, cross_mounts=False)
        else:
            fd = self._from_inside(path)
            if fd < 0:
                fd = open_below(self._root, unquote(path), _LIST, cross_mounts=False)
        if path not in self._inodes:
            self._inodes[path] = _inode(fd)
        return fd

    def _from_inside(self, path: str) -> int:
        """On the way up, from a directory in it; -1 if that was moved elsewhere, and so leads elsewhere."""
        known = self._inodes.get(path)
        last = next(reversed(self._kept), "")
        if known is None or last.rpartition("/")[0] != path:
            return -1
        try:
            fd = open_below(self._kept[last], b"..", _LIST, cross_mounts=False)
        except OSError:
            return -1
        if _inode(fd) == known:
            return fd
        os.close(fd)
        return -1


def _inode(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
