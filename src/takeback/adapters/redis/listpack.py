"""The two packed forms inside a DUMP: listpack and intset; and LZF, by which long strings are packed."""

from collections.abc import Iterator


class Unreadable(Exception):
    """Not in a form that we know; then only the bytes can be compared."""


def items(data: bytes) -> list[bytes]:
    """The elements of a listpack; a number is written out, as every client sees it."""
    return [item if isinstance(item, bytes) else b"%d" % item for item in elements(data)]


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
    for count, limit in enumerate((1 << 7, 1 << 14, 1 << 21, 1 << 28), start=1):
        if length < limit:
            return count
    return 5


def numbers(data: bytes) -> Iterator[int]:
    """Of an intset."""
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
