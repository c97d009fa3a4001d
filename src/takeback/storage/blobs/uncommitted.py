"""Blobs put but not committed yet: the store's next transaction writes them first."""

from _thread import get_ident
from collections.abc import Callable, Collection
from itertools import chain
from typing import NamedTuple

from takeback.errors import ResourceUnreachable, StoreBusy
from takeback.storage.blobs import codec, rows
from takeback.storage.blobs.reader import damaged
from takeback.storage.blobs.rows import Ask, Stored
from takeback.storage.tables import Connection, PackEntry, Shelf, Tables

INLINE = 64 << 10  # what is encoded in more bytes than this goes to a pack
MOST_DATA = 256 << 10  # encoded bytes held for the next commit; beyond it they all go to a pack
MOST_CONTENT = 4 << 20
MOST_ROWS = 50_000


class Held(NamedTuple):
    """A put that no commit has made durable yet."""

    stored: Stored
    content: bytes | None = None  # to write it again if a sweep removes its base
    known: bool = False  # the store had it already: keep it from being swept
    heals: bool = False  # the store had it, but damaged
    pieces: tuple[bytes, ...] = ()
    refs: tuple[bytes, ...] = ()
    by: int = 0  # the thread that put it; 0: several
    for_nothing: bool = False  # what it was put for was refused: a sweep need not wait until it is old


class Holding:
    """Not thread-safe: the store's lock is held around it."""

    def __init__(self, database: Tables, packs: Shelf, now: Callable[[], int]) -> None:
        self._database = database
        self._packs = packs
        self._now = now
        # In the order they were put: a base always stands before what is a difference to it.
        self.held: dict[bytes, Held] = {}
        self.committing: dict[bytes, Held] = {}
        self.newest: dict[int, bytes] = {}  # by origin
        self._committing_newest: dict[int, bytes] = {}
        self._weighing: list[bytes] = []  # those of `held` that take memory for data or content
        self._data = 0  # bytes in `held`
        self._content = 0
        self._in_transaction: Callable[[], bool] = lambda: False
        database.before_commit.append(self._begin)
        database.after_rollback.append(self._take_back)
        database.pending.append(lambda: bool(self.held))

    def get(self, digest: bytes) -> Held | None:
        """None as well if the disk has failed the pack it was written to: then it must be put again."""
        held = self.held.get(digest)
        return None if held and self._is_broken(held) else held

    def add(self, held: Held, origin: int | None) -> None:
        if not held.known and held.stored.place is None and held.stored.length > INLINE:
            held = self._placed([held])[0]
        held = held._replace(by=get_ident())
        digest = held.stored.digest
        self.held.pop(digest, None)
        self.held[digest] = held
        # What a file held before it is written is put after what it will hold, and is not the newer of the two.
        if origin is not None and not (held.known and origin in self.newest):
            self.newest[origin] = digest
        self._weigh(held)
        if self._data > MOST_DATA or self._content > MOST_CONTENT:
            self._spill()
        if len(self.held) > MOST_ROWS:
            self.sync()

    def add_refs(self, held: Held, refs: tuple[bytes, ...], origin: int | None) -> None:
        """The same content was put again."""
        self.held[held.stored.digest] = held._replace(
            refs=tuple(dict.fromkeys((*held.refs, *refs))),
            by=held.by if held.by == get_ident() else 0,
            for_nothing=False,
        )
        if origin is not None:
            self.newest[origin] = held.stored.digest

    def _weigh(self, held: Held) -> None:
        if held.content is not None or held.stored.data is not None:
            self._weighing.append(held.stored.digest)
        self._data += 0 if held.known else len(held.stored.data or b"")
        self._content += len(held.content or b"")

    def _spill(self) -> None:
        """Too much for memory: data goes to a pack; content, which only spares a retry, is given up."""
        weighing = [self.held[digest] for digest in dict.fromkeys(self._weighing)]
        if self._data > MOST_DATA:
            inline = [held for held in weighing if not held.known and held.stored.data is not None]
            for held in self._placed(inline):
                self.held[held.stored.digest] = held
            self._data = 0
            self._weighing = []
        for held in weighing:
            digest = held.stored.digest
            if self.held[digest].content is not None:
                self.held[digest] = self.held[digest]._replace(content=None)
        self._content = 0

    def _placed(self, helds: list[Held]) -> list[Held]:
        places = self._packs.append([to_entry(held.stored) for held in helds])
        return [
            held._replace(stored=held.stored._replace(data=None, place=place), content=None)
            for held, place in zip(helds, places, strict=True)
        ]

    def _is_broken(self, held: Held) -> bool:
        place = held.stored.place
        return place is not None and not held.known and self._packs.is_broken(place.pack)

    def sync(self) -> None:
        self.settle()
        if self.held:
            with self._database.write() as connection:
                if self.held:  # the beginning of a transaction has written them
                    self._write(connection)
            self.settle()

    def discard(self) -> None:
        self._empty()
        self.settle()

    def disown(self, threads: Collection[int]) -> None:
        for digest, held in self.held.items():
            if held.by in threads:
                self.held[digest] = held._replace(for_nothing=True)

    def _empty(self) -> None:
        self.held, self.newest, self._weighing = {}, {}, []
        self._data = self._content = 0

    def settle(self) -> None:
        """A transaction that is over and was not rolled back has made its blobs durable."""
        if self.committing and not self._in_transaction():
            self.committing, self._committing_newest = {}, {}
        if not self.committing and not self.held:
            self._packs.release()

    def _begin(self, connection: Connection) -> None:
        """Called first thing in every transaction, so the one before is over, and was not rolled back."""
        if self.committing:
            self.committing, self._committing_newest = {}, {}
        if self.held:
            self._write(connection)

    def _write(self, connection: Connection) -> None:
        """Write the held blobs in this transaction."""
        self._in_transaction = lambda: connection.in_transaction
        self._drop_what_nobody_wants()
        if any(self._is_broken(held) for held in self.held.values()):
            # Not dropped: its owner may be about to name it in a record.
            raise ResourceUnreachable(
                "Content that was put lately could not be written to the disk.",
                hint="Check the disk, run `takeback verify`, and do it again.",
            )
        self._packs.sync()
        ask, at = rows.asking(connection), self._now() // 1_000_000
        ids = {digest: self._write_row(connection, ask, held, at) for digest, held in self.held.items()}
        for origin, digest in self.newest.items():
            rows.set_newest(connection, origin, ids[digest])
        self.committing |= self.held
        self._committing_newest |= self.newest
        self._empty()

    def _drop_what_nobody_wants(self) -> None:
        """The change was refused, and the disk has failed some of its blobs: no record will name them."""
        if any(held.for_nothing and self._is_broken(held) for held in self.held.values()):
            self.held = {digest: held for digest, held in self.held.items() if not held.for_nothing}
            self.newest = {origin: one for origin, one in self.newest.items() if one in self.held}
            self._weighing = [digest for digest in self._weighing if digest in self.held]
            if not self.held and not self.committing:
                self._packs.release(for_nothing=True)

    def _write_row(self, connection: Connection, ask: Ask, held: Held, at: int) -> int:
        stored = held.stored
        needed = [name for name in chain(held.pieces, held.refs) if name not in self.held]
        if needed and rows.absent(ask, needed):
            raise _swept(held)
        id = rows.find_id(ask, stored.digest)
        if id is None or held.heals:
            id = self._write_content(connection, ask, held, id, at)
        elif not held.for_nothing:
            rows.touch(connection, id, at)
        if held.refs:
            rows.add_refs(connection, id, stored.digest, held.refs)
        return id

    def _write_content(self, connection: Connection, ask: Ask, held: Held, id: int | None, at: int) -> int:
        stored = held.stored
        base = rows.find_id(ask, stored.base) if stored.base else None
        if held.known or (stored.base and base is None):
            if held.content is None:
                raise _swept(held)
            form, data = codec.encode(held.content)
            stored, base = Stored(stored.digest, stored.size, form, b"", 0, data), None
        if id is None:
            id = rows.insert(connection, stored, base, 0 if held.for_nothing else at)
        else:
            rows.rewrite(connection, id, stored, base)
            rows.touch(connection, id, at)
        if stored.data is not None and rows.data_of(connection, id) != stored.data:
            raise damaged(stored.digest, "the database does not give back what was written to it")
        return id

    def _take_back(self) -> None:
        """The transaction failed: nothing of it is durable, so all of it is held again."""
        held, newest = self.committing | self.held, self._committing_newest | self.newest
        self.committing, self._committing_newest = {}, {}
        self._empty()
        self.held, self.newest = held, newest
        for held in self.held.values():
            self._weigh(held)


def to_entry(stored: Stored) -> PackEntry:
    return PackEntry(stored.digest, stored.base, stored.form, stored.size, stored.data or b"")


def _swept(held: Held) -> StoreBusy:
    return StoreBusy(
        f"A sweep removed part of blob {held.stored.digest.hex()} before it was recorded.",
        hint="Nothing was changed: do it again.",
    )
