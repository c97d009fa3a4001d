"""The tables of one database, from the catalog: their columns, keys and foreign keys; a row of them as an image."""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from takeback.adapters.mariadb.wire import Wire, equal, of, quoted

# A row as one short value that is equal only for rows that are equal in every bit: not by the rules of a
# collation, nor by those of numbers.


_LONG = frozenset(
    ["text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob", "json", "vector"]
)  # hashed one by one: together they could be longer than what the server hands around
_SPACE = frozenset((
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
    "geometrycollection", "geomcollection",
))  # fmt: skip

_PLAIN = frozenset((
    "tinyint", "smallint", "mediumint", "int", "integer", "bigint", "decimal", "numeric", "year", "date", "time",
    "datetime", "inet4", "inet6", "uuid",
))  # fmt: skip

WHOLE = frozenset(["tinyint", "smallint", "mediumint", "int", "integer", "bigint"])
_SHORT = 512


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

    @property
    def logged_type(self) -> str:
        charset = f" CHARACTER SET {self.charset} COLLATE {self.collation}" if self.charset else ""
        return f"{self.type}{charset} NULL DEFAULT NULL"

    def form(self, value: str) -> str:
        """An expression of digits and letters, NULL for NULL. `value` is the column as the statement names it."""
        kind = self.kind
        if kind in _PLAIN:
            return f"CAST({value} AS CHAR)"
        if kind in ("float", "double", "real"):
            return f"CAST({value} * 1e0 AS CHAR)"  # as a double, since a float shows only six digits; -0 stays -0
        if kind == "timestamp":
            return (
                f"CAST(UNIX_TIMESTAMP({value}) AS CHAR)"  # an instant, in whatever time zone the session is
            )
        if kind in ("enum", "set"):
            return f"CONCAT({value} + 0, '.', HEX({value}))"  # the wrong value '' has the number 0
        if kind in _SPACE:
            return f"CONCAT(ST_SRID({value}), '.', SHA2(ST_AsWKB({value}), 256))"
        if kind == "json":
            return f"SHA2(CAST({value} AS CHAR), 256)"
        length = self.type.partition("(")[2].partition(")")[0]
        if kind in _LONG or (length.isdigit() and int(length) > _SHORT):
            return f"SHA2({value}, 256)"
        return f"HEX({value})"

    def shown(self, value: str) -> str:
        if self.kind in _SPACE:
            return f"ST_AsText({value})"
        if self.kind == "bit":
            return f"CONCAT('0x', HEX({value}))"
        if self.kind.endswith("blob") or self.kind in ("binary", "varbinary", "vector"):
            return f"CONCAT('0x', LEFT(HEX({value}), 200), IF(LENGTH({value}) > 100, '…', ''))"
        if self.kind in _PLAIN or self.kind in ("float", "double", "real", "timestamp", "enum", "set"):
            return f"CAST({value} AS CHAR)"
        return f"LEFT({value}, 1000)"


class MariaForeignKey(NamedTuple):
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

    @property
    def logged_names(self) -> list[str]:
        """Of the columns in a log: by number, so that no name of a column is in the way."""
        return [f"c{number}" for number in range(1, len(self.stored) + 1)]

    @property
    def image_columns(self) -> str:
        """All of a log but the number of the image."""
        return ", ".join(["tb_op", "tb_c", "tb_sign", *self.logged_names])

    def logged_name(self, column: str) -> str:
        return f"c{self.names.index(column) + 1}"

    def logged(self, alias: str, columns: Iterable[str] | None = None) -> list[str]:
        """These columns of a row of the log, or all."""
        names = self.logged_names if columns is None else map(self.logged_name, columns)
        return [f"{alias}.{name}" for name in names]

    def logged_image(self, alias: str) -> str:
        return image(self.stored, self.logged(alias))

    def live_image(self, alias: str) -> str:
        """NULL where an outer join found no row."""
        whole = image(self.stored, of(alias, self.names))
        if not self.key:
            return whole
        return f"IF({alias}.{quoted(self.key[0])} IS NULL, NULL, {whole})"

    def same_key(self, logged: str, live: str) -> str:
        """By the rules of the columns: in a case-insensitive key 'a' and 'A' are one row, and an index finds it."""
        return equal(of(live, self.key), self.logged(logged, self.key))

    def same_logged_key(self, one: str, other: str) -> str:
        return equal(self.logged(one, self.key), self.logged(other, self.key))


def image(columns: Sequence[MariaColumn], values: Sequence[str]) -> str:
    forms = ", ',', ".join(
        f"IFNULL({column.form(value)}, '~')" for column, value in zip(columns, values, strict=True)
    )
    return f"UNHEX(SHA2(CONCAT({forms}, ''), 256))"


class LoggedTable(NamedTuple):
    """A table with its log, and with the tables of the session that an undo makes for it."""

    n: int
    shape: MariaShape  # as it is now

    @property
    def log(self) -> str:
        return log_of(self.n)

    @property
    def net(self) -> str:
        return f"_tb_net_{self.n}"

    @property
    def put(self) -> str:
        return f"_tb_put_{self.n}"

    @property
    def table(self) -> str:
        return quoted(self.shape.name)

    def stores(self, columns: Iterable[str]) -> bool:
        """None of them is computed."""
        return set(self.shape.names).issuperset(columns)


def log_of(n: int) -> str:
    return f"_tb_log_{n}"


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
            continue  # it was dropped between the two queries, which the caller will notice
        elsewhere = "" if schema == own else schema
        link = found.get((child, name)) or MariaForeignKey(
            name, child, (), parent, (), *acts[child, name], elsewhere
        )
        found[child, name] = link._replace(columns=(*link.columns, column), refers=(*link.refers, refers))
    return tuple(found.values())
