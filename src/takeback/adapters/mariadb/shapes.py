"""The tables of one database, from the catalog: shapes, and the text that defines them."""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from takeback.adapters.mariadb.wire import Wire, quoted

# How a table is defined, by what the server says of it (SHOW CREATE TABLE): a line for each column, key and
# check. From two of them comes the ALTER TABLE that makes the one the other; that it does is tried on an
# empty table first.


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
    """Without its foreign keys."""
    return parsed(str(wire.rows(f"SHOW CREATE TABLE {quoted(name)}")[0][1]))


def definition(wire: Wire, name: str) -> str:
    return repr(layout(wire, name))


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


OURS = "_tb_"  # how the name of everything begins that takeback makes in a database
_MADE_BY_US = re.compile(
    r"_tb_(meta|table|op|touched|plan|fit|(log|net|put)_\d+|(try|kept|left|new)_[0-9a-z]{20}|trash_[0-9a-z]{20}_\d+)"
)


class MariaColumn(NamedTuple):
    name: str
    kind: str  # DATA_TYPE: "varchar"
    type: str  # COLUMN_TYPE: "varchar(40)"
    charset: str
    collation: str
    nullable: bool
    generated: bool  # computed by the server, so neither logged nor restored


class MariaForeignKey(NamedTuple):
    """A foreign key."""

    name: str
    child: str
    columns: tuple[str, ...]
    parent: str
    refers: tuple[str, ...]
    on_delete: str
    on_update: str
    elsewhere: str = ""  # the database of the parent, if it is another

    @property
    def refers_to(self) -> str:
        return f"{quoted(self.elsewhere)}.{quoted(self.parent)}" if self.elsewhere else quoted(self.parent)


class MariaShape(NamedTuple):
    name: str
    engine: str
    kind: str  # "BASE TABLE", "SYSTEM VERSIONED", …
    columns: tuple[MariaColumn, ...]
    key: tuple[str, ...]  # by which a row is found again; empty: by all of its values
    uniques: tuple[tuple[str, ...], ...]  # the other unique indexes

    @property
    def stored(self) -> tuple[MariaColumn, ...]:
        return tuple(column for column in self.columns if not column.generated)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.stored)


class Schema(NamedTuple):
    shapes: dict[str, MariaShape]
    links: tuple[MariaForeignKey, ...]


def fingerprint(shape: MariaShape) -> str:
    """Equal for as long as what was logged can be put back."""
    data = [shape.engine, shape.kind, shape.columns, shape.key]
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()


def differences(then: MariaShape, now: MariaShape) -> list[str]:
    """In words, what keeps rows from coming back as they were."""
    before = {column.name: column for column in then.columns}
    after = {column.name: column for column in now.columns}
    found = [f"column {name} is gone" for name in before if name not in after]
    found += [f"column {name} is new" for name in after if name not in before]
    for name, column in before.items():
        if name in after:
            found += _changes(column, after[name])
    if then.key != now.key:
        found.append("it has another key")
    if (then.engine, then.kind) != (now.engine, now.kind):
        found.append("it is another kind of table")
    return found or ["its columns are in another order"]


def _changes(then: MariaColumn, now: MariaColumn) -> list[str]:
    name = then.name
    if (then.type, then.collation) != (now.type, now.collation):
        sides = [f"{one.type} {one.collation}".strip() for one in (now, then)]
        return [f"column {name} is {sides[0]}, was {sides[1]}"]
    if then.generated != now.generated:
        return [f"column {name} is {'computed now' if now.generated else 'not computed any more'}"]
    if then.nullable != now.nullable:
        return [f"column {name} takes {'NULL now' if now.nullable else 'no NULL any more'}"]
    return []


def survey(wire: Wire) -> Schema:
    shapes = {name: shape for name, shape in _shapes(wire, "").items() if not name.startswith(OURS)}
    return Schema(shapes, _links(wire.rows(_LINKS), wire.rows(_RULES)))


def strangers(wire: Wire) -> list[str]:
    """Tables of others whose names begin like those of ours."""
    names = (str(name) for name, _, _ in wire.rows(_TABLES))
    return [name for name in names if name.startswith(OURS) and not _MADE_BY_US.fullmatch(name)]


def one_shape(wire: Wire, name: str) -> MariaShape:
    """Of a table that is there, be it one of ours."""
    return _shapes(wire, f" AND TABLE_NAME = {wire.text(name)}")[name]


def links_from(wire: Wire, name: str) -> tuple[MariaForeignKey, ...]:
    only = f" AND TABLE_NAME = {wire.text(name)}"
    return _links(wire.rows(_narrowed(_LINKS, only)), wire.rows(_RULES + only))


def exists(wire: Wire, name: str) -> bool:
    return bool(wire.rows(_narrowed(_TABLES, f" AND TABLE_NAME = {wire.text(name)}")))


def _shapes(wire: Wire, only: str) -> dict[str, MariaShape]:
    columns: dict[str, list[MariaColumn]] = defaultdict(list)
    for table, *rest in wire.rows(_narrowed(_COLUMNS, only)):
        columns[table].append(_column(rest))
    indexes: dict[str, dict[str, list[tuple[str | None, Any]]]] = defaultdict(lambda: defaultdict(list))
    for table, index, column, part in wire.rows(_narrowed(_UNIQUES, only)):
        indexes[table][index].append((column, part))
    return {
        name: _shape(name, engine or "", kind, columns[name], indexes[name])
        for name, engine, kind in wire.rows(_narrowed(_TABLES, only))
    }


def _narrowed(asked: str, only: str) -> str:
    what, order, by = asked.rpartition(" ORDER BY ")
    return what + only + order + by


_TABLES = (
    "SELECT TABLE_NAME, ENGINE, TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()"
    " AND TABLE_TYPE NOT IN ('VIEW', 'SYSTEM VIEW', 'SEQUENCE', 'TEMPORARY') ORDER BY TABLE_NAME"
)
_COLUMNS = (
    "SELECT TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, IS_NULLABLE, EXTRA,"
    " GENERATION_EXPRESSION FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()"
    " ORDER BY TABLE_NAME, ORDINAL_POSITION"
)
_UNIQUES = (
    "SELECT TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS"
    " WHERE TABLE_SCHEMA = DATABASE() AND NON_UNIQUE = 0 ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX"
)
# Asked one by one: joined by the server they take ten times as long.
_LINKS = (
    "SELECT CONSTRAINT_NAME, TABLE_NAME, COLUMN_NAME, REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME,"
    " REFERENCED_COLUMN_NAME, TABLE_SCHEMA FROM information_schema.KEY_COLUMN_USAGE"
    " WHERE TABLE_SCHEMA = DATABASE() AND REFERENCED_TABLE_NAME IS NOT NULL"
    " ORDER BY TABLE_NAME, CONSTRAINT_NAME, ORDINAL_POSITION"
)
_RULES = (
    "SELECT TABLE_NAME, CONSTRAINT_NAME, DELETE_RULE, UPDATE_RULE FROM information_schema.REFERENTIAL_CONSTRAINTS"
    " WHERE CONSTRAINT_SCHEMA = DATABASE()"
)
_FROM_OUTSIDE = (
    "SELECT DISTINCT REFERENCED_TABLE_NAME, CONCAT(CONSTRAINT_SCHEMA, '.', TABLE_NAME)"
    " FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE UNIQUE_CONSTRAINT_SCHEMA = DATABASE()"
    " AND CONSTRAINT_SCHEMA <> DATABASE()"
    " AND (DELETE_RULE IN ('CASCADE', 'SET NULL') OR UPDATE_RULE IN ('CASCADE', 'SET NULL'))"
)


def cascading_out(wire: Wire) -> dict[str, str]:
    """Tables of this database whose rows take rows of another database with them, and one of those."""
    return {str(parent): str(child) for parent, child in wire.rows(_FROM_OUTSIDE)}


def _column(row: Sequence[Any]) -> MariaColumn:
    name, kind, type, charset, collation, nullable, extra, expression = row
    computed = bool(expression) or "GENERATED" in (extra or "").upper().replace("DEFAULT_GENERATED", "")
    return MariaColumn(
        name,
        kind.lower(),
        type.partition("/*")[0].strip(),
        charset or "",
        collation or "",
        nullable == "YES",
        computed,
    )


def _shape(
    name: str,
    engine: str,
    kind: str,
    columns: list[MariaColumn],
    indexes: dict[str, list[tuple[str | None, Any]]],
) -> MariaShape:
    usable = {column.name for column in columns if not column.nullable and not column.generated}
    key: tuple[str, ...] = ()
    others: list[tuple[str, ...]] = []
    for _, parts in sorted(indexes.items(), key=lambda item: (item[0] != "PRIMARY", len(item[1]), item[0])):
        names = tuple(column or "" for column, _ in parts)
        whole = all(part is None for _, part in parts)
        if not key and whole and usable.issuperset(names):
            key = names
        else:
            others.append(names if whole and "" not in names else ())  # (): one that can only be tried
    return MariaShape(name, engine, kind, tuple(columns), key, tuple(others))


def _links(rows: Sequence[Sequence[Any]], rules: Sequence[Sequence[Any]]) -> tuple[MariaForeignKey, ...]:
    acts = {(table, name): (on_delete, on_update) for table, name, on_delete, on_update in rules}
    found: dict[tuple[str, str], MariaForeignKey] = {}
    for name, child, column, schema, parent, refers, own in rows:
        if (child, name) not in acts:
            continue  # it was dropped between the two questions, which whoever asks will notice
        elsewhere = "" if schema == own else schema
        link = found.get((child, name)) or MariaForeignKey(
            name, child, (), parent, (), *acts[child, name], elsewhere
        )
        found[child, name] = link._replace(columns=(*link.columns, column), refers=(*link.refers, refers))
    return tuple(found.values())
