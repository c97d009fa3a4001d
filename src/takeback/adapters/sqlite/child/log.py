"""What is kept in the file itself, in the same transaction as the change: which effects were made there, and what each
row was and became. Plain tables, readable with any SQLite.

`takeback_op`      one row for each effect: the marker. Its images have the numbers from `no` to `last`.
`takeback_table`   what a table looked like when an image was taken.
`takeback_image`   one row for each row that an effect changed. `did` is I, U, D or N; for a table with n columns c0 …
                   are what the row was, and the n columns after them what it became, as they are in the table.
`takeback_recent`  both, of the last small effects: a row with an `id` is an op and its first image, the others are the
                   further images. It has no index, so a small transaction writes one page more and not five. It is
                   emptied into the other two once in a while, and before anybody looks at what they hold.
"""

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from takeback.adapters.sqlite.child.driver import SqliteConnection
from takeback.adapters.sqlite.child.shapes import SqliteShape
from takeback.errors import Corrupt, FormatTooNew, Refused

INSERT, UPDATE, DELETE = "I", "U", "D"
VERBS = {INSERT: "inserted", UPDATE: "updated", DELETE: "deleted"}  # in a receipt
NOTHING = "N"  # what is left of an image whose op, for this row, does not count any more
_FIRST_WIDTH = 32
_WIDEST = 1990
_RECENT = 1000  # rows; a search for a marker goes through them
LIGHT = 4096  # bytes of text and blobs in a small op
FORMAT = 1

_TABLES = """
CREATE TABLE main.takeback_op (
    no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, last INTEGER NOT NULL, format INTEGER NOT NULL,
    at INTEGER NOT NULL, undoes TEXT NOT NULL, undone_by TEXT NOT NULL, released INTEGER NOT NULL,
    of_schema INTEGER NOT NULL, about TEXT NOT NULL);
CREATE INDEX main.takeback_op_of_schema ON takeback_op (no) WHERE of_schema;
CREATE TABLE main.takeback_table (no INTEGER PRIMARY KEY, name TEXT NOT NULL, sql TEXT NOT NULL, shape TEXT NOT NULL);
CREATE TABLE main.takeback_image (no INTEGER PRIMARY KEY, tbl INTEGER NOT NULL, k, did TEXT NOT NULL, {columns});
CREATE INDEX main.takeback_image_key ON takeback_image (tbl, k);
CREATE TABLE main.takeback_recent (no INTEGER PRIMARY KEY, id TEXT, last INTEGER, format INTEGER, at INTEGER,
    about TEXT, tbl INTEGER, k, did TEXT, {columns});
"""
# Of an op with one image, which has none.
_ABOUT = """ifnull(about, (SELECT json_object(
    'tables', json_object(t.name, json_object('inserted', did = 'I', 'updated', did = 'U', 'deleted', did = 'D')),
    'numbers', json_array(tbl)) FROM main.takeback_table t WHERE t.no = tbl))"""
NAMES = ("takeback_recent", "takeback_image", "takeback_table", "takeback_op")


encoded = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class SqliteOp(NamedTuple):
    no: int
    id: str
    last: int
    undoes: str
    undone_by: str
    released: bool
    about: dict[str, Any]
    recent: bool = False  # not in its place yet


class Log:
    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
        self._numbers: dict[tuple[str, str], int] = {}
        self._adding: dict[int, str] = {}  # statements, by how many columns
        self._adding_small: dict[int, str] = {}
        self.plans: dict[str, Any] = {}  # of `one_row`, by table
        self.cursor = connection.cursor()
        self.width = 0
        self._next: int | None = None  # None: not known
        self._recent = 0  # rows
        self.fresh()

    def fresh(self) -> None:
        """The schema was changed by someone: look again."""
        self.forget_numbers()
        self.width = self._connection.execute(
            "SELECT count(*) FROM pragma_table_info('takeback_image', 'main') WHERE name GLOB 'c[0-9]*'"
        ).get
        here = self._connection.execute(
            f"SELECT count(*) FROM main.sqlite_schema WHERE type = 'table' AND name IN ({', '.join('?' * len(NAMES))})",
            NAMES,
        ).get
        self.is_there = self.width > 0 and here == len(NAMES)

    def make(self) -> None:
        self._connection.execute(_TABLES.format(columns=image_columns(0, _FIRST_WIDTH)))
        self.width, self.is_there = _FIRST_WIDTH, True

    def remove(self) -> None:
        for name in NAMES:
            self._connection.execute(f"DROP TABLE IF EXISTS main.{name}")
        self.fresh()

    def widen(self, columns: int) -> None:
        """So that what two rows of a table with so many columns hold has room."""
        if 2 * columns <= self.width:
            return
        width = min(max(2 * columns, 2 * self.width), _WIDEST)
        for at in range(self.width, width):
            for name in ("takeback_image", "takeback_recent"):
                self._connection.execute(f"ALTER TABLE main.{name} ADD COLUMN c{at}")
        self.width = width

    def number(self, shape: SqliteShape) -> int:
        """Of a table as it looks now."""
        if (known := self._numbers.get(id := shape.id)) is None:
            if (known := self.number_of(shape)) is None:
                self._connection.execute(
                    "INSERT INTO main.takeback_table (name, sql, shape) VALUES (?, ?, ?)",
                    (*id, shape.told()),
                )
                known = self._connection.last_insert_rowid()
            self._numbers[id] = known
        return known

    def number_of(self, shape: SqliteShape) -> int | None:
        """None if no image of it was ever taken."""
        found = self._connection.execute(
            "SELECT no FROM main.takeback_table WHERE name = ? AND sql = ?", shape.id
        ).fetchone()
        return found[0] if found else None

    def forget_numbers(self) -> None:
        """Numbers of a rolled-back transaction are free again, and others may have written since."""
        self._numbers.clear()
        self.plans.clear()
        self._next = None

    def op(self, id: str) -> SqliteOp | None:
        if not self.is_there:
            return None
        found = self._connection.execute(
            "SELECT no, last, undoes, undone_by, released, about, 0, format FROM main.takeback_op WHERE id = ?1 "
            "UNION ALL SELECT * FROM (SELECT no, last, '', '', 0, "
            f"{_ABOUT}, 1, format FROM main.takeback_recent WHERE id = ?1 ORDER BY no DESC LIMIT 1) LIMIT 1",
            (id,),
        ).fetchone()
        if found is None:
            return None
        no, last, undoes, undone_by, released, about, recent, format = found
        if format > FORMAT:
            raise FormatTooNew(
                "The log in this database was written by a newer takeback.", hint="Use that one."
            )
        return SqliteOp(no, id, last, undoes, undone_by, bool(released), json.loads(about), bool(recent))

    def next_number(self) -> int:
        if self._next is None:
            last, self._recent = self._connection.execute(
                "SELECT ifnull((SELECT max(last) FROM main.takeback_recent), (SELECT last FROM main.takeback_op "
                "ORDER BY no DESC LIMIT 1)), (SELECT count(*) FROM main.takeback_recent)"
            ).fetchone()
            self._next = int(last or 0) + 1
        elif self._recent > _RECENT:
            self.settle()
        return self._next

    def add_op(self, no: int, id: str, last: int, undoes: str, about: dict[str, Any]) -> None:
        self.settle()
        self._connection.execute(
            "INSERT INTO main.takeback_op VALUES (?, ?, ?, ?, ?, ?, '', 0, ?, ?)",
            (no, id, last, FORMAT, int(time.time()), undoes, "schema" in about, encoded(about)),
        )
        self._next = last + 1

    def add_small(self, no: int, id: str, about: str, images: list[tuple[Any, ...]]) -> None:
        """An op and its images at once: each number of its table, key, what was done, columns before and after."""
        last = no + len(images)
        op: tuple[Any, ...] = (no, id, last, FORMAT, int(time.time()), about)
        for image in images:
            width = len(image) - 3
            if (statement := self._adding_small.get(width)) is None:
                statement = self._adding_small[width] = (
                    "INSERT INTO main.takeback_recent (no, id, last, format, at, about, tbl, k, did, "
                    f"{image_columns(0, width)}) VALUES ({', '.join('?' * (width + 9))})"
                )
            self._connection.execute(statement, op + image)
            op = (op[0] + (2 if op[1] else 1), None, None, None, None, None)
        self._next = last + 1
        self._recent += len(images)

    def counted(self, no: int) -> bool:
        """Whether the statement before has written an op with one image."""
        if not self._connection.changes():
            return False
        self._next = no + 2
        self._recent += 1
        return True

    def settle(self) -> None:
        """Everything to its place. In a transaction that writes."""
        if not self.is_there:
            return
        if self._next is None:
            self.next_number()
        if not self._recent:
            return
        columns = image_columns(0, self.width)
        self._connection.execute(
            f"INSERT INTO main.takeback_op SELECT no, id, last, format, at, '', '', 0, 0, {_ABOUT} "
            "FROM main.takeback_recent WHERE id IS NOT NULL; "
            f"INSERT INTO main.takeback_image (no, tbl, k, did, {columns}) "
            f"SELECT no + (id IS NOT NULL), tbl, k, did, {columns} FROM main.takeback_recent; "
            "DELETE FROM main.takeback_recent"
        )
        self._recent = 0

    def add_images(self, images: list[tuple[Any, ...]]) -> None:
        """Of one table. Each: number, number of the table, key, what was done, then the columns before and after."""
        self.settle()
        width = len(images[0]) - 4
        if (statement := self._adding.get(width)) is None:
            holes = ", ".join("?" * (width + 4))
            statement = f"INSERT INTO main.takeback_image (no, tbl, k, did, {image_columns(0, width)}) VALUES ({holes})"
            self._adding[width] = statement
        self._connection.executemany(statement, images)

    def set_undone(self, id: str, by: str) -> None:
        self._connection.execute("UPDATE main.takeback_op SET undone_by = ? WHERE id = ?", (by, id))

    def remove_op(self, op: SqliteOp) -> None:
        self._connection.execute("DELETE FROM main.takeback_image WHERE no BETWEEN ? AND ?", (op.no, op.last))
        self._connection.execute("DELETE FROM main.takeback_op WHERE no = ?", (op.no,))

    def release(self, op: SqliteOp) -> None:
        """Its images; the marker stays."""
        self._connection.execute("DELETE FROM main.takeback_image WHERE no BETWEEN ? AND ?", (op.no, op.last))
        self._connection.execute("UPDATE main.takeback_op SET released = 1 WHERE no = ?", (op.no,))

    def tables_of(self, op: SqliteOp) -> Iterator[tuple[int, str, str, dict[str, Any]]]:
        """Number, name, sql and shape of each table that the op has images of."""
        for no in op.about.get("numbers", ()):
            name, sql, shape = self._connection.execute(
                "SELECT name, sql, shape FROM main.takeback_table WHERE no = ?", (no,)
            ).fetchone()
            yield no, name, sql, json.loads(shape)


def image_columns(first: int, end: int) -> str:
    return ", ".join(f"c{at}" for at in range(first, end))


def in_force_again(log: Log, id: str) -> None:
    """What undid it was taken back itself; what it had undone is undone by it again."""
    log.set_undone(id, "")
    op = log.op(id)
    if op is not None and op.undoes:
        taken_back(log, op.undoes, id)


def taken_back(log: Log, id: str, by: str) -> None:
    log.set_undone(id, by)
    op = log.op(id)
    if op is not None and op.undoes:
        in_force_again(log, op.undoes)


# Images that are no longer there: what is left of them must not be taken for the whole.


_HINT = (
    "Nothing was changed. Someone changed what takeback keeps in the tables takeback_…; a backup of the database may "
    "have it."
)


def refuse_missing(connection: SqliteConnection, op: SqliteOp) -> None:
    """An op has as many images as numbers, but for an undo, which says how many: it may have left some out."""
    if lost := op.about.get("lost"):
        raise Refused(
            f"Effect {op.id[:8]} cannot be taken back, because this is lost: {'; '.join(lost)}.",
            hint="Nothing was changed. A backup of the database may have it.",
        )
    wanted = op.about.get("images", None if op.undoes else op.last - op.no)
    if wanted is None or op.released:
        return
    where = "takeback_recent" if op.recent else "takeback_image"
    there = connection.execute(
        f"SELECT count(*) FROM main.{where} WHERE no BETWEEN ? AND ?", (op.no, op.last)
    ).get
    if there != wanted:
        raise Corrupt(
            f"Effect {op.id[:8]} cannot be taken back: of the {wanted} images of rows that were kept in {where}, "
            f"{there} are there.",
            hint=_HINT,
        )
    for number in op.about.get("numbers", ()):
        if not connection.execute("SELECT count(*) FROM main.takeback_table WHERE no = ?", (number,)).get:
            raise Corrupt(
                f"Effect {op.id[:8]} cannot be taken back: what one of its tables looked like is not in "
                "takeback_table any more.",
                hint=_HINT,
            )


# Writes images of rows that come one after the other.


_ROWS = 1000  # written at once


class WrittenImages:
    """The images of one op as they are written: their numbers, and how many of what."""

    def __init__(self, log: Log, first: int) -> None:
        self._log = log
        self.last = first
        self.numbers: list[int] = []  # of tables
        self.counts: dict[str, dict[str, int]] = {}

    def add(self, shape: SqliteShape, rows: Iterable[tuple[Any, ...]]) -> None:
        """Each row: key, what was done, the columns before and after."""
        log = self._log
        number = 0
        images: list[tuple[Any, ...]] = []
        tally = dict.fromkeys(VERBS, 0)
        for key, did, *columns in rows:
            if not number:
                if not log.is_there:
                    log.make()
                log.widen(len(shape.columns))
                number = log.number(shape)
            self.last += 1
            tally[did] += 1
            images.append((self.last, number, key, did, *columns))
            if len(images) >= _ROWS:
                log.add_images(images)
                images.clear()
        if images:
            log.add_images(images)
        if number:
            self.count(shape, number, tally)

    def count(self, shape: SqliteShape, number: int, tally: dict[str, int]) -> None:
        if number not in self.numbers:
            self.numbers.append(number)
        found = self.counts.setdefault(shape.name, dict.fromkeys(VERBS.values(), 0))
        for did, word in VERBS.items():
            found[word] += tally.get(did, 0)

    def about(self) -> dict[str, Any]:
        return {"tables": self.counts, "numbers": self.numbers} if self.counts else {}
