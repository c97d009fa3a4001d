"""Where in a TOML file something stands, so that an error can name its line and column."""

import re
from typing import Any, NamedTuple

_HEADER = re.compile(r"\s*(\[\[?)\s*([A-Za-z0-9_.\"' -]+?)\s*\]\]?")
_KEY = re.compile(r"\s*([A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')\s*(?:\.\s*[A-Za-z0-9_-]+\s*)*=")
Path = tuple[str | int, ...]


class Place(NamedTuple):
    line: int = 1
    column: int = 1


class Places:
    """Of tables and keys. What stands inside a value of one line has the place of its key."""

    def __init__(self, text: str) -> None:
        self._found: dict[Path, Place] = {}
        counts: dict[str, int] = {}
        table: Path = ()
        quotes = ""
        for number, line in enumerate(text.splitlines(), 1):
            if quotes:
                quotes = "" if quotes in line else quotes
                continue
            if header := _HEADER.match(line):
                table = _table(header, counts)
                self._found.setdefault(table, Place(number, header.start(1) + 1))
            elif key := _KEY.match(line):
                name = key.group(1).strip("\"'")
                self._found.setdefault((*table, name), Place(number, key.start(1) + 1))
                quotes = next((one for one in ('"""', "'''") if line.count(one) == 1), "")

    def of(self, path: Path) -> Place:
        while path and path not in self._found:
            path = path[:-1]
        return self._found.get(path, Place())


def _table(header: "re.Match[str]", counts: dict[str, int]) -> Path:
    names = [name.strip().strip("\"'") for name in header.group(2).split(".")]
    if header.group(1) == "[[":
        whole = ".".join(names)
        counts[whole] = counts.get(whole, -1) + 1
        return (*names, counts[whole])
    first: Any = names[0]
    if first in counts:  # of the last one of a list of tables
        return (first, counts[first], *names[1:])
    return tuple(names)
