"""A feed for root: the kernel reports every change on the filesystem of the root, with the directory and the name."""

import os
import stat
import struct
from _thread import allocate_lock
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from takeback.adapters.file.kernel import libc
from takeback.adapters.watch.feed import Authors, Told, checked, read_reports
from takeback.model.resource import quote, unquote

_INIT = 0x1 | 0x2 | 0x200 | 0x400 | 0x800  # CLOEXEC, NONBLOCK, REPORT_FID, REPORT_DIR_FID, REPORT_NAME
_ADD_FILESYSTEM = 0x1 | 0x100
_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
# Without events about the moved or deleted object itself: the event with its name covers the whole filesystem.
_MOVED, _MADE, _ON_DIRECTORIES = 0xC0, 0x300, 0x40000000
_MOVED_TO, _CREATED = 0x80, 0x100
_MASK = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED | _MADE | _ON_DIRECTORIES
_OVERFLOW = 0x4000
_ITSELF, _WITH_NAME = 1, 2  # kinds of records: a handle on the thing itself; on its directory, with its name
_EVENT = struct.Struct("=IBBHQii")
_RECORD = struct.Struct("=BBH8sIi")
_HERE = -100  # AT_FDCWD; the path is absolute
_DELETED = b" (deleted)"
_REMEMBERED = 20_000  # directories
_HELD = 64 << 20  # bytes of reports, some half a million; more stay in the queue


class Fanotify:
    broken = crowded = False

    def __init__(self, path: bytes) -> None:
        """`OSError` where the kernel, the filesystem or our rights do not allow it."""
        self._path = path
        self.unsure: set[int] = set()
        self._astray = False  # something was reported whose place is unknown
        self._books: list[Authors] = []
        self._outside: dict[bytes, bytes] = {}  # by handle: directories that are not below the root
        # By handle: where a directory is, from the root. It holds until some directory is moved, which is reported.
        self._paths: dict[bytes, str | None] = {}
        self._gone: set[bytes] = set()
        self._turn = allocate_lock()
        self._held: list[bytes] = []  # taken from the queue, and not looked at yet
        self._held_bytes = 0
        self._library: Any = libc().library
        self._top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._fd = -1
        try:
            from ctypes import c_uint64

            self._fd = checked(self._library.fanotify_init(_INIT, os.O_RDONLY))
            mask = c_uint64(_MASK)
            checked(self._library.fanotify_mark(self._fd, _ADD_FILESYSTEM, mask, self._top, None))
            self._root = self._handle()
            # Where handles cannot be opened, its reports would be of no use.
            os.close(self._opened(self._root))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        with self._turn:
            for fd in (self._fd, self._top):
                if fd >= 0:
                    os.close(fd)
            self._fd = self._top = -1

    def collect(self) -> None:
        with self._turn:
            while self._fd >= 0 and self._held_bytes < _HELD and (reports := read_reports(self._fd)):
                self._held.append(reports)
                self._held_bytes += len(reports)

    def _taken(self) -> list[bytes]:
        """Everything that was reported until now."""
        with self._turn:
            held, self._held, self._held_bytes = self._held, [], 0
            return [*held, *iter(partial(read_reports, self._fd), b"")]

    def drain(self) -> Told | None:
        self.unsure.clear()
        self._astray = False
        told: dict[str, set[bytes]] = {}
        # Of what is at the path now; empty if nothing is. Unlike inode numbers it is never used a second time.
        root = b""
        with suppress(OSError):
            root = self._handle()
        lost = root != self._root
        events, masks = _events(self._taken())
        # The queue is not endless.
        self.broken = self.crowded = any(mask & _OVERFLOW for mask in masks)
        lost = lost or self.crowded
        moved = any(mask & _MOVED and mask & _ON_DIRECTORIES for mask in masks)
        if lost or moved or len(self._paths) > _REMEMBERED:
            self._forget_paths()
        for (process, records), mask in events.items():
            self._records(records, process, mask, told)
        if lost or self._astray:
            for book in self._books:
                book.whole = False
            self._forget_paths()
            self._root = root
            return None
        return told

    def open_book(self) -> Authors | None:
        book = Authors()
        self._books.append(book)
        return book

    def close_book(self, book: Authors) -> None:
        self._books = [one for one in self._books if one is not book]

    def _forget_paths(self) -> None:
        self._paths.clear()
        self._gone.clear()
        self._outside.clear()

    def _records(self, data: bytes, process: int, mask: int, told: dict[str, set[bytes]]) -> None:
        at, named, itself = 0, False, b""
        while at < len(data):
            kind, _, size, _, length, _ = _RECORD.unpack_from(data, at)
            handle = data[at + 12 : at + 20 + length]
            if kind == _WITH_NAME:
                named = True
                if handle not in self._paths:
                    self._paths[handle] = self._directory_of(handle)
                path = self._paths[handle]
                name = data[at + 20 + length : at + size].split(b"\0", 1)[0]
                if path is not None:
                    told.setdefault(path, set()).add(name)
                for book in self._books:
                    if path is not None:
                        book.add(path, "" if name == b"." else quote(name), process)
                    elif handle in self._gone:
                        book.somewhere.add(process)
                    elif handle in self._outside:
                        book.add_outside(self._outside[handle], name, process, mask)
            elif kind == _ITSELF:
                itself = handle
            at += size
        if itself and not named:
            self._nameless(itself, process, told)

    def _directory_of(self, handle: bytes) -> str | None:
        """Quoted, from the root; None if it is elsewhere, or gone: then what it was in was reported too."""
        path = self._found(handle)[0]
        inside = self._inside(path)
        if not path or path.endswith(_DELETED):
            self._gone.add(handle)
        elif inside is None:
            self._outside[handle] = path
        return inside

    def _nameless(self, handle: bytes, process: int, told: dict[str, set[bytes]]) -> None:
        """A file that got another name, or lost one, is reported without a name; it may be written through the other
        name. The kernel reports one of its names, which need not be ours."""
        path, status = self._found(handle)
        if status is None or stat.S_ISDIR(status.st_mode):
            return
        inside = self._inside(path)
        if inside is not None:
            above, _, quoted = inside.rpartition("/")
            told.setdefault(above, set()).add(unquote(quoted))
            for book in self._books:
                book.add(above, quoted, process)
        if status.st_nlink > 1 or path.endswith(_DELETED):
            self.unsure.add(status.st_ino)

    def _found(self, handle: bytes) -> tuple[bytes, os.stat_result | None]:
        """A path that it has now; none if it is gone."""
        try:
            fd = self._opened(handle)
        except OSError:
            return b"", None
        try:
            return os.readlink(b"/proc/self/fd/%d" % fd), os.fstat(fd)
        except OSError:
            self._astray = True  # its path is longer than the kernel can tell; it may be ours
            return b"", None
        finally:
            os.close(fd)

    def _inside(self, path: bytes) -> str | None:
        if path == self._path:
            return ""
        above = self._path.rstrip(b"/") + b"/"
        if not path.startswith(above) or path.endswith(_DELETED):
            return None
        return quote(path[len(above) :])

    def _opened(self, handle: bytes) -> int:
        flags = os.O_PATH | os.O_CLOEXEC
        return checked(self._library.open_by_handle_at(self._top, handle, flags))

    def _handle(self) -> bytes:
        from ctypes import byref, c_int, create_string_buffer

        room = create_string_buffer(struct.pack("=Ii", 128, 0), 8 + 128)
        mount = c_int()
        checked(self._library.name_to_handle_at(_HERE, self._path, room, byref(mount), 0))
        (length,) = struct.unpack_from("=I", room.raw)
        return room.raw[: 8 + length]


def changed_outside(book: Authors, family: set[int], but: Iterable[bytes]) -> list[bytes]:
    """Paths outside the root that these processes changed and that still show it: not those they only opened, or
    created and removed again. `but`: directories to leave out."""
    found: list[bytes] = []
    above = tuple(one.rstrip(b"/") + b"/" for one in but)
    for (directory, name), processes in book.outside.items():
        kinds = 0
        for process, seen in processes.items():
            kinds |= seen if process in family else 0
        path = os.path.join(directory, name)
        changed = kinds & (_MODIFY | _ATTRIB | _MOVED | _MADE) and name != b"."
        if not changed or (path + b"/").startswith(above):
            continue
        if os.path.lexists(path) or not kinds & (_CREATED | _MOVED_TO):
            found.append(path)
    return sorted(found)


def _events(read: Iterable[bytes]) -> tuple[dict[tuple[int, bytes], int], set[int]]:
    """By process: the records that say which file, each once, because many are repeated; what happened to it, and
    everything that happened."""
    found: dict[tuple[int, bytes], int] = {}
    masks: set[int] = set()
    for data in read:
        at, end = 0, len(data)
        while at < end:
            length, _, _, header, mask, _, process = _EVENT.unpack_from(data, at)
            masks.add(mask)
            key = (process, data[at + header : at + length])
            found[key] = found.get(key, 0) | mask
            at += length
    return found, masks
