"""Rows that a transaction touched: what each was before, what it became, and the short way to log a few."""

import marshal
import time
from collections.abc import Iterable, Iterator
from json.encoder import encode_basestring
from operator import length_hint
from typing import Any, NamedTuple

import apsw

from takeback.adapters.sqlite.child.driver import SqliteConnection, quoted
from takeback.adapters.sqlite.child.log import (
    DELETE,
    FORMAT,
    INSERT,
    LIGHT,
    UPDATE,
    VERBS,
    Log,
    encoded,
    image_columns,
)
from takeback.adapters.sqlite.child.open_file import OpenFile
from takeback.adapters.sqlite.child.shapes import SqliteShape, key_of
from takeback.adapters.sqlite.wire import plain

# What each row was before a transaction touched it first. What it became is read at the end: so a savepoint
# that is rolled back, a trigger that fires twice and a key that wanders need no thought.


MOST_HELD = 50_000  # rows held in memory, however large the effect
LARGE = 32 << 20  # and bytes of text and blobs in them
# Of a table with rowids: no such row, a row whose values the hook does not get, or the values. Without: whether there
# was one, and then its values, or those of its key.
ABSENT, UNSEEN = None, ()
_INSERT, _UPDATE, _DELETE = apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE

Key = Any
Image = tuple[Any, ...] | None


class SeenRows:
    """The hook. SQLite calls it before each change of a row: by a statement, a trigger, a cascade."""

    def __init__(self, shapes: dict[str, SqliteShape]) -> None:
        self._shapes = shapes
        self.tables: dict[str, tuple[SqliteShape, dict[Key, Image]]] = {}
        self.held = 0  # rows
        self.weight = 0  # bytes of text and blobs in them
        self._spilled: SqliteConnection | None = None
        self.troubles: dict[str, str] = {}
        self.is_all = True  # what there is to see is in `tables`

    def see(self, update: Any) -> None:
        # One look at a time, and no call more than is needed: this runs for each row.
        table = self.tables.get(update.table_name)
        if table is None or update.database_name != "main":
            if (table := self._first_of(update)) is None:
                return
        shape, rows = table
        if shape.rowid and not shape.trouble:
            opcode, key = update.opcode, update.rowid
            if key not in rows:
                if opcode == _INSERT:
                    rows[key] = ABSENT
                elif shape.unseen:
                    rows[key] = UNSEEN
                else:
                    old = rows[key] = update.old if shape.picks is None else _picked(shape, update.old)
                    self.weight += sum(map(length_hint, old))
                self.held += 1
            if opcode == _UPDATE and (key := update.rowid_new) not in rows:
                rows[key] = ABSENT
                self.held += 1
        elif shape.trouble:
            self.troubles[shape.name] = shape.trouble
            self.is_all = False
        else:
            self._by_key(shape, rows, update)
        if self.held > MOST_HELD or self.weight > LARGE:
            self._spill()

    def _first_of(self, update: Any) -> tuple[SqliteShape, dict[Key, Image]] | None:
        """None: temporary, or made in this transaction; then it is read as a whole."""
        if update.database_name != "main":
            return None
        shape = self._shapes.get(update.table_name.lower())
        if shape is None:
            return None
        table = self.tables[update.table_name] = (shape, {})
        return table

    def _by_key(self, shape: SqliteShape, rows: dict[Key, Image], update: Any) -> None:
        if update.opcode != _INSERT:
            old = _picked(shape, update.old)
            if (key := key_of(shape, old)) not in rows:
                rows[key] = (True, *old)
                self.weight += weight_of(old)
                self.held += 1
        if update.opcode != _DELETE and update.new is not None:
            new = _picked(shape, update.new)
            if (key := key_of(shape, new)) not in rows:
                # The key is needed in its own spelling to read what became of it.
                rows[key] = (False, *(new[at] for at in shape.key))
                self.held += 1

    def _spill(self) -> None:
        """Into a temporary file. The first that was seen of a row stays."""
        spilled = self._spilled = self._spilled or _temporary()
        spilled.executemany(
            "INSERT OR IGNORE INTO seen VALUES (?, ?, ?)",
            (
                (name, key, marshal.dumps(image, 2))
                for name, (_, rows) in self.tables.items()
                for key, image in rows.items()
            ),
        )
        for _, rows in self.tables.values():
            rows.clear()
        self.held = self.weight = 0
        self.is_all = False

    def touched(self) -> Iterator[tuple[SqliteShape, Iterator[tuple[Key, Image]]]]:
        """Each table with its rows: the key, and the first value seen."""
        if self._spilled is not None:
            self._spill()
        for name, (shape, rows) in self.tables.items():
            if shape.trouble:
                continue
            if self._spilled is None:
                yield shape, iter(rows.items())
            else:
                seen = self._spilled.execute(
                    "SELECT key, image FROM seen WHERE name = ? ORDER BY key", (name,)
                )
                yield shape, ((key, marshal.loads(image)) for key, image in seen)

    def close(self) -> None:
        if self._spilled is not None:
            self._spilled.close(True)


def weight_of(row: tuple[Any, ...]) -> int:
    """Bytes of text and blobs, more or less: numbers have no length, and none of this is looked at one by one."""
    return sum(map(length_hint, row))


def _picked(shape: SqliteShape, row: Any) -> tuple[Any, ...]:
    return row if shape.picks is None else tuple(row[at] for at in shape.picks)


def _temporary() -> SqliteConnection:
    made: Any = apsw.Connection("")
    made.execute(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536; "
        "CREATE TABLE seen (name, key, image, PRIMARY KEY (name, key)) WITHOUT ROWID; BEGIN"
    ).fetchall()  # a statement that answers holds the others up
    return made


def changes(
    place: OpenFile, shape: SqliteShape, rows: Iterable[tuple[Any, Any]]
) -> Iterator[tuple[Any, ...]]:
    """Key, what was done, the row before and after; what came back to what it was is left out."""
    cursor = place.connection.cursor()
    now_by = place.reading(shape)
    nothing = (None,) * len(shape.columns)
    for key, first in rows:
        before: tuple[Any, ...] | None
        if shape.rowid:
            before = place.before(shape, key) if first == UNSEEN else first
            at: tuple[Any, ...] = (key,)
        else:
            before = first[1:] if first[0] else None
            at = tuple(first[1 + one] for one in shape.key) if first[0] else first[1:]
        after = cursor.execute(now_by, at).fetchone()
        if before is None:
            if after is not None:
                yield key, INSERT, *nothing, *after
        elif after is None:
            yield key, DELETE, *before, *nothing
        elif before != after or plain(before) != plain(after):
            yield key, UPDATE, *before, *after


# An effect that made or changed one row: most do. It is written by one statement, which copies what the row is now
# inside SQLite. Beside a transaction that takes a tenth of a millisecond every call counts, so there are few.


class OneRowPlan(NamedTuple):
    """For one table: its number, and for a row that is new or changed a statement and the receipt. Without a number
    there is none."""

    number: int
    making: str
    made: dict[str, Any]
    changing: str
    changed: dict[str, Any]


_NO_PLAN = OneRowPlan(0, "", {}, "", {})


def log_one(log: Log, id: str, seen: SeenRows) -> dict[str, Any] | None:
    """The receipt. None, and nothing was written: the row is gone, is what it was or is large, or its table is not
    known by rowids."""
    ((shape, rows),) = seen.tables.values()
    ((key, before),) = rows.items()
    if before == UNSEEN or seen.weight > LIGHT:
        return None
    plan = log.plans.get(shape.name) or _planned(log, shape)
    if not plan.number:
        return None
    no = log.next_number()
    op = (no, id, int(time.time()), plan.number, key)
    if before is None:
        log.cursor.execute(plan.making, op)
        receipt = plan.made
    else:
        log.cursor.execute(plan.changing, op + before)
        receipt = plan.changed
    return receipt if log.counted(no) else None


def _planned(log: Log, shape: SqliteShape) -> OneRowPlan:
    if not shape.rowid or 2 * len(shape.columns) > log.width:
        return _NO_PLAN
    columns = [quoted(one) for one in shape.columns]
    before = [f"?{at + 6}" for at in range(len(columns))]
    same = " AND ".join(f"{one} IS {was}" for one, was in zip(columns, before, strict=True))
    weight = " + ".join(f"ifnull(octet_length({one}), 0)" for one in columns)
    width = len(columns)
    into = "INSERT INTO main.takeback_recent (no, id, last, format, at, tbl, k, did, "
    op = f") SELECT ?1, ?2, ?1 + 1, {FORMAT}, ?3, ?4, ?5, "
    now = (
        f"{', '.join(columns)} FROM main.{quoted(shape.name)} "
        f"WHERE {shape.key_names[0]} = ?5 AND {weight} <= {LIGHT}"
    )
    plan = OneRowPlan(
        log.number(shape),
        f"{into}{image_columns(width, 2 * width)}{op}'{INSERT}', {now}",
        _receipt(shape, 1, 0),
        f"{into}{image_columns(0, 2 * width)}{op}'{UPDATE}', {', '.join(before)}, {now} AND NOT ({same})",
        _receipt(shape, 0, 1),
    )
    log.plans[shape.name] = plan
    return plan


def _receipt(shape: SqliteShape, inserted: int, updated: int) -> dict[str, Any]:
    return {
        "tables": {shape.name: {"inserted": inserted, "updated": updated, "deleted": 0}},
        "schema": [],
    }


FEW = 16  # rows


def log_few(
    place: OpenFile, id: str, touched: Iterable[tuple[SqliteShape, Any]], further: dict[str, Any] | None
) -> dict[str, Any] | None:
    """The receipt. None, and nothing was written: it changed nothing, or is not small after all."""
    images: list[tuple[Any, ...]] = []
    numbers: list[int] = []
    tables: dict[str, dict[str, int]] = {}
    weight = 0
    for shape, rows in touched:
        if shape.virtual or 2 * len(shape.columns) > place.log.width:
            return None
        number, counts = 0, dict.fromkeys(VERBS.values(), 0)
        for key, first in rows.items():
            for image in changes(place, shape, ((key, first),)):
                number = number or place.log.number(shape)
                counts[VERBS[image[1]]] += 1
                weight += weight_of(image)
                images.append((number, *image))
        if number:
            numbers.append(number)
            tables[shape.name] = counts
    if not images or weight > LIGHT:
        return None
    place.log.add_small(place.log.next_number(), id, _told(tables, numbers, further), images)
    return {"tables": tables, "schema": []}


def _told(tables: dict[str, dict[str, int]], numbers: list[int], further: dict[str, Any] | None) -> str:
    """As JSON, by hand: this is done for each of many."""
    if further:
        return encoded({"tables": tables, "numbers": numbers, **further})
    counts = [
        f'{encode_basestring(name)}:{{"inserted":{one["inserted"]},"updated":{one["updated"]},'
        f'"deleted":{one["deleted"]}}}'
        for name, one in tables.items()
    ]
    return f'{{"tables":{{{",".join(counts)}}},"numbers":{numbers}}}'
