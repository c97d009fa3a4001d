"""What each row was before a transaction touched it first. What it became is read at the end: so a savepoint that is
rolled back, a trigger that fires twice and a key that wanders need no thought."""

import marshal
from collections.abc import Iterator
from operator import length_hint
from typing import Any

import apsw

from takeback.adapters.sqlite.child.driver import Connection
from takeback.adapters.sqlite.child.shapes import Shape, key_of

FEW = 50_000  # rows held in memory, however large the effect
LARGE = 32 << 20  # and bytes of text and blobs in them
# Of a table with rowids: no such row, a row whose values the hook does not get, or the values. Without: whether there
# was one, and then its values, or those of its key.
ABSENT, UNSEEN = None, ()
_INSERT, _UPDATE, _DELETE = apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE

Key = Any
Image = tuple[Any, ...] | None


class Seen:
    """The hook. SQLite calls it before each row is changed, whoever changes it: a statement, a trigger, a cascade."""

    def __init__(self, shapes: dict[str, Shape]) -> None:
        self._shapes = shapes
        self.tables: dict[str, tuple[Shape, dict[Key, Image]]] = {}
        self.held = 0  # rows
        self.weight = 0  # bytes of text and blobs in them
        self._spilled: Connection | None = None
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
        if self.held > FEW or self.weight > LARGE:
            self._spill()

    def _first_of(self, update: Any) -> tuple[Shape, dict[Key, Image]] | None:
        """None: temporary, or made in this transaction; then it is read as a whole."""
        if update.database_name != "main":
            return None
        shape = self._shapes.get(update.table_name.lower())
        if shape is None:
            return None
        table = self.tables[update.table_name] = (shape, {})
        return table

    def _by_key(self, shape: Shape, rows: dict[Key, Image], update: Any) -> None:
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

    def touched(self) -> Iterator[tuple[Shape, Iterator[tuple[Key, Image]]]]:
        """Each table, and its rows: the key, and what was there at first."""
        if self._spilled is not None:
            self._spill()
        for name, (shape, rows) in self.tables.items():
            if not shape.trouble:
                yield shape, iter(rows.items()) if self._spilled is None else self._of(name, self._spilled)

    def _of(self, name: str, spilled: Connection) -> Iterator[tuple[Key, Image]]:
        for key, image in spilled.execute("SELECT key, image FROM seen WHERE name = ? ORDER BY key", (name,)):
            yield key, marshal.loads(image)

    def close(self) -> None:
        if self._spilled is not None:
            self._spilled.close(True)


def weight_of(row: tuple[Any, ...]) -> int:
    """Bytes of text and blobs, more or less: numbers have no length, and none of this is looked at one by one."""
    return sum(map(length_hint, row))


def _picked(shape: Shape, row: Any) -> tuple[Any, ...]:
    return row if shape.picks is None else tuple(row[at] for at in shape.picks)


def _temporary() -> Connection:
    made: Any = apsw.Connection("")
    made.execute(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536; "
        "CREATE TABLE seen (name, key, image, PRIMARY KEY (name, key)) WITHOUT ROWID; BEGIN"
    ).fetchall()  # a statement that answers holds the others up
    return made
