"""What a DUMP says of a key, without the way it happens to be laid out: a copy of a set has other bytes, not other
members."""

import struct
from typing import Any, NamedTuple

from takeback.adapters.redis.listpack import Unreadable, items, numbers, unpacked
from takeback.adapters.redis.streams import stream

FOOTER = 10  # version and checksum, which say nothing of the content
HYPERLOGLOG = b"HYLL"


class Content(NamedTuple):
    """Two are equal when no command could tell the keys apart; `value` is in the plain types of Python."""

    type: str  # as TYPE says it; "unknown" for one that we cannot read: then `value` is its bytes
    value: Any


def type_of(dump: bytes) -> str:
    """Without reading all of it."""
    kinds = {
        "string": (0,),
        "list": (1, 18),
        "set": (2, 11, 20),
        "zset": (3, 5, 17),
        "hash": (4, 16),
        "stream": (15, 19, 21),
    }
    return next((name for name, numbers in kinds.items() if dump[0] in numbers), "unknown")


def content_of(dump: bytes) -> Content:
    payload = dump[:-FOOTER]
    try:
        return _decoded(payload)
    except (Unreadable, IndexError, struct.error, ValueError):
        return Content("unknown", payload)


def _decoded(payload: bytes) -> Content:
    read = Reader(payload, 1)
    kind = payload[0]
    if kind == 0:
        found = Content("string", _without_cache(read.string()))
    elif kind in (1, 18):
        found = Content("list", _list(read, kind))
    elif kind in (2, 11, 20):
        found = Content("set", frozenset(_set(read, kind)))
    elif kind in (3, 5, 17):
        found = Content("zset", _scores(read, kind))
    elif kind in (4, 16):
        found = Content(
            "hash",
            _pairs([read.string() for _ in range(2 * read.length())] if kind == 4 else items(read.string())),
        )
    elif kind in (15, 19, 21):
        found = Content("stream", stream(read, kind))
    else:
        raise Unreadable(f"type {kind}")
    if not read.at_end:
        raise Unreadable("more than one value")
    return found


def _without_cache(value: bytes) -> bytes:
    """PFCOUNT writes what it counted into the value, which is no change of it."""
    if value[:4] == HYPERLOGLOG and len(value) >= 16:
        return value[:8] + bytes(8) + value[16:]
    return value


def _list(read: "Reader", kind: int) -> list[bytes]:
    if kind == 1:
        return [read.string() for _ in range(read.length())]
    found: list[bytes] = []
    for _ in range(read.length()):
        packed = read.length() == 2
        node = read.string()
        found += items(node) if packed else [node]
    return found


def _set(read: "Reader", kind: int) -> list[bytes]:
    if kind == 2:
        return [read.string() for _ in range(read.length())]
    data = read.string()
    return [b"%d" % number for number in numbers(data)] if kind == 11 else items(data)


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


class Reader:
    """Goes through a payload from the left."""

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
