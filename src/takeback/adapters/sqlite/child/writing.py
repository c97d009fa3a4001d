"""Writes images of rows that come one after the other."""

from collections.abc import Iterable
from typing import Any

from takeback.adapters.sqlite.child.log import DELETE, INSERT, UPDATE, Log
from takeback.adapters.sqlite.child.shapes import Shape

_ROWS = 1000  # written at once


class Written:
    """The images of one op as they are written: their numbers, and how many of what."""

    def __init__(self, log: Log, first: int) -> None:
        self._log = log
        self.last = first
        self.numbers: list[int] = []  # of tables
        self.counts: dict[str, dict[str, int]] = {}

    def add(self, shape: Shape, rows: Iterable[tuple[Any, ...]]) -> None:
        """Each row: key, what was done, the columns before and after."""
        log = self._log
        number = 0
        images: list[tuple[Any, ...]] = []
        tally = {INSERT: 0, UPDATE: 0, DELETE: 0}
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

    def count(self, shape: Shape, number: int, tally: dict[str, int]) -> None:
        if number not in self.numbers:
            self.numbers.append(number)
        found = self.counts.setdefault(shape.name, {"inserted": 0, "updated": 0, "deleted": 0})
        for word, did in (("inserted", INSERT), ("updated", UPDATE), ("deleted", DELETE)):
            found[word] += tally.get(did, 0)

    def about(self) -> dict[str, Any]:
        return {"tables": self.counts, "numbers": self.numbers} if self.counts else {}
