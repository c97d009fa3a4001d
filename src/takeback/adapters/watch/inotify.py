"""A feed for everyone: the kernel reports changes in each directory that was named to it."""

import os
import struct
from typing import Any

from takeback.adapters.file.kernel import libc
from takeback.adapters.file.mounts import table
from takeback.adapters.watch.feed import Authors, Feed, Told, checked, read_reports
from takeback.adapters.watch.roots import Root
from takeback.model.mounts import mount_of
from takeback.model.resource import quote

# Which feed this machine and this user can have.


# Where everything that changes a file goes through this kernel, and it tells. Not so over a network; and what is
# mounted over others (overlay) reports only part of it.
_HONEST = (b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs", b"tmpfs", b"f2fs", b"bcachefs")


def open_feed(root: Root, again: bool, crowded: bool = False) -> Feed | None:
    """None: no feed is available, so every scan reads the whole tree. `again`: a feed that is costly to arm pays off.
    `crowded`: reports of the whole filesystem were too many the last time."""
    mount = mount_of(table(), root.path)
    if mount is None or mount.kind not in _HONEST:
        return None
    if os.geteuid() == 0 and not crowded:
        from takeback.adapters.watch.fanotify import Fanotify

        try:
            return Fanotify(root.path)
        except OSError:
            pass  # a container, or a filesystem without handles
    if again:
        try:
            return Inotify(root.path)
        except OSError:
            return None  # more directories than a user may watch
    return None


_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF = 0x400, 0x800
_UNMOUNT, _OVERFLOW, _IGNORED = 0x2000, 0x4000, 0x8000
_ONLY_DIRECTORIES, _NO_LINKS, _IS_DIRECTORY = 0x1000000, 0x2000000, 0x40000000
_MASK = (
    _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
    | _ONLY_DIRECTORIES | _NO_LINKS
)  # fmt: skip
_NAMES = _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_EVENT = struct.Struct("=iIII")


class Inotify:
    crowded = False  # it reports only this tree, so the changes elsewhere are never too many

    def __init__(self, path: bytes) -> None:
        """`OSError` where there are more directories than the user may have watched."""
        self._path = path
        self._library: Any = libc().library
        self._paths: dict[int, bytes] = {}  # from the root, not quoted
        self._numbers: dict[bytes, int] = {}
        self.broken = False
        self.unsure: set[int] = set()
        self._fd = checked(self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        try:
            self._arm(b"")
            self._root = self._numbers[b""]
            self._top = self._at_path()
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _arm(self, path: bytes) -> None:
        """The directory and all below. Named first and listed then, so that what comes in between is reported."""
        pending = [path]
        while pending:
            one = pending.pop()
            absolute = os.path.join(self._path, one) if one else self._path
            try:
                number = checked(self._library.inotify_add_watch(self._fd, absolute, _MASK))
                self._name(number, one)
                with os.scandir(absolute) as found:
                    inside = [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                if not one:
                    raise
                continue  # gone, or a hole that the look itself names
            pending += [os.path.join(one, name) for name in inside]

    def _name(self, number: int, path: bytes) -> None:
        old = self._paths.pop(number, None)
        if old is not None:
            self._numbers.pop(old, None)
        self._paths[number] = path
        self._numbers[path] = number

    def _disarm(self, path: bytes) -> None:
        """It was moved: its later events belong to its new place, where it is registered again."""
        inside = path + b"/"
        for one in [one for one in self._numbers if one == path or one.startswith(inside)]:
            number = self._numbers.pop(one)
            self._paths.pop(number, None)
            self._library.inotify_rm_watch(self._fd, number)

    def collect(self) -> None:
        """Not ahead of time: what is reported of a new directory must be followed up while it is there."""

    def drain(self) -> Told | None:
        told: dict[str, set[bytes]] = {}
        try:
            while data := read_reports(self._fd):
                self._take(data, told)
        except OSError:
            self.broken = True  # no more directories can be watched
        # A directory above may have been moved and replaced by another one, without an event.
        self.broken = self.broken or self._at_path() != self._top
        return None if self.broken else told

    def _at_path(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def open_book(self) -> Authors | None:
        return None  # it does not tell who it was

    def close_book(self, book: Authors) -> None:
        pass

    def _take(self, data: bytes, told: dict[str, set[bytes]]) -> None:
        at = 0
        while at < len(data):
            number, mask, _, length = _EVENT.unpack_from(data, at)
            name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
            at += _EVENT.size + length
            if mask & (_OVERFLOW | _UNMOUNT):
                self.broken = True  # directories may have come without an event: it must be made again
            path = self._paths.get(number)
            if path is None:
                continue
            if mask & (_DELETE_SELF | _MOVE_SELF) and number == self._root:
                self.broken = True
            if mask & _IGNORED:
                self._numbers.pop(self._paths.pop(number), None)
                continue
            if name and mask & _IS_DIRECTORY:
                if not mask & _NAMES and (inner := os.path.join(path, name)) in self._numbers:
                    # Its own mode or times; what is in it reports itself.
                    told.setdefault(quote(inner), set()).add(b"")
                    continue
                self._follow(os.path.join(path, name), mask)
            told.setdefault(quote(path), set()).add(name)

    def _follow(self, path: bytes, mask: int) -> None:
        if mask & _MOVED_FROM:
            self._disarm(path)
        elif mask & (_MOVED_TO | _CREATE):
            self._disarm(path)
            self._arm(path)
