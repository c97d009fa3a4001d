"""A command in one line, taken apart as redis-cli does: a backslash means something only between quotes."""

import re
from collections.abc import Iterator

from takeback.errors import Misuse

_PLAIN, _DOUBLE, _SINGLE = r"""[^\s"']+""", r'"(?:\\.|[^"\\])*+"', r"'(?:\\'|[^'])*+'"
_SPACE = re.compile(r"\s*", re.ASCII)
_PART = re.compile(rf"{_PLAIN}|{_DOUBLE}|{_SINGLE}", re.DOTALL | re.ASCII)
_WORD = re.compile(rf"(?:{_PLAIN}|(?:{_DOUBLE}|{_SINGLE})(?!\S))+", re.DOTALL | re.ASCII)
_ESCAPED = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def words(line: str) -> Iterator[bytes]:
    place = _after_spaces(line, 0)
    while place < len(line):
        found = _WORD.match(line, place)
        if found is None or _after_spaces(line, found.end()) == found.end() < len(line):
            raise Misuse(
                "A quote of the command is not closed, or a word goes on right after it.",
                hint="Give the arguments as a list.",
            )
        yield b"".join(_meant(part) for part in _PART.findall(found.group()))
        place = _after_spaces(line, found.end())


def _after_spaces(line: str, place: int) -> int:
    found = _SPACE.match(line, place)
    return found.end() if found else place


def _meant(part: str) -> bytes:
    try:
        data = part.encode()
    except UnicodeEncodeError as error:
        raise Misuse(
            f"That is no text: it holds half of a character at {error.start}.", hint="Give bytes instead."
        ) from None
    if part[0] == "'":
        return data[1:-1].replace(rb"\'", b"'")
    return _ESCAPED.sub(lambda found: _byte(found.group(1)), data[1:-1]) if part[0] == '"' else data


def _byte(escaped: bytes) -> bytes:
    if len(escaped) == 3:
        return bytes([int(escaped[1:], 16)])
    return _LETTERS.get(escaped, escaped)
