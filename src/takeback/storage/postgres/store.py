"""A store in PostgreSQL, for many machines: its schema, its opening, and waiting for work."""

import os
import time
from collections.abc import Callable, Sequence
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.errors import Corrupt, FormatTooNew, Misuse, Refused, ResourceUnreachable, Unavailable
from takeback.model.record import Record
from takeback.model.settings import given_settings
from takeback.storage import disk, tables
from takeback.storage.bodies import deflated
from takeback.storage.owners import alive, machine
from takeback.storage.postgres.connection import SCHEMA, Address, address_of, connect, driver, translated
from takeback.storage.postgres.database import PostgresDatabase, StoreSession
from takeback.storage.postgres.journal import LeasesAtHome, PostgresJournal, PostgresLeases
from takeback.storage.store import Store, unfinished

if TYPE_CHECKING:
    from takeback.storage.blobs.stored import StoredBlobs


# The tables and functions of a store, in numbered steps: each is applied once, in order, alone. The functions that
# append are created again after the last of them.


_HERE = os.path.dirname(__file__)
_STEPS = "schema"
_PROJECTS = 7  # the step since which effects belong to projects


@cache
def steps() -> tuple[str, ...]:
    return tuple(_sql(_STEPS, name) for name in sorted(os.listdir(os.path.join(_HERE, _STEPS))))


@cache
def appending() -> str:
    return _sql("append.sql")


def _sql(*path: str) -> str:
    with open(os.path.join(_HERE, *path), encoding="utf-8") as file:
        return file.read()


def version_of(connection: Any, address: Address) -> int | None:
    """None: there is no store."""
    found = connection.execute("select to_regclass(%s)", (f"{address.schema}.store",)).fetchone()
    if found[0] is None:
        return None
    row = connection.execute(f"select version from {address.schema}.store".encode()).fetchone()
    if row is None:
        raise Corrupt(
            f"The store at {address.shown} does not say which version it is.",
            hint="Restore it from a backup.",
        )
    return row[0]


def bring_up_to_date(connection: Any, address: Address) -> None:
    """Makes the store if there is none."""
    refuse_newer(version_of(connection, address), address)
    if version_of(connection, address) == len(steps()):
        return
    connection.execute(b"begin")
    try:
        # Of several that open it at once one makes it and the others wait.
        connection.execute(
            "select pg_advisory_xact_lock(hashtext('takeback store'), hashtext(%s))", (address.schema,)
        )
        version = version_of(connection, address)
        refuse_newer(version, address)
        if version is None:
            connection.execute(f"create schema if not exists {address.schema}".encode())
        for step in (*steps()[version or 0 :], appending()):
            connection.execute(step.replace(f"{SCHEMA}.", f"{address.schema}.").encode())
        if version is not None and version < _PROJECTS:
            _derive_projects(connection, address)
        connection.execute(f"update {address.schema}.store set version = {len(steps())}".encode())
        connection.execute(b"commit")
    except BaseException:
        if not connection.closed:
            connection.execute(b"rollback")
        raise


def _derive_projects(connection: Any, address: Address) -> None:
    """For effects of before: by what they touched. All of them are listed first."""
    from takeback.storage.projects import derive

    connection.execute(f"set local search_path = {address.schema}, pg_catalog".encode())
    connection.execute(b"select list_all(false)")
    derive(StoreSession(connection))


def refuse_newer(version: int | None, address: Address) -> None:
    if version is not None and version > len(steps()):
        raise FormatTooNew(
            f"The store at {address.shown} was written by a newer takeback (version {version}, this one knows "
            f"{len(steps())}).",
            hint="Upgrade takeback; nothing was touched.",
        )


_REWRITTEN = (
    "records", "effects", "runs", "targets", "projects", "scopes", "signals", "in_flight",
    "blobs", "blob_places", "blob_refs", "blob_origins", "shelf", "redacting",
)  # fmt: skip


class PostgresStore(Store):
    _RETIRE, _REOPEN = tables.POSTGRES, tables.POSTGRES_AGAIN
    REDACTED_COLUMNS = ", key = CASE WHEN key IS NOT NULL THEN '' END, resource = NULL"

    def __init__(self, database: PostgresDatabase, path: str, found: "_Found") -> None:
        super().__init__(database.address.shown, path, database, found.settings, found.retired)
        self.server = database
        self.journal = PostgresJournal(database)
        self.leases = PostgresLeases(database, alive, machine())
        self._at_home = LeasesAtHome(database, alive, machine())
        self.objects = found.objects  # where large blobs are; empty: in the database
        self._waking: Waking | None = None

    def _retired_by_now(self) -> str:
        there = self.read("SELECT to_regclass('retired') IS NOT NULL")[0][0]
        return self.read("SELECT words FROM retired")[0][0] if there else ""

    def shrink(self) -> None:
        """The server has it."""

    def _make_blobs(self) -> "StoredBlobs":
        from takeback.storage.blobs.stored import StoredBlobs
        from takeback.storage.postgres.blobs import BlobObjectStore, PostgresShelf

        objects = BlobObjectStore(self.objects) if self.objects else None
        return StoredBlobs(self.server, "", shelf=PostgresShelf(self.server, objects))

    @property
    def leases_at_home(self) -> LeasesAtHome:
        return self._at_home

    def elsewhere(self, run: str) -> bool:
        return self._at_home.elsewhere(run)

    @property
    def role(self) -> str:
        return self.read("SELECT session_user::text")[0][0]

    def wait_for_work(self, seconds: float) -> None:
        with self.server.lock:
            self._waking = self._waking or Waking(self.server)
        self._waking.wait(seconds)

    def adopting(self, original: Callable[[], Record]) -> PostgresJournal:
        return PostgresJournal(self.server, lambda: original().at, original)

    def kept_body(self, body: bytes) -> str | bytes:
        return deflated(body)

    def rename_signal(self, connection: Any, seq: int, name: str) -> None:
        connection.execute("UPDATE signals SET name = ? WHERE seq = ?", (name, seq))

    def rewrite(self) -> tuple[str, ...]:
        session = self.server.another()
        try:
            for table in _REWRITTEN:
                session.execute(f"VACUUM (FULL) {table}")
        except driver().Error as error:
            raise translated(error) from error
        finally:
            session.connection.close()
        return (
            "The server's write-ahead log, its archive, replicas and backups still hold what was erased, until they are"
            " recycled.",
            *(["Versions that the bucket keeps of deleted objects are not removed."] if self.objects else []),
        )

    def keep_settings(self, settings: dict[str, int]) -> None:
        with self.together() as connection:
            for name, value in settings.items():
                connection.execute(
                    "INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING",
                    (name, value),
                )

    def finish_copying(self) -> None:
        with self.together() as connection:
            connection.execute("UPDATE store SET copying = ''")

    def refuse_if_suspect(self) -> None:
        self.refuse_if_retired()
        if self.read_only:
            raise ResourceUnreachable(
                f"The store at {self.name} is read-only, so no way back could be kept.",
                hint="It is a replica, or its role may not write. Looking still works.",
            )

    def bytes_on_disk(self, without: Sequence[str] = ()) -> int:
        ((there,),) = self.read(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
            " WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
        )
        return int(there) + super().bytes_on_disk(without)

    def close(self) -> None:
        if self._waking:
            self._waking.close()
        if self._blobs:
            self._blobs.close()
        self.server.close()


class _Found(NamedTuple):
    id: str
    objects: str
    settings: dict[str, int]
    read_only: bool
    retired: str


def is_made(path: str) -> bool:
    address = address_of(path)
    connection = connect(address)
    try:
        return version_of(connection, address) is not None
    finally:
        connection.close()


def open_remote(path: str, beside: str, objects: str, copying: str = "") -> PostgresStore:
    """Made if it is not there. `beside`: the directory for what is on this machine. `copying`: it is being filled."""
    address = address_of(path)
    connection = connect(address)
    try:
        found = _looked_at(connection, address, objects, copying)
    finally:
        connection.close()
    directory = os.path.join(beside, found.id)
    for one in (beside, directory, os.path.join(directory, "held")):
        disk.make_private_directory(one)
        disk.check_private(one)
    database = PostgresDatabase(address)
    database.read_only = found.read_only
    return PostgresStore(database, directory, found)


def _looked_at(connection: Any, address: Address, objects: str, copying: str) -> _Found:
    (read_only,) = connection.execute(
        "select current_setting('transaction_read_only') = 'on' or pg_is_in_recovery()"
    ).fetchone()
    if read_only:
        version = version_of(connection, address)
        if version is None:
            raise Misuse(
                f"There is no store at {address.shown}.", hint="And none can be made: it is read-only."
            )
        refuse_newer(version, address)
        if version < len(steps()):
            raise ResourceUnreachable(
                f"The store at {address.shown} is of an older version and read-only.",
                hint="Open it writable once.",
            )
    else:
        bring_up_to_date(connection, address)
    id, kept_in, filling, is_retired = connection.execute(
        f"select id, blobs, copying, to_regclass('{address.schema}.retired') is not null"
        f" from {address.schema}.store".encode()
    ).fetchone()
    if filling != copying:
        _begin_copying(connection, address, filling, copying)
    if objects and objects.rstrip("/") != kept_in:
        kept_in = _place_objects(connection, address, objects.rstrip("/"), kept_in)
    settings = dict(
        connection.execute(f"select name, value from {address.schema}.settings".encode()).fetchall()
    )
    words = f"select words from {address.schema}.retired".encode()
    retired = connection.execute(words).fetchone()[0] if is_retired else ""
    told = f"{address.shown} (table settings)"
    return _Found(id, kept_in, given_settings(settings, told), read_only, retired)


def _begin_copying(connection: Any, address: Address, filling: str, copying: str) -> None:
    if filling:
        raise unfinished(address.shown, filling, f"drop the schema {address.schema}")
    schema = address.schema
    begun = connection.execute(
        f"update {schema}.store set copying = %s where not exists (select 1 from {schema}.records)"
        " returning 1".encode(),
        (copying,),
    ).fetchone()
    if not begun:
        raise Refused(
            f"There is a store at {address.shown} already.", hint="Copy to a place where there is none yet."
        )


def _place_objects(connection: Any, address: Address, objects: str, before: str) -> str:
    """Said once, before there is any blob; after that it cannot be said otherwise."""
    from takeback.storage.postgres.blobs import check_place

    check_place(objects)
    done = connection.execute(
        f"update {address.schema}.store set blobs = %s where blobs = '' and not exists"
        f" (select 1 from {address.schema}.shelf) returning 1".encode(),
        (objects,),
    ).fetchone()
    if not done:
        where = before or "PostgreSQL itself"
        raise Misuse(
            f"The store at {address.shown} keeps its large blobs in {where}, not in {objects}.",
            hint="Leave --blobs away: the store knows where they are. `takeback store copy` moves a store.",
        )
    return objects


class Waking:
    """A notification before the wait counts as well: none is lost between two waits."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._lock = Lock()
        self._ear: StoreSession | None = None

    def wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        if not self._lock.acquire(timeout=max(0.0, seconds)):
            return
        try:
            self._listen(until)
        finally:
            self._lock.release()

    def _listen(self, until: float) -> None:
        try:
            if self._ear is None:
                self._ear = self._database.another()
                self._ear.execute(f'LISTEN "{self._database.address.schema}.work"')
                return  # events from before we listened were not reported
            left = max(0.0, until - time.monotonic())
            for _ in self._ear.connection.notifies(timeout=left, stop_after=1):
                return
        except (driver().Error, Unavailable):
            self.close()
            time.sleep(max(0.0, min(1.0, until - time.monotonic())))

    def close(self) -> None:
        if self._ear:
            self._ear.connection.close()
            self._ear = None
