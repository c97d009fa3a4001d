"""Private keys in a text, line by line."""

import re
from collections.abc import Iterator

from takeback.policy.secret_shapes import Found

_KEY_LINE = re.compile(
    r"(?m)^([+\- ]?[ \t>|]{0,64})([A-Za-z0-9+/=]{16,}|[A-Za-z-]{4,20}: [^\r\n]*)[ \t]*\r?$"
)
_BEGIN = re.compile(r"-----BEGIN ((?:[A-Z0-9]+ )?)PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END (?:[A-Z0-9]+ )?PRIVATE KEY(?: BLOCK)?-----")
_ANY_END = re.compile(r"-----(?:END|BEGIN) ")
_IN_A_LINE = re.compile(r"[A-Za-z0-9+/=\\nr\s:,-]+")
_PUTTY = re.compile(r"(?m)^[+\- ]?Private-Lines: \d+\r?$")


def private_keys(text: str) -> Iterator[Found]:
    """The lines of a key, each by itself, so that a difference keeps its lines. Of a piece of text that begins within a
    key, the lines before its end."""
    place = 0
    while begin := _BEGIN.search(text, place):
        if begin[1] == "ENCRYPTED ":
            place = begin.end()
            continue
        yield Found(begin.start(), begin.start(), "a private key")
        end = _END.search(text, begin.end())
        place = end.start() if end else _end_of_body(text, begin.end())
        yield from _key_lines(text, begin.end(), place)
    end = _END.search(text)
    first = _BEGIN.search(text)
    if end and not (first and first.start() < end.start()):
        other = max((one.end() for one in _ANY_END.finditer(text, 0, end.start())), default=0)
        yield from _key_lines(text, other, end.start())
    for putty in _PUTTY.finditer(text):
        yield Found(putty.start(), putty.start(), "a private key")
        stop = text.find("Private-MAC", putty.end())
        yield from _key_lines(text, putty.end(), stop if stop >= 0 else len(text))


def _end_of_body(text: str, start: int) -> int:
    """Of a key that was cut off: as far as its lines go."""
    found = _IN_A_LINE.match(text, start)
    return found.end() if found else start


def _key_lines(text: str, start: int, stop: int) -> Iterator[Found]:
    if "\n" not in text[start:stop]:  # on one line, as JSON and variables hold it
        while start < stop and text.startswith(("\\n", "\\r"), start):
            start += 2
        while stop > start and text.startswith("\\n", stop - 2):
            stop -= 2
        if stop > start:
            yield Found(start, stop, "a private key")
        return
    for line in _KEY_LINE.finditer(text, start, stop):
        yield Found(*line.span(2), "a private key")
