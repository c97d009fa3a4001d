"""A stream out of its DUMP: entries, consumer groups, and what was handed out and not acknowledged."""

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from takeback.adapters.redis.listpack import Unreadable, elements

Id = tuple[int, int]
_DELETED, _SAME_FIELDS = 1, 2


class Group(NamedTuple):
    last: Id
    read: int
    pending: dict[Id, tuple[bytes, int, int]]  # to whom, when, how often
    consumers: frozenset[bytes]  # when each was seen last is no content


class Stream(NamedTuple):
    entries: dict[Id, tuple[bytes, ...]]  # fields and values, in their order
    last: Id
    deleted: Id  # the greatest that was
    added: int
    groups: dict[bytes, Group]


class _Reader(Protocol):
    def length(self) -> int: ...
    def string(self) -> bytes: ...
    def milliseconds(self) -> int: ...
    def id(self) -> Id: ...


def stream(read: _Reader, kind: int) -> Stream:
    """`kind`: 15 before Redis 7.0, 19 since, 21 since 7.2."""
    entries: dict[Id, tuple[bytes, ...]] = {}
    for _ in range(read.length()):
        first: Id = struct.unpack(">QQ", read.string())
        entries.update(_entries(first, read.string()))
    if read.length() != len(entries):
        raise Unreadable("a stream of another length")
    last = (read.length(), read.length())
    deleted, added = (0, 0), len(entries)
    if kind >= 19:
        _ = (read.length(), read.length())  # the first id, which is the smallest of the entries
        deleted = (read.length(), read.length())
        added = read.length()
    groups = {read.string(): _group(read, kind) for _ in range(read.length())}
    return Stream(entries, last, deleted, added, groups)


def _entries(first: Id, node: bytes) -> Iterator[tuple[Id, tuple[bytes, ...]]]:
    found = elements(node)
    count, deleted = _number(next(found)), _number(next(found))
    fields = [_text(next(found)) for _ in range(_number(next(found)))]
    next(found)  # the end of the master entry
    for _ in range(count + deleted):
        flags = _number(next(found))
        id = (first[0] + _number(next(found)), first[1] + _number(next(found)))
        parts: list[bytes] = []
        if flags & _SAME_FIELDS:
            for field in fields:
                parts += (field, _text(next(found)))
        else:
            parts = [_text(next(found)) for _ in range(2 * _number(next(found)))]
        next(found)  # how many elements to go back
        if not flags & _DELETED:
            yield id, tuple(parts)


def _number(value: bytes | int) -> int:
    if isinstance(value, bytes):
        raise Unreadable("text where a number must be")
    return value


def _text(value: bytes | int) -> bytes:
    return value if isinstance(value, bytes) else b"%d" % value


def _group(read: _Reader, kind: int) -> Group:
    last = (read.length(), read.length())
    seen = read.length() if kind >= 19 else -1
    handed_out: dict[Id, tuple[int, int]] = {}
    for _ in range(read.length()):
        id = read.id()
        handed_out[id] = (read.milliseconds(), read.length())
    pending: dict[Id, Any] = {}
    consumers: set[bytes] = set()
    for _ in range(read.length()):
        name = read.string()
        consumers.add(name)
        read.milliseconds()
        if kind >= 21:
            read.milliseconds()
        for _ in range(read.length()):
            id = read.id()
            pending[id] = (name, *handed_out[id])
    return Group(last, seen, pending, frozenset(consumers))
