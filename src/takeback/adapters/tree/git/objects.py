"""Whether a repository has an object: loose, in a pack, or at an alternate. Only the names are looked at."""

import hashlib
import mmap
import os
import stat
import zlib
from collections.abc import Iterable

_DEEPEST = 5  # as git: so many alternates of alternates
_VERSION_2 = b"\xfftOc\0\0\0\x02"
_LISTED = 1 << 20  # a longer list of alternates is not read to its end
_MOST = 64 << 20  # a loose object up to this size is read to see that it is whole


class ObjectStore:
    """The object directories of one repository, at one moment."""

    def __init__(self, directory: bytes, coming: Iterable[str] = (), indexes: Iterable[bytes] = ()) -> None:
        """`coming`: object ids that an undo is about to bring back; `indexes`: contents of such indexes of packs."""
        self._directories = list(_with_alternates(directory))
        self._coming = frozenset(coming)
        self._indexes: list[bytes | mmap.mmap] = list(indexes)
        self._read = False
        self._blind = False  # a partial clone, or an index of a pack that is not understood: nobody can tell

    def has(self, oid: str) -> bool:
        if oid in self._coming or any(_is_loose(one, oid) for one in self._directories):
            return True
        self._read_packs()
        raw = bytes.fromhex(oid)
        return self._blind or any(_in_pack(index, raw) for index in self._indexes)

    def missing(self, oids: Iterable[str]) -> str:
        """The first that is not there; empty if all are."""
        return next((oid for oid in dict.fromkeys(oids) if not self.has(oid)), "")

    def _read_packs(self) -> None:
        if self._read:
            return
        self._read = True
        for directory in self._directories:
            packs = os.path.join(directory, b"pack")
            for name in _names_in(packs):
                if name.endswith(b".promisor"):
                    self._blind = True
                if name.endswith(b".idx"):
                    index = _mapped(os.path.join(packs, name))
                    self._blind = self._blind or index[:8] != _VERSION_2
                    self._indexes.append(index)


def is_whole(oid: str, content: bytes) -> bool:
    """Whether these are the bytes of a loose object of this name, however they were compressed."""
    try:
        raw = zlib.decompressobj().decompress(content, _MOST)
    except zlib.error:
        return False
    name = hashlib.sha1(raw, usedforsecurity=False) if len(oid) == 40 else hashlib.sha256(raw)
    return name.hexdigest() == oid


def _with_alternates(directory: bytes, depth: int = 0) -> Iterable[bytes]:
    yield directory
    if depth >= _DEEPEST:
        return
    for line in _content(os.path.join(directory, b"info", b"alternates")).splitlines():
        if line and not line.startswith((b"#", b'"')):
            yield from _with_alternates(os.path.join(directory, line), depth + 1)


def _is_loose(directory: bytes, oid: str) -> bool:
    return os.path.isfile(os.path.join(directory, oid[:2].encode(), oid[2:].encode()))


def _names_in(directory: bytes) -> list[bytes]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _content(path: bytes) -> bytes:
    """Of a small file."""
    try:
        handle = _opened(path)
    except OSError:
        return b""
    try:
        return os.read(handle, _LISTED)
    finally:
        os.close(handle)


def _mapped(path: bytes) -> bytes | mmap.mmap:
    """An index of a pack may be large, and little of it is read."""
    try:
        handle = _opened(path)
    except OSError:
        return b""
    try:
        return mmap.mmap(handle, 0, prot=mmap.PROT_READ)
    except (OSError, ValueError):
        return b""
    finally:
        os.close(handle)


def _opened(path: bytes) -> int:
    """A regular file: nobody makes us wait at a FIFO."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise FileNotFoundError(path)


def _in_pack(index: bytes | mmap.mmap, oid: bytes) -> bool:
    """By bisection in an index of version 2."""
    if index[:8] != _VERSION_2:
        return False
    size, table = len(oid), 8 + 256 * 4
    low = int.from_bytes(index[8 + (oid[0] - 1) * 4 : 8 + oid[0] * 4]) if oid[0] else 0
    high = int.from_bytes(index[8 + oid[0] * 4 : 12 + oid[0] * 4])
    if table + high * size > len(index):
        return False
    while low < high:
        middle = (low + high) // 2
        found = index[table + middle * size : table + (middle + 1) * size]
        if found == oid:
            return True
        low, high = (middle + 1, high) if found < oid else (low, middle)
    return False
