"""The logs of a protected database: tables for markers and images, triggers that fill them, rows as images."""

from collections.abc import Iterable, Sequence

from takeback.adapters.mariadb.shapes import MariaColumn, MariaShape
from takeback.adapters.mariadb.wire import equal, listed, of, quoted

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


def form(column: MariaColumn, value: str) -> str:
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


def _length(column: MariaColumn) -> int:
    inside = column.type.partition("(")[2].partition(")")[0]
    return int(inside) if inside.isdigit() else 0


def image(columns: Sequence[MariaColumn], values: Sequence[str]) -> str:
    """32 bytes."""
    forms = ", ',', ".join(
        f"IFNULL({form(column, value)}, '~')" for column, value in zip(columns, values, strict=True)
    )
    return f"UNHEX(SHA2(CONCAT({forms}, ''), 256))"


def logged_names(shape: MariaShape) -> list[str]:
    """Of the columns in a log: by number, so that no name of a column is in the way."""
    return [f"c{number}" for number in range(1, len(shape.stored) + 1)]


def logged_name(shape: MariaShape, column: str) -> str:
    return f"c{[one.name for one in shape.stored].index(column) + 1}"


def logged_of(shape: MariaShape, alias: str, columns: Iterable[str]) -> list[str]:
    """These columns of a row of the log."""
    return [f"{alias}.{logged_name(shape, column)}" for column in columns]


def logged_image(shape: MariaShape, alias: str) -> str:
    return image(shape.stored, [f"{alias}.{name}" for name in logged_names(shape)])


def live_image(shape: MariaShape, alias: str) -> str:
    """NULL where an outer join found no row."""
    whole = image(shape.stored, of(alias, shape.names))
    if not shape.key:
        return whole
    return f"IF({alias}.{quoted(shape.key[0])} IS NULL, NULL, {whole})"


def shown(column: MariaColumn, value: str) -> str:
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


def same_key(shape: MariaShape, logged: str, live: str) -> str:
    """By the rules of the columns: in a case-insensitive key 'a' and 'A' are one row, and an index finds it."""
    return equal(of(live, shape.key), logged_of(shape, logged, shape.key))


def same_logged_key(shape: MariaShape, one: str, other: str) -> str:
    return equal(logged_of(shape, one, shape.key), logged_of(shape, other, shape.key))


META, TABLES, OPS, TOUCHED, PLANS = "_tb_meta", "_tb_table", "_tb_op", "_tb_touched", "_tb_plan"
_OPTIONS = "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC"
GATE = "@takeback_op"
PROGRAM = (
    "_tb_p"  # how the name of an account begins that a program was given; its number is that of the operation
)
# Whatever the program itself has set there.
_WHOSE = (
    f"IF LEFT(USER(), {len(PROGRAM)}) = '{PROGRAM}' THEN SET {GATE} ="
    f" CAST(SUBSTRING_INDEX(SUBSTR(USER(), {len(PROGRAM) + 1}), '_', 1) AS UNSIGNED); END IF;"
)
# So that no value is refused or changed on its way to a log, and none is cut silently.
LOG_MODE = "STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION"

BASE = (
    f"CREATE TABLE IF NOT EXISTS {META} (name VARCHAR(32) PRIMARY KEY, value VARCHAR(255) NOT NULL) {_OPTIONS}",
    f"CREATE TABLE IF NOT EXISTS {TABLES} (n INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, name VARCHAR(64) NOT NULL,"
    f" shape CHAR(64) NOT NULL, described LONGTEXT NOT NULL, captured TINYINT NOT NULL) {_OPTIONS}",
    f"CREATE TABLE IF NOT EXISTS {OPS} (no BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, op VARCHAR(64) NOT NULL UNIQUE,"
    " undoes VARCHAR(64) NOT NULL DEFAULT '', undone_by VARCHAR(64) NOT NULL DEFAULT '',"
    " partly TINYINT NOT NULL DEFAULT 0, receipt LONGTEXT NOT NULL DEFAULT '', plan LONGTEXT NOT NULL DEFAULT '',"
    f" at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), KEY (undoes)) {_OPTIONS}",
    f"CREATE TABLE IF NOT EXISTS {TOUCHED} (op BIGINT UNSIGNED NOT NULL, n INT UNSIGNED NOT NULL,"
    " inserted BIGINT UNSIGNED NOT NULL, updated BIGINT UNSIGNED NOT NULL, deleted BIGINT UNSIGNED NOT NULL,"
    f" images BIGINT UNSIGNED NOT NULL, PRIMARY KEY (op, n)) {_OPTIONS}",
    f"CREATE TABLE IF NOT EXISTS {PLANS} (op VARCHAR(64) PRIMARY KEY, undoes VARCHAR(64) NOT NULL,"
    f" plan LONGTEXT NOT NULL) {_OPTIONS}",
)


def log_of(n: int) -> str:
    return f"_tb_log_{n}"


def trigger_name(event: str, n: int) -> str:
    return f"_tb_{event}_{n}"


def log_table(n: int, shape: MariaShape) -> str:
    """Typed, so that a value is the same bits there and back. `tb_sign` -1 and 1: deleted, inserted; -2 and 2: what an
    update found and left; `tb_c` counts the rows whose foreign keys took others with them."""
    key = f", KEY tb_op (tb_op, tb_c, tb_sign){_key(shape)}"
    return f"CREATE TABLE IF NOT EXISTS {log_of(n)} ({_image_columns(shape)}{key}) {_OPTIONS}"


def images_table(name: str, shape: MariaShape, by_key: bool) -> str:
    """Of the session: images of one undo."""
    return (
        f"CREATE TEMPORARY TABLE {name} ({_image_columns(shape)}{_key(shape) if by_key else ''}) {_OPTIONS}"
    )


def _image_columns(shape: MariaShape) -> str:
    columns = "".join(
        f", {name} {typed(column)}" for name, column in zip(logged_names(shape), shape.stored, strict=True)
    )
    return (
        "tb_no BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, tb_op BIGINT UNSIGNED NOT NULL,"
        f" tb_c BIGINT UNSIGNED NOT NULL, tb_sign TINYINT NOT NULL{columns}"
    )


def _key(shape: MariaShape) -> str:
    return f", KEY tb_key ({', '.join(logged_name(shape, name) for name in shape.key)})" if shape.key else ""


def typed(column: MariaColumn) -> str:
    charset = f" CHARACTER SET {column.charset} COLLATE {column.collation}" if column.charset else ""
    return f"{column.type}{charset} NULL DEFAULT NULL"


def logging(n: int, shape: MariaShape, images: Sequence[tuple[int, str]]) -> str:
    """The statement in a trigger: `images` are signs, and OLD or NEW."""
    names = ", ".join(logged_names(shape))
    rows = ", ".join(f"({GATE}, 0, {sign}, {listed(shape.names, row)})" for sign, row in images)
    return f"INSERT INTO {log_of(n)} (tb_op, tb_c, tb_sign, {names}) VALUES {rows};"


def capture_triggers(n: int, shape: MariaShape, walks: dict[str, str]) -> dict[str, str]:
    """By event. `walks`: what is to be done about rows that go with a row of this table, by event."""
    events = {
        "ai": ("AFTER INSERT", logging(n, shape, [(1, "NEW")])),
        "au": ("AFTER UPDATE", logging(n, shape, [(-2, "OLD"), (2, "NEW")])),
        "ad": ("AFTER DELETE", logging(n, shape, [(-1, "OLD")])),
        "bu": ("BEFORE UPDATE", ""),
        "bd": ("BEFORE DELETE", ""),
    }
    found: dict[str, str] = {}
    for event, (when, statement) in events.items():
        body = statement + walks.get(event, "")
        if body:
            found[event] = _trigger(event, n, when, shape.name, body)
    return found


def refusing_triggers(n: int, name: str) -> dict[str, str]:
    """On a table that is not captured: a change of it must not pass as if it were."""
    signal = (
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT ="
        " 'takeback: a change of a table that is not protected cannot be taken back';"
    )
    events = {"bi": "BEFORE INSERT", "bu": "BEFORE UPDATE", "bd": "BEFORE DELETE"}
    return {event: _trigger(event, n, when, name, signal) for event, when in events.items()}


def _trigger(event: str, n: int, when: str, table: str, body: str) -> str:
    return (
        f"CREATE TRIGGER {trigger_name(event, n)} {when} ON {quoted(table)} FOR EACH ROW"
        f" BEGIN {_WHOSE} IF {GATE} IS NOT NULL THEN {body} END IF; END"
    )
