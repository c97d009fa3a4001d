"""Rows are put back: the log of it, what must go, what comes. In parts, so that what SQLite sets aside for a statement
stays in memory, and so that a page is read from the file once for all of it."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import apsw

from takeback.adapters.sqlite.child import conflicts
from takeback.adapters.sqlite.child.driver import Connection
from takeback.adapters.sqlite.child.images_sql import Images
from takeback.errors import UndoFailed

_PART = 4000  # images

Refused = dict[int, tuple[str, str]]  # by number of the image: the kind of conflict, and what SQLite said


class Putting(NamedTuple):
    connection: Connection
    further: int | None  # so much higher are the numbers of its own images; None: it is not logged
    forces: bool
    refused: Refused

    def in_one_go(self, tables: Iterable[Images]) -> int:
        """Where no row is in the way of another: what a part has put back, no other part touches. How many images of
        its own it has."""
        logged = 0
        for images in tables:
            for part in _parts(images):
                logged += self._log(part)
                self._delete(part)
                self._insert(part)
                if not self.refused:
                    self._verify(part)
        return logged

    def log(self, tables: Iterable[Images]) -> int:
        return sum(self._log(part) for images in tables for part in _parts(images))

    def delete(self, tables: Iterable[Images]) -> None:
        _each(tables, self._delete)

    def insert(self, tables: Iterable[Images]) -> None:
        _each(tables, self._insert)

    def verify(self, tables: Iterable[Images]) -> None:
        """Nothing is said to be back that was not read again."""
        _each(tables, self._verify)

    def _log(self, part: Images) -> int:
        if self.further is None:
            return 0
        self.connection.execute(part.log_back(self.further))
        logged = self.connection.changes()
        if self.forces:
            self.connection.execute(part.log_forced(self.further))
            logged += self.connection.changes()
        return logged

    def _delete(self, part: Images) -> None:
        self.connection.execute(part.delete())

    def _insert(self, part: Images) -> None:
        """If not all go in, each row is tried by itself, to name those that do not."""
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

    def _verify(self, part: Images) -> None:
        if wrong := self.connection.execute(part.count_wrong()).get:
            raise UndoFailed(
                f"{wrong} rows of {part.shape.name} did not come back as they were.",
                hint="Nothing was changed.",
            )


def _each(tables: Iterable[Images], step: Callable[[Images], None]) -> None:
    for images in tables:
        for part in _parts(images):
            step(part)


def _parts(images: Images) -> Iterator[Images]:
    for first in range(images.first, images.last + 1, _PART):
        yield images._replace(first=first, last=min(first + _PART - 1, images.last))
