"""A store in PostgreSQL, for many machines; what only this machine can have is in a directory of ours."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.errors import Misuse, Refused, ResourceUnreachable
from takeback.model.settings import Settings, settings_from
from takeback.storage import disk, retiring
from takeback.storage.postgres.connecting import Address, address_of, connect
from takeback.storage.postgres.database import PostgresDatabase
from takeback.storage.postgres.journal import PostgresJournal
from takeback.storage.postgres.leases import LeasesAtHome, PostgresLeases
from takeback.storage.postgres.schema import bring_up_to_date, refuse_newer, steps, version_of
from takeback.storage.process import alive, machine
from takeback.storage.whole_store import Store

if TYPE_CHECKING:
    from takeback.storage.blobs import StoredBlobs
    from takeback.storage.postgres.waking import Waking


class PostgresStore(Store):
    _RETIRE, _REOPEN = retiring.POSTGRES, retiring.POSTGRES_AGAIN

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

    def _make_blobs(self) -> "StoredBlobs":
        from takeback.storage.blobs import StoredBlobs
        from takeback.storage.postgres.shelf import PostgresShelf

        objects = None
        if self.objects:
            from takeback.storage.postgres.objects import ObjectStore

            objects = ObjectStore(self.objects)
        return StoredBlobs(self.server, "", shelf=PostgresShelf(self.server, objects))

    @property
    def leases_at_home(self) -> LeasesAtHome:
        return self._at_home

    def elsewhere(self, run: str) -> bool:
        return self._at_home.elsewhere(run)

    def wait_for_work(self, seconds: float) -> None:
        from takeback.storage.postgres.waking import Waking

        with self.server.lock:
            self._waking = self._waking or Waking(self.server)
        self._waking.wait(seconds)

    def adopting(self, now: Callable[[], int]) -> PostgresJournal:
        return PostgresJournal(self.server, now)

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
    settings: Settings
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
    return _Found(id, kept_in, settings_from(settings, told), read_only, retired)


def _begin_copying(connection: Any, address: Address, filling: str, copying: str) -> None:
    if filling:
        from takeback.storage.store import unfinished

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
    from takeback.storage.postgres.objects import check_place

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
