"""Put back what an op changed: rows, in parts; tables, indexes, views, triggers, counters, versions."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apsw

from takeback.adapters.sqlite.child import conflicts
from takeback.adapters.sqlite.child.conflicts import TABLE, Conflicts
from takeback.adapters.sqlite.child.driver import SqliteConnection, quoted
from takeback.adapters.sqlite.child.images_sql import CHANGED, Images
from takeback.adapters.sqlite.child.log import DELETE, INSERT, SqliteOp, WrittenImages
from takeback.adapters.sqlite.child.open_file import OpenFile
from takeback.adapters.sqlite.child.schema_change import Object, all_rows, objects
from takeback.adapters.sqlite.child.shapes import SqliteShape, shapes
from takeback.errors import UndoFailed

# Rows are put back: the log of it, what must go, what comes. In parts, so that what SQLite sets aside for a
# statement stays in memory, and so that a page is read from the file once for all of it.


_PART = 4000  # images

Refused = dict[int, tuple[str, str]]  # by number of the image: the kind of conflict, and what SQLite said


class Putting(NamedTuple):
    connection: SqliteConnection
    further: int | None  # so much higher are the numbers of its own images; None: it is not logged
    forces: bool
    refused: Refused

    def in_one_go(self, tables: Iterable[Images]) -> int:
        """Where no row is in the way of another: what a part has put back, no other part touches. How many images of
        its own it has."""
        logged = 0
        for part in _parts(tables):
            logged += self.log((part,))
            self.delete((part,))
            self.insert((part,))
            if not self.refused:
                self.verify((part,))
        return logged

    def log(self, tables: Iterable[Images]) -> int:
        if self.further is None:
            return 0
        logged = 0
        for part in _parts(tables):
            self.connection.execute(part.log_back(self.further))
            logged += self.connection.changes()
            if self.forces:
                self.connection.execute(part.log_forced(self.further))
                logged += self.connection.changes()
        return logged

    def delete(self, tables: Iterable[Images]) -> None:
        for part in _parts(tables):
            self.connection.execute(part.delete())

    def insert(self, tables: Iterable[Images]) -> None:
        """If not all go in, each row is tried by itself, to name those that do not."""
        for part in _parts(tables):
            self.connection.execute("SAVEPOINT takeback_insert")
            try:
                self.connection.execute(part.insert())
            except apsw.ConstraintError:
                self.connection.execute("ROLLBACK TO takeback_insert")
                self._insert_each(part)
            self.connection.execute("RELEASE takeback_insert")

    def _insert_each(self, part: Images) -> None:
        rows = self.connection.execute(
            f"SELECT i.no FROM main.takeback_image i WHERE {part.active} AND i.did <> 'I'"
        ).fetchall()
        for (no,) in rows:
            try:
                self.connection.execute(part.insert(one=True), (no,))
            except apsw.ConstraintError as error:
                words = str(error).removeprefix("ConstraintError: ")
                self.refused[no] = (conflicts.TAKEN, words)

    def verify(self, tables: Iterable[Images]) -> None:
        """Nothing is said to be back that was not read again."""
        for part in _parts(tables):
            if wrong := self.connection.execute(part.count_wrong()).get:
                raise UndoFailed(
                    f"{wrong} rows of {part.shape.name} did not get their old values back.",
                    hint="Nothing was changed.",
                )


def _parts(tables: Iterable[Images]) -> Iterator[Images]:
    for images in tables:
        for first in range(images.first, images.last + 1, _PART):
            yield images._replace(first=first, last=min(first + _PART - 1, images.last))


# Tables, indexes, views and triggers that an op made, changed or dropped; counters of AUTOINCREMENT; the
# versions in the header. Back to what they were.


_ORDER = ("table", "index", "view", "trigger")


class Restoring:
    def __init__(self, place: OpenFile, op: SqliteOp) -> None:
        self._place = place
        self._connection = place.connection
        self._op = op
        self.objects = [Object(*one) for one in op.about.get("schema", ())]
        self.tables = set(op.about.get("whole", ()))  # their rows were captured as a whole
        self.possible = True
        self._along: list[str] = []  # how to make again what goes with a table that is dropped
        self._now: dict[str, SqliteShape] | None = None

    def check(self, conflicts: Conflicts, policy: str) -> None:
        self._now = None  # an earlier try was rolled back
        now = {key: one[2] for key, one in objects(self._connection).items()}
        for one in self.objects:
            found = now.get((one.type, one.name.lower()), "")
            if found != one.after:
                self.possible = False
                since = "was changed since" if found else "is not there any more"
                words = "has its earlier values already" if found == one.before else since
                conflicts.add(one.table, "", "schema", f"{one.type} {one.name} {words}")
        for name, (_, after) in self._op.about.get("header", {}).items():
            if (found := self._connection.pragma(name)) != after:
                self.possible = False
                conflicts.add(name, "", CHANGED, f"was changed since: expected {after}, found {found}")
        numbers = {(name.lower(), sql): no for no, name, sql, _ in self._place.log.tables_of(self._op)}
        left = {one.name.lower(): one.after for one in self.objects if one.type == "table"}
        for name in sorted(self.tables):
            shape = self._place.shapes.get(name)
            if shape is None or shape.virtual or shape.sql != left.get(name, shape.sql) or policy == "force":
                continue
            if self._differs(numbers.get((name, shape.sql), 0), shape):
                self.possible = False
                conflicts.add(shape.name, "", TABLE, "rows of the table were changed since")

    def _differs(self, number: int, shape: SqliteShape) -> bool:
        """Not row by row what the op left."""
        images = Images(number, shape, self._op.no, self._op.last, INSERT)
        same = self._connection.execute(
            f"SELECT count(*) FROM main.takeback_image i JOIN {images.table} t ON {images.on} "
            f"WHERE {images.span} AND {images.same(images.width)}"
        ).get
        left, there = (
            self._connection.execute(f"SELECT count(*) FROM {rows}").get
            for rows in (f"main.takeback_image i WHERE {images.span}", images.table)
        )
        return not same == left == there

    def log_now(self, written: WrittenImages, did: str) -> None:
        """All rows of these tables, as what is about to go or as what came back."""
        for name, shape in self.shapes_now().items():
            if name in self.tables and not shape.virtual:
                written.add(shape, all_rows(self._connection, shape, did))

    def drop(self) -> None:
        changed = {(one.type, one.name.lower()) for one in self.objects}
        gone = {one.name.lower() for one in self.objects if one.type == "table" and one.after}
        for (kind, name), (_, table, sql) in objects(self._connection).items():
            if kind in ("index", "trigger") and table.lower() in gone and (kind, name) not in changed:
                self._along.append(sql)
        for kind in reversed(_ORDER):
            # A virtual table takes the tables behind it along.
            for one in sorted(self.objects, key=lambda one: not _is_virtual(one.after)):
                if one.type == kind and one.after:
                    self._connection.execute(f"DROP {kind} IF EXISTS main.{quoted(one.name)}")
        for name in self.tables - gone:
            if (shape := self._place.shapes.get(name)) is not None:
                self._connection.execute(f"DELETE FROM main.{quoted(shape.name)}")
        self._now = None

    def create(self) -> None:
        """Tables only: rows go in before indexes are made."""
        for one in sorted(self.objects, key=lambda one: not _is_virtual(one.before)):
            if one.type == "table" and one.before:
                there = self._connection.execute(
                    "SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND lower(name) = lower(?)",
                    (one.name,),
                ).fetchone()
                if there is None:
                    self._connection.execute(one.before)
                elif not _is_virtual(one.before):
                    self._connection.execute(f"DELETE FROM main.{quoted(one.name)}")
        self._now = None

    def insert(self) -> None:
        for images in self.restored():
            self._connection.execute(images.insert())
        wanted = [
            one.before for kind in _ORDER[1:] for one in self.objects if one.type == kind and one.before
        ]
        for sql in (*self._along, *wanted):
            self._connection.execute(sql)
        self._along.clear()
        now = {key: one[2] for key, one in objects(self._connection).items()}
        for one in self.objects:
            if now.get((one.type, one.name.lower()), "") != one.before:
                raise UndoFailed(
                    f"{one.type} {one.name} did not get its old definition back.", hint="Nothing was changed."
                )

    def restored(self) -> list[Images]:
        """Of the tables whose rows come back as a whole."""
        if not self.tables:
            return []
        now = self.shapes_now()
        return [
            Images(number, now[name.lower()], self._op.no, self._op.last, DELETE)
            for number, name, sql, _ in self._place.log.tables_of(self._op)
            if name.lower() in self.tables and name.lower() in now and now[name.lower()].sql == sql
        ]

    def shapes_now(self) -> dict[str, SqliteShape]:
        if not self.tables:
            return self._place.shapes
        if self._now is None:
            self._now = shapes(self._connection)
        return self._now

    def sequence_to_put_back(self) -> dict[str, list[Any]]:
        """Counters that were not used since."""
        moved = self._op.about.get("sequence", {})
        now = self._place.sequence() if moved else {}
        return {name: [after, before] for name, (before, after) in moved.items() if now.get(name) == after}

    def finish(self, sequence: dict[str, list[Any]]) -> None:
        for name, (_, before) in sequence.items():
            self._connection.execute("DELETE FROM main.sqlite_sequence WHERE name = ?", (name,))
            if before is not None:
                self._connection.execute(
                    "INSERT INTO main.sqlite_sequence (name, seq) VALUES (?, ?)", (name, before)
                )
        for name, (before, _) in self._op.about.get("header", {}).items():
            self._connection.execute(f"PRAGMA {name} = {int(before)}")

    def about(self, sequence: dict[str, list[Any]]) -> dict[str, Any]:
        """The same, seen from the other side."""
        header = self._op.about.get("header", {})
        told = {
            "schema": [
                [one.type, one.name, one.table, one.after, one.before] for one in reversed(self.objects)
            ],
            "whole": sorted(self.tables),
            "sequence": sequence,
            "header": {name: [after, before] for name, (before, after) in header.items()},
        }
        return {name: one for name, one in told.items() if one}


def _is_virtual(sql: str) -> bool:
    return sql[:14].upper() == "CREATE VIRTUAL"
