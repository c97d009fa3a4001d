"""Looking up blobs one after the other: what was put together stands together, so the next rows are fetched at once."""

from collections.abc import Callable

from takeback.storage import blob_rows as rows
from takeback.storage.blob_rows import Ask, Stored

PATIENCE = 8  # lookups in a row before we believe that more will follow
AHEAD = 64


class ReadAhead:
    """What it remembers may be out of date: whoever reads by it looks again if the bytes are not right.

    Not thread-safe: the store's lock is held around it.
    """

    def __init__(self, ask: Ask, find: Callable[[bytes], Stored | None]) -> None:
        self._ask = ask
        self._find = find
        self._next: dict[bytes, Stored] = {}
        self._lookups = 0
        self._hits = 0

    def find(self, digest: bytes) -> Stored | None:
        if (stored := self._next.get(digest)) is not None:
            self._hits += 1
            return stored
        if self._next and self._hits < AHEAD // 4:
            self._lookups = 0  # they were not wanted in that order
        self.forget()
        self._lookups += 1
        if self._lookups <= PATIENCE:
            return self._find(digest)
        id = rows.find_id(self._ask, digest)
        if id is None:
            return self._find(digest)
        self._next = {stored.digest: stored for _, stored in rows.page(self._ask, id - 1, AHEAD)}
        return self._next.get(digest) or self._find(digest)

    def forget(self) -> None:
        self._next = {}
        self._hits = 0
