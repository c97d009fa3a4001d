"""How a table is defined, by what the server says of it (SHOW CREATE TABLE): a line for each column, key and check.

From two of them comes the ALTER TABLE that makes the one the other; that it does is tried on an empty table first."""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from takeback.adapters.mariadb.wire import Wire, quoted

_COLUMN = re.compile(r"`((?:[^`]|``)+)` ")
_KEY = re.compile(r"(?:PRIMARY KEY|(?:UNIQUE |FULLTEXT |SPATIAL |)KEY `((?:[^`]|``)+)`) ")
_LINK = re.compile(r"CONSTRAINT `(?:[^`]|``)+` FOREIGN KEY ")
_CHECK = re.compile(r"CONSTRAINT `((?:[^`]|``)+)` CHECK ")
_NEXT_NUMBER = re.compile(r" AUTO_INCREMENT=\d+")
_OPTION = re.compile(r"(?P<name>[A-Z_]+(?: [A-Z_]+)*)=(?:'(?:[^'\\]|''|\\.)*'|\S+)")
_DEFAULTS = {
    "COMMENT": "COMMENT=''",
    "ROW_FORMAT": "ROW_FORMAT=DEFAULT",
    "KEY_BLOCK_SIZE": "KEY_BLOCK_SIZE=0",
}


class TableLayout(NamedTuple):
    columns: tuple[tuple[str, str], ...]  # name and line, in their order
    keys: tuple[tuple[str, str], ...]  # sorted: a key that comes back comes back last
    checks: tuple[tuple[str, str], ...]
    options: str


def layout(wire: Wire, name: str) -> TableLayout:
    return parsed(str(wire.rows(f"SHOW CREATE TABLE {quoted(name)}")[0][1]))


def parsed(text: str) -> TableLayout:
    inner, _, options = text.partition("\n)")
    columns: list[tuple[str, str]] = []
    keys: list[tuple[str, str]] = []
    checks: list[tuple[str, str]] = []
    for line in inner.split("\n")[1:]:
        line = line.strip().removesuffix(",")
        if found := _COLUMN.match(line):
            columns.append((_plain(found[1]), line))
        elif found := _KEY.match(line):
            keys.append((_plain(found[1] or ""), line))
        elif found := _CHECK.match(line):
            checks.append((_plain(found[1]), line))
        elif not _LINK.match(line):
            checks.append(("", line))  # something that is not known here: it can be compared, and no more
    return TableLayout(
        tuple(columns), tuple(sorted(keys)), tuple(sorted(checks)), _NEXT_NUMBER.sub("", options).strip()
    )


def clauses(
    old: TableLayout, new: TableLayout, changed: Collection[str] = (), renamed: Mapping[str, str] = {}
) -> list[str]:
    """What makes the old one the new one. `changed`: columns that are not the same although their lines are."""
    found = [
        f"DROP {'INDEX ' + quoted(name) if name else 'PRIMARY KEY'}" for name in _gone(old.keys, new.keys)
    ]
    found += [f"DROP CONSTRAINT {quoted(name)}" for name in _gone(old.checks, new.checks)]
    found += _options(old.options, new.options)
    found += _columns(old, new, changed, renamed)
    found += [f"ADD {line}" for name, line in new.keys if (name, line) not in old.keys]
    return found + [f"ADD {line}" for name, line in new.checks if (name, line) not in old.checks]


def _gone(old: tuple[tuple[str, str], ...], new: tuple[tuple[str, str], ...]) -> list[str]:
    return [name for name, line in old if (name, line) not in new]


def _columns(
    old: TableLayout, new: TableLayout, changed: Collection[str], renamed: Mapping[str, str]
) -> list[str]:
    lines, came = dict(old.columns), {new: old for old, new in renamed.items()}
    names = [name for name, _ in new.columns]
    stay = [renamed.get(name, name) for name, _ in old.columns if renamed.get(name, name) in names]
    found = [f"DROP COLUMN {quoted(name)}" for name, _ in old.columns if renamed.get(name, name) not in names]
    moved = [name for name in names if name in stay] != stay
    place = "FIRST"
    for name, line in new.columns:
        if name not in stay:
            found.append(f"ADD COLUMN {line} {place}")
        elif name in came:
            found.append(f"CHANGE COLUMN {quoted(came[name])} {line} {place}")
        elif moved or line != lines[name] or name in changed:
            found.append(f"MODIFY COLUMN {line} {place}")
        place = f"AFTER {quoted(name)}"
    return found


def _options(old: str, new: str) -> list[str]:
    if old == new:
        return []
    there = {found["name"] for found in _OPTION.finditer(new)}
    reset = [
        _DEFAULTS.get(found["name"], f"{found['name']}=DEFAULT")
        for found in _OPTION.finditer(old)
        if found["name"] not in there
    ]
    return [" ".join((new, *reset))]


def _plain(name: str) -> str:
    return name.replace("``", "`")
