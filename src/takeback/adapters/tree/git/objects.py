"""Whether a repository has an object: loose, in a pack, or at an alternate. Only the names are looked at."""

import hashlib
import os
import zlib
from collections.abc import Iterable

_DEEPEST = 5  # as git: so many alternates of alternates
_MAGIC = b"\xfftOc"
_MOST = 64 << 20  # a loose object up to this size is read to see that it is whole


class ObjectStore:
    """The object directories of one repository, at one moment."""

    def __init__(self, directory: bytes, coming: Iterable[str] = (), indexes: Iterable[bytes] = ()) -> None:
        """`coming`: object ids that an undo is about to bring back; `indexes`: contents of such indexes of packs."""
        self._directories = list(_with_alternates(directory))
        self._coming = frozenset(coming)
        self._indexes = list(indexes)
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
                    content = _content(os.path.join(packs, name))
                    self._blind = self._blind or not content.startswith(_MAGIC + b"\0\0\0\x02")
                    self._indexes.append(content)


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
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _in_pack(index: bytes, oid: bytes) -> bool:
    """By bisection in an index of version 2."""
    if not index.startswith(_MAGIC + b"\0\0\0\x02"):
        return False
    size, table = len(oid), 8 + 256 * 4
    low = int.from_bytes(index[8 + (oid[0] - 1) * 4 :][:4]) if oid[0] else 0
    high = int.from_bytes(index[8 + oid[0] * 4 :][:4])
    if table + high * size > len(index):
        return False
    while low < high:
        middle = (low + high) // 2
        found = index[table + middle * size : table + (middle + 1) * size]
        if found == oid:
            return True
        low, high = (middle + 1, high) if found < oid else (low, middle)
    return False
