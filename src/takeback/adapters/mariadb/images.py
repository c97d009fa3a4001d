"""A row as one short value that is equal only for rows that are equal in every bit: not by the rules of a collation,
nor by those of numbers."""

from collections.abc import Sequence

from takeback.adapters.mariadb.shapes import Column, Shape
from takeback.adapters.mariadb.wire import quoted

_LONG = frozenset(
    ["text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob", "json", "vector"]
)  # hashed one by one: together they could be longer than what the server hands around
_SPACE = frozenset(
    [
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geometrycollection",
        "geomcollection",
    ]
)
_PLAIN = frozenset(
    [
        "tinyint",
        "smallint",
        "mediumint",
        "int",
        "integer",
        "bigint",
        "decimal",
        "numeric",
        "year",
        "date",
        "time",
        "datetime",
        "inet4",
        "inet6",
        "uuid",
    ]
)
WHOLE = frozenset(["tinyint", "smallint", "mediumint", "int", "integer", "bigint"])
_SHORT = 512


def form(column: Column, value: str) -> str:
    """An expression of digits and letters, NULL for NULL. `value` is the column as the statement names it."""
    kind = column.kind
    if kind in _PLAIN:
        return f"CAST({value} AS CHAR)"
    if kind in ("float", "double", "real"):
        return f"CAST({value} * 1e0 AS CHAR)"  # as a double, since a float shows only six digits; -0 stays -0
    if kind == "timestamp":
        return f"CAST(UNIX_TIMESTAMP({value}) AS CHAR)"  # an instant, in whatever time zone the session is
    if kind in ("enum", "set"):
        return f"CONCAT({value} + 0, '.', HEX({value}))"  # the wrong value '' has the number 0
    if kind in _SPACE:
        return f"CONCAT(ST_SRID({value}), '.', SHA2(ST_AsWKB({value}), 256))"
    if kind == "json":
        return f"SHA2(CAST({value} AS CHAR), 256)"
    if kind in _LONG or _length(column) > _SHORT:
        return f"SHA2({value}, 256)"
    return f"HEX({value})"


def _length(column: Column) -> int:
    inside = column.type.partition("(")[2].partition(")")[0]
    return int(inside) if inside.isdigit() else 0


def image(columns: Sequence[Column], values: Sequence[str]) -> str:
    """32 bytes."""
    forms = ", ',', ".join(
        f"IFNULL({form(column, value)}, '~')" for column, value in zip(columns, values, strict=True)
    )
    return f"UNHEX(SHA2(CONCAT({forms}, ''), 256))"


def logged_names(shape: Shape) -> list[str]:
    """Of the columns in a log: by number, so that no name of a column is in the way."""
    return [f"c{number}" for number in range(1, len(shape.stored) + 1)]


def logged_name(shape: Shape, column: str) -> str:
    return f"c{[one.name for one in shape.stored].index(column) + 1}"


def logged_image(shape: Shape, alias: str) -> str:
    return image(shape.stored, [f"{alias}.{name}" for name in logged_names(shape)])


def live_image(shape: Shape, alias: str) -> str:
    """NULL where an outer join found no row."""
    values = [f"{alias}.{quoted(column.name)}" for column in shape.stored]
    whole = image(shape.stored, values)
    if not shape.key:
        return whole
    return f"IF({alias}.{quoted(shape.key[0])} IS NULL, NULL, {whole})"


def shown(column: Column, value: str) -> str:
    """For people."""
    if column.kind in _SPACE:
        return f"ST_AsText({value})"
    if column.kind == "bit":
        return f"CONCAT('0x', HEX({value}))"
    if column.kind.endswith("blob") or column.kind in ("binary", "varbinary", "vector"):
        return f"CONCAT('0x', LEFT(HEX({value}), 200), IF(LENGTH({value}) > 100, '…', ''))"
    if column.kind in ("float", "double", "real"):
        return f"CAST({value} AS CHAR)"
    if column.kind in _PLAIN or column.kind in ("timestamp", "enum", "set"):
        return f"CAST({value} AS CHAR)"
    return f"LEFT({value}, 1000)"


def same_key(shape: Shape, logged: str, live: str) -> str:
    """By the rules of the columns: in a case-insensitive key 'a' and 'A' are one row, and an index finds it."""
    return " AND ".join(f"{live}.{quoted(name)} = {logged}.{logged_name(shape, name)}" for name in shape.key)


def same_logged_key(shape: Shape, one: str, other: str) -> str:
    names = [logged_name(shape, name) for name in shape.key]
    return " AND ".join(f"{one}.{name} = {other}.{name}" for name in names)
