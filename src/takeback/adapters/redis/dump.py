"""Decode the DUMP of a key, in each of its encodings: packed lists, numbers and streams."""

import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class Unreadable(Exception):
    """Not in a form that we know; then only the bytes can be compared."""


def items(data: bytes) -> list[bytes]:
    """The elements of a listpack; a number is written out, as every client sees it."""
    return [_as_bytes(item) for item in elements(data)]


def elements(data: bytes) -> Iterator[bytes | int]:
    at = 6  # after the number of bytes and of elements
    while data[at] != 0xFF:
        value, length = _element(data, at)
        yield value
        at += length + _back_length(length)


def _element(data: bytes, at: int) -> tuple[bytes | int, int]:
    """The element, and how many bytes it takes."""
    first = data[at]
    if first < 0x80:
        return first, 1
    if first < 0xC0:
        return _text(data, at + 1, first & 0x3F), 1 + (first & 0x3F)
    if first < 0xE0:
        number = (first & 0x1F) << 8 | data[at + 1]
        return number - 0x2000 if number & 0x1000 else number, 2
    if first < 0xF0:
        size = (first & 0x0F) << 8 | data[at + 1]
        return _text(data, at + 2, size), 2 + size
    if first == 0xF0:
        size = int.from_bytes(data[at + 1 : at + 5], "little")
        return _text(data, at + 5, size), 5 + size
    width = {0xF1: 2, 0xF2: 3, 0xF3: 4, 0xF4: 8}.get(first)
    if width is None:
        raise Unreadable(f"a listpack holds {first:#x}")
    return int.from_bytes(data[at + 1 : at + 1 + width], "little", signed=True), 1 + width


def _text(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise Unreadable("a listpack is too short")
    return data[at : at + size]


def _back_length(length: int) -> int:
    """Bytes that say the length again, to be read backwards."""
    return 1 + sum(length >= limit for limit in (1 << 7, 1 << 14, 1 << 21, 1 << 28))


def numbers(data: bytes) -> Iterator[int]:
    width = int.from_bytes(data[:4], "little")
    if width not in (2, 4, 8):
        raise Unreadable(f"an intset of {width} bytes")
    for at in range(8, len(data), width):
        yield int.from_bytes(data[at : at + width], "little", signed=True)


def unpacked(data: bytes, size: int) -> bytes:
    """LZF: literal runs, and references to what was written before."""
    out = bytearray()
    at = 0
    while at < len(data):
        control = data[at]
        at += 1
        if control < 32:
            out += data[at : at + control + 1]
            at += control + 1
            continue
        length = control >> 5
        if length == 7:
            length += data[at]
            at += 1
        start = len(out) - ((control & 0x1F) << 8) - data[at] - 1
        at += 1
        length += 2
        if start < 0:
            raise Unreadable("an LZF reference before the beginning")
        if start + length <= len(out):
            out += out[start : start + length]
        else:  # it runs into what it writes itself
            for place in range(start, start + length):
                out.append(out[place])
    if len(out) != size:
        raise Unreadable("an LZF string of another length")
    return bytes(out)


Id = tuple[int, int]
_DELETED, _SAME_FIELDS = 1, 2


class ConsumerGroup(NamedTuple):
    last: Id
    read: int
    pending: dict[Id, tuple[bytes, int, int]]  # to whom, when, how often
    consumers: frozenset[bytes]  # when each was seen last is no content


class Stream(NamedTuple):
    entries: dict[Id, tuple[bytes, ...]]  # fields and values, in their order
    last: Id
    deleted: Id  # the greatest that was
    added: int
    groups: dict[bytes, ConsumerGroup]


def stream(read: "Reader", kind: int) -> Stream:
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
    fields = [_as_bytes(next(found)) for _ in range(_number(next(found)))]
    next(found)  # the end of the master entry
    for _ in range(count + deleted):
        flags = _number(next(found))
        id = (first[0] + _number(next(found)), first[1] + _number(next(found)))
        parts: list[bytes] = []
        if flags & _SAME_FIELDS:
            for field in fields:
                parts += (field, _as_bytes(next(found)))
        else:
            parts = [_as_bytes(next(found)) for _ in range(2 * _number(next(found)))]
        next(found)  # how many elements to go back
        if not flags & _DELETED:
            yield id, tuple(parts)


def _number(value: bytes | int) -> int:
    if isinstance(value, bytes):
        raise Unreadable("text where a number must be")
    return value


def _as_bytes(value: bytes | int) -> bytes:
    return value if isinstance(value, bytes) else b"%d" % value


def _group(read: "Reader", kind: int) -> ConsumerGroup:
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
    return ConsumerGroup(last, seen, pending, frozenset(consumers))


# What a DUMP says of a key, without the way it happens to be laid out: a copy of a set has other bytes, not
# other members.


FOOTER = 10  # version and checksum, which say nothing of the content
HYPERLOGLOG = b"HYLL"


_KINDS = {
    "string": (0,),
    "list": (1, 18),
    "set": (2, 11, 20),
    "zset": (3, 5, 17),
    "hash": (4, 16),
    "stream": (15, 19, 21),
}


class Content(NamedTuple):
    """Two are equal if no command could distinguish the keys; `value` is in the plain types of Python."""

    type: str  # as TYPE says it; "unknown" for one that we cannot read: then `value` is its bytes
    value: Any


def type_of(dump: bytes) -> str:
    """Without reading all of it."""
    return next((name for name, numbers in _KINDS.items() if dump[0] in numbers), "unknown")


def content_of(dump: bytes) -> Content:
    payload = dump[:-FOOTER]
    try:
        return _decoded(payload)
    except (Unreadable, IndexError, struct.error, ValueError):
        return Content("unknown", payload)


def _decoded(payload: bytes) -> Content:
    type, kind = type_of(payload), payload[0]
    if type not in _VALUES:
        raise Unreadable(f"type {kind}")
    read = Reader(payload, 1)
    value = _VALUES[type](read, kind)
    if not read.at_end:
        raise Unreadable("more than one value")
    return Content(type, value)


def _string(read: "Reader", _kind: int) -> bytes:
    value = read.string()
    # PFCOUNT writes what it counted into the value, which is no change of it.
    if value[:4] == HYPERLOGLOG and len(value) >= 16:
        return value[:8] + bytes(8) + value[16:]
    return value


def _list(read: "Reader", kind: int) -> list[bytes]:
    if kind == 1:
        return read.strings()
    found: list[bytes] = []
    for _ in range(read.length()):
        packed = read.length() == 2
        node = read.string()
        found += items(node) if packed else [node]
    return found


def _set(read: "Reader", kind: int) -> frozenset[bytes]:
    if kind == 2:
        return frozenset(read.strings())
    data = read.string()
    return frozenset(map(_as_bytes, numbers(data)) if kind == 11 else items(data))


def _hash(read: "Reader", kind: int) -> dict[bytes, bytes]:
    return _pairs([read.string() for _ in range(2 * read.length())] if kind == 4 else items(read.string()))


def _scores(read: "Reader", kind: int) -> dict[bytes, float]:
    if kind == 17:
        return {member: float(score) for member, score in _pairs(items(read.string())).items()}
    found: dict[bytes, float] = {}
    for _ in range(read.length()):
        member = read.string()
        found[member] = read.double() if kind == 5 else read.old_double()
    return found


def _pairs(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


_VALUES: dict[str, Callable[["Reader", int], Any]] = {
    "string": _string, "list": _list, "set": _set, "zset": _scores, "hash": _hash, "stream": stream
}  # fmt: skip


class Reader:
    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)

    def take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise Unreadable("too short")
        self._at += size
        return self._data[self._at - size : self._at]

    def length(self) -> int:
        found, special = self._length()
        if special:
            raise Unreadable("a string where a length must be")
        return found

    def _length(self) -> tuple[int, bool]:
        first = self.take(1)[0]
        if first >> 6 == 0:
            return first & 0x3F, False
        if first >> 6 == 1:
            return (first & 0x3F) << 8 | self.take(1)[0], False
        if first == 0x80:
            return int.from_bytes(self.take(4), "big"), False
        if first == 0x81:
            return int.from_bytes(self.take(8), "big"), False
        return first & 0x3F, True

    def string(self) -> bytes:
        found, special = self._length()
        if not special:
            return self.take(found)
        if found <= 2:
            return b"%d" % int.from_bytes(self.take(1 << found), "little", signed=True)
        if found == 3:
            packed, size = self.length(), self.length()
            return unpacked(self.take(packed), size)
        raise Unreadable(f"a string in form {found}")

    def strings(self) -> list[bytes]:
        return [self.string() for _ in range(self.length())]

    def double(self) -> float:
        return struct.unpack("<d", self.take(8))[0]

    def old_double(self) -> float:
        size = self.take(1)[0]
        odd = {253: "nan", 254: "inf", 255: "-inf"}
        return float(odd[size] if size in odd else self.take(size))

    def milliseconds(self) -> int:
        return int.from_bytes(self.take(8), "little", signed=True)

    def id(self) -> tuple[int, int]:
        """Of a stream entry, as the tree of entries has it."""
        return struct.unpack(">QQ", self.take(16))
