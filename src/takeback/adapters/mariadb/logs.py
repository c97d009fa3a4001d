"""The logs of a protected database: tables for markers and images, and triggers that fill them."""

from takeback.adapters.mariadb.shapes import LoggedTable, MariaShape
from takeback.adapters.mariadb.wire import listed, quoted

META, TABLES, OPS, TOUCHED, PLANS = "_tb_meta", "_tb_table", "_tb_op", "_tb_touched", "_tb_plan"
_OPTIONS = "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC"
GATE = "@takeback_op"
# How the name of an account begins that a program was given; its number is that of the operation.
PROGRAM = "_tb_p"
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


def trigger_name(event: str, n: int) -> str:
    return f"_tb_{event}_{n}"


def log_table(table: LoggedTable) -> str:
    """Typed, so that a value is the same bits there and back. `tb_sign` -1 and 1: deleted, inserted; -2 and 2: what an
    update found and left; `tb_c` counts the rows whose foreign keys took others with them."""
    key = f", KEY tb_op (tb_op, tb_c, tb_sign){_key(table.shape)}"
    return f"CREATE TABLE IF NOT EXISTS {table.log} ({_image_columns(table.shape)}{key}) {_OPTIONS}"


def images_table(table: LoggedTable) -> str:
    """Of the session: images of one undo."""
    key = _key(table.shape) if table.shape.uniques else ""
    return f"CREATE TEMPORARY TABLE {table.put} ({_image_columns(table.shape)}{key}) {_OPTIONS}"


def _image_columns(shape: MariaShape) -> str:
    columns = "".join(
        f", {name} {column.logged_type}"
        for name, column in zip(shape.logged_names, shape.stored, strict=True)
    )
    return (
        "tb_no BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, tb_op BIGINT UNSIGNED NOT NULL,"
        f" tb_c BIGINT UNSIGNED NOT NULL, tb_sign TINYINT NOT NULL{columns}"
    )


def _key(shape: MariaShape) -> str:
    return f", KEY tb_key ({', '.join(map(shape.logged_name, shape.key))})" if shape.key else ""


def capture_triggers(table: LoggedTable, walks: dict[str, str]) -> dict[str, str]:
    """By event. `walks`: what is to be done about rows that go with a row of this table, by event."""
    events: dict[str, tuple[str, dict[int, str]]] = {
        "ai": ("AFTER INSERT", {1: "NEW"}),
        "au": ("AFTER UPDATE", {-2: "OLD", 2: "NEW"}),
        "ad": ("AFTER DELETE", {-1: "OLD"}),
        "bu": ("BEFORE UPDATE", {}),
        "bd": ("BEFORE DELETE", {}),
    }
    names = table.shape.names
    found: dict[str, str] = {}
    for event, (when, images) in events.items():
        rows = ", ".join(f"({GATE}, 0, {sign}, {listed(names, row)})" for sign, row in images.items())
        logging = f"INSERT INTO {table.log} ({table.shape.image_columns}) VALUES {rows};" if rows else ""
        if body := logging + walks.get(event, ""):
            found[event] = _trigger(event, table.n, when, table.shape.name, body)
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
