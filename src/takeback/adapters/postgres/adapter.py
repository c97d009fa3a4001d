"""Rows of PostgreSQL: changed by anybody's SQL, captured by the database itself, taken back one effect at a time."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from takeback.adapters.database import (
    NO_SOCKET,
    USUAL,
    Cover,
    DatabaseAdapter,
    GiveUp,
    Keyring,
    RowChange,
    Tell,
    Waiting,
    asked_for,
    database_of,
    found_with,
    nothing_to_give_up,
    quiet,
    sighted,
)
from takeback.adapters.postgres import markers, programs, transactions
from takeback.adapters.postgres.attachment import sweep, sweep_after_program
from takeback.adapters.postgres.connection import (
    Connection,
    by_socket,
    connect,
    opened,
    transaction,
    understood,
)
from takeback.adapters.postgres.dependents import standing_on
from takeback.adapters.postgres.guard import Guard
from takeback.adapters.postgres.install import VERSION, VERSION_SQL, adapt, installed
from takeback.adapters.postgres.markers import look_for_missing
from takeback.adapters.postgres.pool import PostgresLinks
from takeback.adapters.postgres.programs import enter, leave, sees_schema
from takeback.adapters.postgres.protection import cover, protect, unprotect
from takeback.adapters.postgres.row_report import effect_rows
from takeback.adapters.postgres.session import PostgresSession
from takeback.adapters.postgres.tables import SCHEMA
from takeback.adapters.postgres.transactions import KEEPER, happened, identity, refuse_another
from takeback.adapters.postgres.undo import as_planned, rehearse, reverse, take_back
from takeback.adapters.postgres.unwind import look
from takeback.adapters.protocol import TRAITS, Assessment, FoundChange, Receipt
from takeback.errors import Forgotten, Misuse, NoRemedy, ResourceUnreachable, Unavailable
from takeback.model.change import UNDO, Change, OnConflict
from takeback.model.database import Database, resource_of, target_of
from takeback.model.effect import Effect, State
from takeback.model.plan import Sighting
from takeback.model.remedy import Offer, Strategy
from takeback.storage.protocols import Blobs


class PostgresAdapter(DatabaseAdapter):
    name = "postgres"
    traits = TRAITS["postgres"]

    def __init__(self, blobs: Blobs, keyring: Keyring, waiting: Waiting = USUAL) -> None:
        self._blobs = blobs
        self._keyring = keyring
        self._waiting = waiting
        self._links = PostgresLinks(keyring, waiting)
        # By effect: sessions whose open transaction waits for a person.
        self._held: dict[str, PostgresSession] = {}
        self._guards: dict[str, Guard] = {}  # by effect: of programs that are at work
        self._tells: dict[str, Tell] = {}  # and who listens to what is found of them

    @contextmanager
    def _at(self, effect: Effect, what: str = "") -> Iterator[Connection]:
        """Where it was made; `what` begins the sentence of an error."""
        with understood(what), self._links.to(database_of(effect)) as connection:
            yield connection

    # -- a change and its way back

    def assess(self, change: Change, of: Effect | None = None) -> Assessment:
        if of is not None:
            database = database_of(of)
            with self._at(of) as connection:
                outcomes = as_planned(connection, database, of, change.undo.on_conflict)
            offer = Offer(Strategy.SNAPSHOT, why="the database keeps the rows as they are now")
            return Assessment((target_of(database, of.id),), (offer,), outcomes=outcomes)
        database = asked_for(change, None)
        with understood(), self._links.to(database) as connection:
            refuse_unprotected(connection, database)
        offer = Offer(Strategy.SNAPSHOT, why="the database keeps the rows as they were")
        return Assessment((change.resource,), (offer,))

    def apply(self, effect: Effect) -> Receipt:
        if effect.change.kind == UNDO:
            with self._at(effect, effect.change.summary) as connection:
                return Receipt(take_back(connection, effect))
        if effect.phase.reviewed is not None:
            return self._keep(effect)
        raise Misuse("The statements of this effect are not kept, so it cannot be made again.")

    def _keep(self, effect: Effect) -> Receipt:
        """Commit what waits for a person."""
        if session := self._held.get(effect.id):
            session.keep(effect.id)
        else:
            with self._at(effect, effect.change.summary) as connection:
                transactions.keep(connection, effect.id)
        assert effect.phase.reviewed
        return Receipt(effect.phase.reviewed.receipt)

    def verify(self, effect: Effect) -> Sighting:
        with self._at(effect) as connection:
            waits = effect.phase.reviewed is not None and self._waits(connection, effect.id)
            receipt = None if waits else happened(connection, effect.id)
        return sighted(effect, receipt, waits)

    def _waits(self, connection: Connection, effect: str) -> bool:
        session = self._held.get(effect)
        return bool(session and session.holds(connection)) or transactions.prepared(connection, effect)

    def _drop(self, effect: Effect) -> None:
        """Roll back what waits for a person."""
        if session := self._held.get(effect.id):
            session.rollback()
            return
        with self._at(effect) as connection:
            transactions.drop(connection, effect.id)

    def undo(self, effect: Effect) -> None:
        if effect.phase.reviewed is not None:
            self._drop(effect)
        with self._at(effect, effect.change.summary) as connection:
            if installed(connection):
                reverse(connection, effect)
                sweep(connection)

    def rehearse(self, effect: Effect) -> str:
        with self._at(effect) as connection:
            return f"in a transaction that was rolled back: {rehearse(connection, effect)}"

    def tidy(self, effect: Effect) -> None:
        if effect.phase.reviewed is not None and effect.state is State.PROPOSED:
            self._drop(effect)
        elif effect.state is State.INTENDED and effect.change.kind != UNDO:
            # A process that was killed in the middle of it left triggers attached. An undo looks for them by itself.
            with suppress(Unavailable, Misuse), self._at(effect) as connection:
                sweep(connection)

    def release(self, effect: Effect) -> None:
        with self._at(effect) as connection:
            if not installed(connection):
                return
            with transaction(connection):
                op = markers.find(connection, effect.id, lock=True)
                if op is not None and not op.forgotten:
                    markers.erase_images(connection, op)
                    connection.run("update takeback.op set forgotten = true where no = %s", [op.no])

    # -- databases

    def connect(self, database: Database) -> PostgresSession:
        connection, found = self._connected(database)
        return PostgresSession(connection, found, lambda: self._connected(found)[0], self._held)

    def _connected(self, database: Database) -> tuple[Connection, Database]:
        with understood():
            connection = connect(self._keyring.url(database), self._waiting)
            try:
                found = database._replace(identity=identity(connection))
                refuse_another(found.identity, database)
                refuse_unprotected(connection, database)
                adapt(connection)
            except BaseException:
                connection.close()
                raise
        return connection, found

    def standing_on(self, effect: Effect) -> Sequence[str]:
        with self._at(effect) as connection:
            programs.refuse_guest(connection)
            connection.run("begin")
            op = markers.find(connection, effect.id)
            if op is None or op.forgotten:
                return ()
            return standing_on(connection, look(connection, op, OnConflict.REFUSE))

    def rows(self, effect: Effect) -> Iterator[RowChange]:
        with self._at(effect) as connection:
            programs.is_guest(connection)
            connection.run("begin")
            op = markers.find(connection, effect.id)
            if op is None:
                return
            if op.forgotten:
                raise Forgotten(
                    "The rows of this effect were given up.",
                    hint="`takeback show` says how many there were.",
                    effect=effect.id,
                )
            look_for_missing(connection, op)
            yield from effect_rows(connection, op.source, op.logs, op.turned, op.wide)

    def enter(self, effect: Effect, tell: Tell = quiet) -> Mapping[str, str]:
        database = database_of(effect)
        url = self._keyring.url(database)
        with understood(), self._links.to(database) as connection:
            guard = Guard(url, effect.id, tell, self._waiting)
            try:
                guard.attach()
                found = enter(connection, effect, database, url, os.environ.get("PGOPTIONS", ""))
                guard.start(found["PGAPPNAME"], tables=not sees_schema(connection))
            except BaseException:
                guard.stop()
                raise
            self._tells[effect.id] = tell
            self._guards[effect.id] = guard
        return found

    def out_of_reach(self, database: Database) -> str:
        return NO_SOCKET if by_socket(database.url) else ""

    def leave(self, effect: Effect) -> dict[str, Any] | None:
        if guard := self._guards.pop(effect.id, None):
            guard.stop()
        with self._at(effect) as connection:
            receipt = leave(connection, effect, self._tells.pop(effect.id, quiet))
            sweep_after_program(connection)
        return receipt

    def found(self, effect: Effect, others: Sequence[Effect]) -> FoundChange | None:
        """Of a program whose watcher died."""
        return found_with(effect, self.leave(effect))

    @contextmanager
    def _opened(self, database: Database) -> Iterator[Connection]:
        with understood(), opened(self._keyring.url(database), self._waiting) as connection:
            yield connection

    def cover(self, database: Database) -> Cover:
        with self._opened(database) as connection:
            return cover(connection)

    def protect(self, database: Database, tables: Sequence[str], always: bool | None = None) -> Cover:
        with self._opened(database) as connection:
            protect(connection, tables, always)
            return cover(connection)

    def attach_when(self, database: Database, tables: Sequence[str], always: bool) -> Cover:
        return self.protect(database, tables, always)

    def unprotect(
        self, database: Database, tables: Sequence[str], give_up: GiveUp = nothing_to_give_up
    ) -> Cover:
        with self._opened(database) as connection:
            unprotect(connection, tables, give_up)
            return cover(connection)

    def lost_by_unprotect(
        self, database: Database, tables: Sequence[str], effects: Sequence[Effect]
    ) -> Sequence[Effect]:
        """Without the triggers of single tables the log stays."""
        if tables:
            return ()
        with self._opened(database) as connection:
            found = connection.ask("select id from takeback.op") if installed(connection) else None
        if found is None:  # it is gone already: someone else removed it, or was killed on the way
            return [one for one in effects if resource_of(database_of(one)) == resource_of(database)]
        known = {id for (id,) in found}
        return [one for one in effects if one.id in known]

    def close(self) -> None:
        self._links.close()


def refuse_unprotected(connection: Connection, database: Database) -> None:
    standby, read_only, protected, version, keeper = connection.ask(
        "select pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on', "
        f"to_regnamespace('{SCHEMA}') is not null, {VERSION_SQL}, {KEEPER}"
    )[0]
    if standby or read_only:
        raise ResourceUnreachable(
            f"{resource_of(database)} takes no changes: it is {'a replica' if standby else 'set to read only'}.",
            hint="Give the address of the server that does.",
        )
    if not protected:
        raise NoRemedy(
            f"{resource_of(database)} is not protected, so changes there could not be undone.",
            hint=f"Run `takeback sql protect {database.source or database.url}` first.",
        )
    if (version or 1) < VERSION and not keeper:  # the first change by a role that may update it does so
        raise NoRemedy(
            f"{resource_of(database)} was protected by an older takeback, which captures less than this one.",
            hint="Let the owner run `takeback sql protect` again, or make any change; what was captured so far stays.",
        )
