"""Blobs in a store on disk: small ones in the journal's database and in its commits, large ones in packs."""

import os
import time
from _thread import get_ident
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain

from takeback.errors import BlobDamaged, Corrupt, ResourceUnreachable
from takeback.model.content import Naming, is_empty, zeros, zeros_name
from takeback.model.progress import SILENT, Progress
from takeback.model.record import Flaw
from takeback.storage import disk
from takeback.storage.blobs import codec, rows
from takeback.storage.blobs.codec import BlobForm
from takeback.storage.blobs.packs import HEADER, Packs
from takeback.storage.blobs.reader import BlobReader, check_blobs, damaged, encoded, missing, stream
from takeback.storage.blobs.rows import Ask, Stored, is_recipe
from takeback.storage.blobs.uncommitted import INLINE, Held, Holding
from takeback.storage.protocols import BlobInfo
from takeback.storage.sqlite.database import SqliteDatabase, schema
from takeback.storage.tables import Shelf, Tables

PATIENCE = 8  # lookups in a row before we believe that more will follow
AHEAD = 64


class ReadAhead:
    """It may be out of date: a reader looks again if the bytes are wrong.

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


DEEPEST = 64  # bases below one blob
CHAIN_BYTES = 2 << 20  # bytes to decode before a blob is found, so long ones stand on few bases


def create(database: SqliteDatabase, directory: str) -> None:
    """Directories and tables for a new store."""
    disk.make_private_directory(os.path.join(directory, "packs"))
    database.script(schema("blobs.sql"))
    if database.read("PRAGMA auto_vacuum")[0][0] == 0:
        database.script("PRAGMA auto_vacuum = INCREMENTAL; VACUUM;")


class _TidyPacks(Packs):
    def tidy(
        self, tables: Tables, in_use: set[int], oldest: int, copying: bool, for_good: bool = False
    ) -> None:
        from takeback.storage.blobs.sweep import tidy_packs

        tidy_packs(self, tables, in_use, oldest, copying, for_good)


class StoredBlobs:
    """Thread-safe: what it remembers is guarded by the lock of the database."""

    def __init__(
        self,
        database: Tables,
        directory: str,
        now: Callable[[], int] | None = None,
        shelf: Shelf | None = None,
    ) -> None:
        """`now` is in microseconds since 1970. Without a shelf, large blobs are in packs in the directory."""
        self._database = database
        self._lock = database.lock
        self._now = now or _now
        self._packs: Shelf = shelf or _TidyPacks(os.path.join(directory, "packs"), self._on_io_error)
        self._holding = Holding(database, self._packs, self._now)
        self._reader = BlobReader(self._find, self._packs)
        self._ahead = ReadAhead(database.read, self._find)

    def _on_io_error(self) -> None:
        self._database.on_io_error()  # asked for late, because it is set after we are made

    def put(self, content: bytes | Iterable[bytes], like: str = "", refs: Sequence[str] = ()) -> str:
        """More than a segment is cut, so that memory stays bounded whatever the length."""
        if self._database.read_only:
            raise ResourceUnreachable("The store is open for reading only.", hint="Open it for writing.")
        needed = self._existing(refs) if refs else ()
        origin = rows.origin_of(like) if like else None
        cut = codec.cut(content)
        first, second = next(cut, b""), next(cut, None)
        if second is None:
            return self._put_piece(first, lambda: self._first_piece(origin), needed, origin).hex()
        newest = self._newest(origin)
        past = self._pieces(newest) if newest else []
        whole, size, names = Naming(), 0, list[bytes]()
        empty = b""
        for number, piece in enumerate(chain((first, second), cut)):
            whole.add(piece)
            size += len(piece)
            if is_empty(piece):
                empty = empty or self._put_piece(zeros(), lambda: None, part=True)
                names.append(empty)
                continue
            before = past[number] if number < len(past) else None
            names.append(
                self._put_piece(
                    piece, lambda before=before: self._find(before) if before else None, part=True
                )
            )
        digest = whole.digest()
        recipe = Stored(digest, size, BlobForm.RECIPE, b"", 0, codec.seal(names, digest))
        with self._lock:
            self._holding.settle()
            found = rows.find(self._database.read, digest)
            heals = found is not None and self._pieces(found) != names
            self._holding.add(Held(recipe, heals=heals, pieces=tuple(names), refs=needed), origin)
        return digest.hex()

    def _existing(self, refs: Sequence[str]) -> tuple[bytes, ...]:
        names = {ref: to_digest(ref) for ref in refs}
        with self._lock:
            unheld = [name for name in names.values() if name and name not in self._holding.held]
            gone = {None, *rows.absent(self._database.read, unheld)}
        for ref, name in names.items():
            if name in gone:
                raise missing(ref)
        return tuple(name for name in names.values() if name)

    def _newest(self, origin: int | None) -> Stored | None:
        """The newest version of the same thing."""
        if origin is None:
            return None
        with self._lock:
            held = self._holding.newest.get(origin)
            return self._find(held) if held else rows.newest(self._database.read, origin)

    def _first_piece(self, origin: int | None) -> Stored | None:
        """The first piece of the newest version: all of it, unless it was long."""
        newest = self._newest(origin)
        if newest and is_recipe(newest):
            pieces = self._pieces(newest)
            return self._find(pieces[0]) if pieces else None
        return newest

    def _pieces(self, stored: Stored) -> list[bytes]:
        """None if they cannot be read: then the new version is kept whole."""
        try:
            return self._reader.pieces(stored)
        except (Corrupt, ResourceUnreachable):
            return []

    def _put_piece(
        self,
        content: bytes,
        past: Callable[[], Stored | None],  # an earlier version of it; asked for only if the content is new
        refs: tuple[bytes, ...] = (),
        origin: int | None = None,
        part: bool = False,
    ) -> bytes:
        digest = codec.name(content)
        with self._lock:
            self._holding.settle()
            if held := self._holding.get(digest):
                self._holding.add_refs(held, refs, origin)
                return digest
            if not part and len(content) <= INLINE and self._reader.remembers(digest):
                # Read or written here a moment ago; if a sweep has removed it since, the commit writes it again.
                lately = Stored(digest, len(content), BlobForm.RAW, b"", 0, None)
                self._holding.add(Held(lately, content, known=True, refs=refs), origin)
                return digest
            stored = rows.find(self._database.read, digest)
            # Can the store give these bytes back? If not, they are still at hand to be written again.
            if stored and not is_recipe(stored) and self._readable(digest, stored) == content:
                # A part needs no touch: the whole keeps it alive, and makes sure that it is still there.
                if not part:
                    self._holding.add(Held(stored, content, known=True, refs=refs), origin)
                return digest
            # One that heals stands on no other: that other may be a difference to it.
            base = past() if stored is None else None
            if base is not None or stored is not None:
                fresh = self._encoded(digest, content, base)
                self._holding.add(Held(fresh, content, heals=stored is not None, refs=refs), origin)
                return digest
        # Nothing is known of it, so only the content counts: other threads may run at the same time.
        fresh = encoded(digest, content)
        with self._lock:
            if origin is not None or part:  # else no next version will ask for it
                self._reader.remember(digest, content)
            self._holding.settle()
            if held := self._holding.get(digest):
                self._holding.add_refs(held, refs, origin)
            else:
                self._holding.add(Held(fresh, content, refs=refs), origin)
        return digest

    def _encoded(self, digest: bytes, content: bytes, past: Stored | None) -> Stored:
        base = self._base_for(past, len(content)) if past and past.digest != digest else None
        before = self._readable(base.digest, base) if base else None
        fresh = encoded(digest, content, base, before)
        self._reader.remember(digest, content)
        return fresh

    def _base_for(self, last: Stored, size: int) -> Stored | None:
        """The last version, or the whole one that it stands on when its chain is long enough."""
        base: Stored | None = last
        if last.depth >= min(DEEPEST, max(1, CHAIN_BYTES // max(1, size))):
            while base and base.base:
                base = self._find(base.base)
        return base if base and not is_recipe(base) else None

    def _readable(self, digest: bytes, found: Stored | None = None) -> bytes | None:
        try:
            return self._reader.content(digest, found)
        except (Corrupt, ResourceUnreachable):
            return None

    def sync(self) -> None:
        with self._lock:
            self._holding.sync()

    def shrink(self) -> None:
        """From now on, keep little content in memory."""
        with self._lock:
            self._reader.keep_little()
            self._ahead.forget()

    def disown(self, threads: Collection[int] = ()) -> None:
        """What this thread, or these, have put, and no commit has written yet, was for nothing: sweep may take it at
        once."""
        with self._lock:
            self._holding.disown(threads or (get_ident(),))

    def discard(self) -> None:
        """Give up what was put and is not durable; for a caller whose commit failed, and who names none."""
        with self._lock:
            self._holding.discard()

    def _find(self, digest: bytes) -> Stored | None:
        held = self._holding.held.get(digest)
        # Blobs that the store already has are looked up there: a sweep may have moved them.
        if held and not held.known:
            return held.stored
        return rows.find(self._database.read, digest)

    def _find_to_read(self, digest: bytes) -> Stored | None:
        if self._holding.held:
            return self._find(digest)
        return self._ahead.find(digest)

    def _has(self, digest: bytes) -> bool:
        with self._lock:
            return digest in self._holding.held or rows.find_id(self._database.read, digest) is not None

    def has(self, digest: str) -> bool:
        name = to_digest(digest)
        return name is not None and self._has(name)

    def read(self, digest: str) -> Iterator[bytes]:
        name = to_digest(digest)
        with self._lock:
            stored = self._find_to_read(name) if name else None
            if stored is None or name is None:
                raise missing(digest)
            if not is_recipe(stored):
                return iter((self._reader.content(name, stored),))
            pieces = self._reader.pieces(stored)
        return stream(name, (self._piece(name, piece) for piece in pieces))

    def _piece(self, whole: bytes, piece: bytes) -> bytes:
        if piece == zeros_name():
            return zeros()
        with self._lock:
            stored = self._find(piece)
            if stored is None:
                raise damaged(whole, f"its piece {piece.hex()} is not in the store")
            try:
                return self._reader.content(piece, stored)
            except BlobDamaged as error:
                raise damaged(whole, f"a piece of it is damaged ({str(error).removesuffix('.')})") from error

    def refs(self, digest: str) -> tuple[str, ...]:
        """The blobs that live as long as this one."""
        name = to_digest(digest)
        if name is None or not self._has(name):
            raise missing(digest)
        return tuple(ref.hex() for ref in self._refs(name))

    def _refs(self, name: bytes) -> tuple[bytes, ...]:
        with self._lock:
            held = self._holding.held.get(name)
            try:
                stored = rows.refs_of(self._database.read, name)
            except codec.Undecodable as problem:
                raise damaged(name, str(problem)) from problem
        return tuple(dict.fromkeys((*stored, *(held.refs if held else ()))))

    def info(self, digests: Sequence[str] | None = None) -> Iterator[BlobInfo]:
        """Asked for by name, a blob counts with its pieces and refs; in the whole list each is for itself."""
        if digests is not None:
            for digest in digests:
                name = to_digest(digest)
                stored = self._find(name) if name else None
                if stored:
                    yield _to_info(stored, self._weight(stored, set()))
            return
        with self._lock:
            held = [held.stored for held in self._holding.held.values()]
        after = 0
        while found := rows.page(self._database.read, after):
            after = found[-1][0]
            for _, stored in found:
                yield _to_info(stored, _stored(stored))
        for stored in held:
            if rows.find_id(self._database.read, stored.digest) is None:
                yield _to_info(stored, _stored(stored))

    def _weight(self, stored: Stored, counted: set[bytes]) -> int:
        counted.add(stored.digest)
        below = chain(self._pieces(stored) if is_recipe(stored) else (), self._refs(stored.digest))
        further = (found for name in below if name not in counted and (found := self._find(name)))
        return _stored(stored) + sum(self._weight(one, counted) for one in further)

    def check(self, read_data: bool, progress: Progress = SILENT) -> Iterator[Flaw]:
        with self._lock:
            self._reader.forget()
            self._ahead.forget()
        return check_blobs(self._database, self._packs, self._reader, read_data, progress)

    def sweep(
        self,
        live: Callable[[], Iterable[str]],
        grace: int,
        erase: Sequence[str] = (),
        put_until: int = 0,
        progress: Progress = SILENT,
        dry_run: bool = False,
        for_good: bool = False,
    ) -> int:
        from takeback.storage.blobs.sweep import Erasure, Sweeper

        own: set[bytes] = set()

        def needed() -> Iterator[bytes | None]:
            # Our pending blobs were written by the transaction of the sweep; no record could name them yet.
            own.update(self._holding.committing)
            yield from own
            for digest in live():
                yield to_digest(digest)

        at = self._now() // 1_000_000
        try:
            going = Erasure(frozenset(filter(None, map(to_digest, erase))), put_until, for_good)
            sweeper = Sweeper(self._database, self._packs, self._reader, grace, at, going, progress)
            return sweeper.unneeded(needed()) if dry_run else sweeper.sweep(needed, self._settle)
        finally:
            with self._lock:
                self._reader.forget()
                self._ahead.forget()

    def _settle(self) -> None:
        with self._lock:
            self._holding.settle()

    def close(self) -> None:
        with self._lock:
            self._packs.close()


def _stored(stored: Stored) -> int:
    return stored.length + (HEADER.size if stored.place else 0)


def _to_info(stored: Stored, weight: int) -> BlobInfo:
    return BlobInfo(stored.digest.hex(), stored.size, weight, stored.base.hex())


def _now() -> int:
    return time.time_ns() // 1000


def to_digest(text: str) -> bytes | None:
    """None for what cannot be the name of a blob."""
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        return None
    return digest if len(digest) == 32 and text == digest.hex() else None
