"""Blobs too large for a row of a commit: in rows of their own, or in an object store."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from takeback.errors import Misuse, ResourceUnreachable, StoreBusy
from takeback.model.words import install_hint
from takeback.storage.blobs.packs import HEADER, EntryDamaged, header_alone, sound_entry, to_bytes
from takeback.storage.blobs.sweep import still_held
from takeback.storage.postgres.database import PostgresDatabase, StoreSession
from takeback.storage.tables import PackEntry, PackPlace, Tables

_HINT = (
    "Check the bucket and the rights: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, and AWS_ENDPOINT_URL for"
    " one that is not Amazon's."
)


def check_place(url: str) -> None:
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    if not url.startswith("s3://") or not bucket or "?" in url or "@" in bucket or ".." in prefix:
        raise Misuse(f"{url!r} is no place for blobs.", hint="Give s3://bucket/prefix.")


class BlobObjectStore:
    def __init__(self, url: str) -> None:
        check_place(url)
        self._url = url
        self._obstore = _library()
        options: dict[str, Any] = {}
        if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://"):
            options["client_options"] = {"allow_http": True}
        from obstore.store import S3Store

        self._store = S3Store.from_url(url, **options)

    def put(self, name: str, data: bytes) -> None:
        """Read back: what cannot be read is not kept."""
        try:
            self._obstore.put(self._store, name, data)
            there = self._obstore.head(self._store, name)["size"]
        except Exception as error:
            raise self._unreachable("written", error) from error
        if there != len(data):
            raise ResourceUnreachable(f"{self._url} did not keep what was written to it.", hint=_HINT)

    def get(self, name: str, start: int = 0, length: int = 0) -> bytes:
        try:
            if length:
                return bytes(self._obstore.get_range(self._store, name, start=start, length=length))
            return bytes(self._obstore.get(self._store, name).bytes())
        except FileNotFoundError:
            raise
        except Exception as error:
            raise self._unreachable("read", error) from error

    def delete(self, names: Sequence[str]) -> None:
        try:
            self._obstore.delete(self._store, list(names))
        except FileNotFoundError:
            return
        except Exception as error:
            raise self._unreachable("swept", error) from error

    def _unreachable(self, doing: str, error: Exception) -> ResourceUnreachable:
        said = str(error).strip().partition("\n")[0][:200]
        return ResourceUnreachable(f"{self._url} cannot be {doing}: {said}", hint=_HINT)


def _library() -> Any:
    try:
        import obstore
    except ImportError:
        raise Misuse("Blobs in an object store need takeback[s3].", hint=install_hint("s3")) from None
    return obstore


_PATIENCE = 5.0  # seconds
_SWEEP = "hashtext('takeback sweep'), hashtext(current_schema())"


class Objects(Protocol):
    """An object store. Writes are durable when the call returns."""

    def put(self, name: str, data: bytes) -> None: ...

    def get(self, name: str, start: int = 0, length: int = 0) -> bytes:
        """All of it, or a part; FileNotFoundError."""
        ...

    def delete(self, names: Sequence[str]) -> None: ...


class PostgresShelf:
    def __init__(
        self, database: PostgresDatabase, objects: Objects | None = None, now: Callable[[], int] | None = None
    ) -> None:
        """`now` is in microseconds since 1970; without it the clock of the server counts."""
        self.directory = database.address.shown
        self._database = database
        self._objects = objects
        self._now = now
        self._guard: StoreSession | None = None  # holds the lock of our pack
        self._pack = 0
        self._next = 0

    def append(self, entries: Sequence[PackEntry]) -> list[PackPlace]:
        places: list[PackPlace] = []
        for entry in entries:
            pack = self._guarded()
            position, self._next = self._next, self._next + 1
            written = to_bytes(entry)
            if self._objects:
                self._objects.put(name_of(pack, position), written)
            at = self._now() // 1_000_000 if self._now else None
            self._database.ask(
                lambda session, pack=pack, at=at, data=written, position=position: session.execute(
                    "INSERT INTO shelf (pack, at, position, length, data)"
                    " VALUES (?, coalesce(?::bigint, now_us() / 1000000), ?, ?, ?::bytea)"
                    " ON CONFLICT (pack, position) DO NOTHING",
                    (pack, at, position, len(data), None if self._objects else data),
                )
            )
            places.append(PackPlace(pack, position, len(entry.data)))
        return places

    def _guarded(self) -> int:
        if self._guard is None or self._guard.connection.closed:
            self._pack, self._next = int.from_bytes(os.urandom(6), "big"), 0
            self._guard = self._database.another()
            self._guard.execute("SELECT pg_advisory_lock(?::bigint)", (self._pack,))
        return self._pack

    def sync(self) -> None:
        """Each was on the disk of the server when it was answered."""

    def is_broken(self, pack: int) -> bool:
        return False

    def release(self, for_nothing: bool = False) -> None:
        if self._guard:
            self._guard.connection.close()
            self._guard = None

    def read(self, place: PackPlace, check: bool = False) -> PackEntry:
        return sound_entry(self._bytes(place, 0), place.length, check)

    def peek(self, place: PackPlace) -> PackEntry:
        rows = self._database.read(
            "SELECT length FROM shelf WHERE pack = ? AND position = ?", (place.pack, place.position)
        )
        if not rows or rows[0][0] != HEADER.size + place.length:
            raise EntryDamaged("it is cut off")
        return header_alone(self._bytes(place, HEADER.size))

    def _bytes(self, place: PackPlace, length: int) -> bytes:
        """The first of them, or all for a length of 0."""
        if self._objects:
            return self._objects.get(name_of(place.pack, place.position), 0, length)
        what = f"substr(data, 1, {length})" if length else "data"
        rows = self._database.read(
            f"SELECT {what} FROM shelf WHERE pack = ? AND position = ?", (place.pack, place.position)
        )
        if not rows:
            raise FileNotFoundError(name_of(place.pack, place.position))
        if rows[0][0] is None:
            raise EntryDamaged("its bytes are in an object store that this store was not opened with")
        return rows[0][0]

    @contextmanager
    def alone(self) -> Iterator[None]:
        guard = self._database.another()
        try:
            if not guard.execute(f"SELECT pg_try_advisory_lock({_SWEEP})").fetchone()[0]:
                raise StoreBusy("Another sweep is at work on this store.", hint="Try again when it is done.")
            yield
        finally:
            guard.connection.close()

    def tidy(
        self, tables: Tables, in_use: set[int], oldest: int, copying: bool, for_good: bool = False
    ) -> None:
        """Entry by entry: nothing has to be copied for the others to go."""
        until = time.monotonic() + (_PATIENCE if for_good else 0)
        while self._tidied(tables, in_use, oldest, for_good) and for_good:
            # The server may not have seen yet that a writer has gone.
            if time.monotonic() > until:
                raise still_held(f"{self.directory} (table shelf)")
            time.sleep(0.05)

    def _tidied(self, tables: Tables, in_use: set[int], oldest: int, for_good: bool) -> bool:
        """Whether something was left to a process that may still name it."""
        unnamed = "NOT EXISTS (SELECT 1 FROM blob_places p WHERE p.pack = shelf.pack AND p.position = shelf.position)"
        with tables.write() as connection:
            packs = connection.execute(
                f"SELECT DISTINCT pack FROM shelf WHERE {unnamed}"
                " AND (?::boolean OR at <= ? OR pack = ANY (?::bigint[]))",
                (for_good, oldest, sorted(in_use)),
            ).fetchall()
            gone: list[tuple[Any, ...]] = []
            left = False
            for (pack,) in packs:
                # A process that has put a blob there and not committed it yet holds this lock.
                if connection.execute("SELECT pg_try_advisory_xact_lock(?::bigint)", (pack,)).fetchone()[0]:
                    gone += connection.execute(
                        f"DELETE FROM shelf WHERE pack = ? AND {unnamed} RETURNING pack, position", (pack,)
                    ).fetchall()
                else:
                    left = True
            if (
                self._objects and gone and for_good
            ):  # nothing names them; killed in between, they go once more
                self._objects.delete([name_of(pack, position) for pack, position in gone])
            in_use.update(
                row[0] for row in connection.execute("SELECT DISTINCT pack FROM blob_places").fetchall()
            )
        if self._objects and gone and not for_good:
            # After the rows: killed in between, an object is left that nothing names, never a name without its object.
            self._objects.delete([name_of(pack, position) for pack, position in gone])
        return left

    def close(self) -> None:
        self.release()


def name_of(pack: int, position: int) -> str:
    return f"{pack:012x}/{position}"
