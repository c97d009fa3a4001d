"""Connections to the store's database: one that writes, a few that read; each is opened again if it was lost."""

import os
import re
import time
from _thread import RLock, get_ident
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from takeback.errors import InDoubt, ServerUnreachable
from takeback.storage import tables
from takeback.storage.postgres.connection import Address, connect, driver, is_lost, translated

if TYPE_CHECKING:
    from psycopg import Connection

Row = tuple[Any, ...]

PATIENCE = 30.0  # seconds that a server may be away, for a process with something to record
_IDLE = 4  # connections kept for reading
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)


@cache
def in_their_marks(sql: str) -> str:
    """`?` and `?2` as SQLite has them become what the driver knows."""
    escaped = sql.replace("%", "%%")
    if not re.search(r"\?\d", escaped):
        return escaped.replace("?", "%s")
    return re.sub(r"\?(\d+)", r"%(p\1)s", escaped)


class StoreSession:
    """A connection that is spoken to as if it were SQLite's, so that both stores share their statements."""

    def __init__(self, connection: "Connection[Any]") -> None:
        self.connection = connection
        self.prepared: set[bytes] = set()

    @property
    def in_transaction(self) -> bool:
        # Active, in a transaction, in a failed one.
        return self.connection.info.transaction_status in (1, 2, 3)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        known = in_their_marks(sql)
        given: Any = {f"p{n}": one for n, one in enumerate(values, 1)} if "%(p1)s" in known else tuple(values)
        return self.connection.execute(known.encode(), given or None)

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> Any:
        cursor = self.connection.cursor()
        cursor.executemany(in_their_marks(sql).encode(), rows)
        return cursor


class PostgresDatabase:
    """Thread-safe. A writer holds the lock from begin to commit; readers have their own connections."""

    def __init__(self, address: Address, patience: float = PATIENCE) -> None:
        self.address = address
        self.read_only = False
        self.lock = RLock()
        # What others hold back until the next commit (blobs put but not yet written) is written first, inside it.
        self.before_commit: list[Callable[[Any], None]] = []
        self.after_rollback: list[Callable[[], None]] = []
        self.after_write: list[Callable[[], None]] = []
        self.pending: list[Callable[[], bool]] = []  # whether they hold something
        self.on_io_error: Callable[[], None] = lambda: None
        self.patience = patience
        self._process = os.getpid()
        self._closed = False
        self._writer: StoreSession | None = None
        self._writing = 0  # the thread that is in a transaction
        self._witness: tuple[int, bytes] | None = None  # a record that was appended in it, and its hash
        self._idle: list[StoreSession] = []
        self._in_vain_until = 0.0
        self._lent: list[StoreSession] = []

    # Reading.

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        if self.writing_here and self._writer:
            with self.understood():
                return self._rows(self._writer, sql, values)
        return self.ask(lambda session: self._rows(session, sql, values))

    def _rows(self, session: StoreSession, sql: str, values: Sequence[Any]) -> list[Row]:
        cursor = session.execute(sql, values)
        return cursor.fetchall() if cursor.description else []

    def ask(self, question: Callable[[StoreSession], Any]) -> Any:
        """Outside of any transaction of ours, and once more if the connection was cut: it must be safe to ask twice."""
        until = self._patient_until()
        while True:
            session, kept = self._borrowed(until)
            try:
                answer = question(session)
            except driver().Error as error:
                if not is_lost(error):
                    self._give_back(session)
                    raise translated(error) from error
                session.connection.close()
                if not kept and time.monotonic() >= until:
                    raise translated(error) from error
                continue
            except BaseException:
                session.connection.close()
                raise
            self._give_back(session)
            return answer

    def _borrowed(self, until: float, has_waited: bool = True) -> tuple[StoreSession, bool]:
        """And whether it was kept from before: such a one may have been cut long ago."""
        self._refuse_misuse()
        try:
            return self._idle.pop(), True  # atomic
        except IndexError:
            return self._connected(until, has_waited), False

    def _give_back(self, session: StoreSession) -> None:
        if len(self._idle) < _IDLE and not session.connection.closed and not self._closed:
            self._idle.append(session)
        else:
            session.connection.close()

    def another(self) -> StoreSession:
        """A connection for a caller that holds a lock; the caller closes it."""
        self._refuse_misuse()
        return self._connected(self._patient_until())

    def kept(self, until: float) -> StoreSession:
        """The same, which is closed with the store if they have not done so."""
        session, _ = self._borrowed(until, has_waited=False)
        self._lent = [one for one in self._lent if not one.connection.closed] + [session]
        return session

    def shrink(self) -> None:
        """The server does that by itself."""

    def _patient_until(self) -> float:
        """If the last wait for the server failed, try once without waiting: the end of a run, with several writes,
        would wait for each of them."""
        now = time.monotonic()
        return now if now < self._in_vain_until else now + self.patience

    def _connected(self, until: float, has_waited: bool = True) -> StoreSession:
        """Patiently: a server that is being restarted is back soon. Who `has_waited` until then spares others that."""
        pauses = iter(_PAUSES)
        while True:
            try:
                session = StoreSession(connect(self.address))
            except ServerUnreachable:
                pause = next(pauses, _PAUSES[-1])
                if (now := time.monotonic()) + pause >= until:
                    if has_waited:
                        self._in_vain_until = now + self.patience
                    raise
                time.sleep(pause)
            else:
                self._in_vain_until = 0.0
                return session

    # Writing.

    @property
    def plain(self) -> bool:
        """No transaction of ours is open and no write is pending: one statement is enough."""
        return not self._writing and not any(pending() for pending in self.pending)

    @property
    def writing_here(self) -> bool:
        """Whether this thread is in a transaction."""
        return self._writing == get_ident()

    @contextmanager
    def write(self) -> Generator[StoreSession, None, None]:
        """All of it or none of it; durable when the block is left. Inner blocks join the outer transaction. Other
        writers wait from the beginning, so nothing changes between the reads and the writes of the block."""
        try:
            with self.lock:
                self._refuse_misuse()
                if self._writing and self._writer:
                    with self.understood():
                        yield self._writer
                    return
                yield from self._transaction()
        finally:
            if self._writing != get_ident():
                for tell in self.after_write:
                    tell()

    def _transaction(self) -> Generator[StoreSession, None, None]:
        session = self._begun()
        self._writing, self._witness = get_ident(), None
        try:
            with self.understood():
                for flush in self.before_commit:
                    flush(session)
                yield session
            self._commit(session)
        except BaseException:
            self._roll_back(session)
            for forget in self.after_rollback:
                forget()
            raise
        finally:
            self._writing = 0

    def _begun(self) -> StoreSession:
        until = self._patient_until()
        while True:
            kept = self._writer is not None
            session = self._writer = self._writer or self._connected(until)
            try:
                session.connection.execute(b"begin; lock table turn in exclusive mode")
                return session
            except driver().Error as error:
                self._roll_back(session)
                if not is_lost(error) or (not kept and time.monotonic() >= until):
                    raise translated(error) from error

    def _roll_back(self, session: StoreSession) -> None:
        try:
            if session.in_transaction:
                session.connection.execute(b"rollback")
        except driver().Error:
            session.connection.close()
        if session.connection.closed and self._writer is session:
            self._writer = None

    def _commit(self, session: StoreSession) -> None:
        try:
            session.connection.execute(b"commit")
        except driver().Error as error:
            if not is_lost(error):
                raise translated(error) from error
            session.connection.close()
            self._writer = None
            if not self._witness or not self._was_taken(*self._witness):
                raise translated(error) from error

    def _was_taken(self, seq: int, hash: bytes) -> bool:
        """Whether the transaction with this append was committed. It has certainly ended then: it had the turn."""
        try:
            session = self._begun()
            sql = "SELECT 1 FROM records WHERE seq = ? AND hash = ?"
            found = session.execute(sql, (seq, hash)).fetchone()
            session.connection.execute(b"rollback")
        except (ServerUnreachable, driver().Error) as error:
            raise in_doubt() from error
        return found is not None

    def appended(self, seq: int, hash: bytes) -> None:
        """In the open transaction: the record to look for if the outcome of its commit is unknown."""
        self._witness = seq, hash

    def once(self, question: Callable[[StoreSession, bool], Any], run: str = "") -> Any:
        """One statement that writes, and that knows by its token whether it was carried out before: it runs again, with
        True, if the connection was lost and the outcome is unknown."""
        with self.lock:
            self._refuse_misuse()
            until = self._patient_until()
            again = False
            while True:
                try:
                    session = self._writer = self._writer or self._connected(until)
                except ServerUnreachable as error:
                    raise in_doubt() if again else error from None
                try:
                    return question(session, again)
                except driver().Error as error:
                    if session.connection.closed or is_lost(error):
                        session.connection.close()
                        self._writer = None
                    if not is_lost(error):
                        # A repeated call first learns whether the server took it before.
                        known = not again or (error.sqlstate or "")[:2] in ("TB", "23")
                        raise (translated(error, run) if known else in_doubt()) from error
                    if again and time.monotonic() >= until:
                        raise in_doubt() from error
                    again = True
                except BaseException:
                    # Interrupted in the middle: the answer to this must not be taken for that of the next.
                    session.connection.close()
                    self._writer = None
                    raise

    # The end.

    def close(self) -> None:
        if os.getpid() != self._process:
            return
        with self.lock:
            self._closed = True
            for session in (*self._idle, *self._lent, *([self._writer] if self._writer else [])):
                session.connection.close()
            self._idle, self._lent, self._writer = [], [], None

    def _refuse_misuse(self) -> None:
        if os.getpid() != self._process:
            raise tables.forked()
        if self._closed:
            raise tables.closed()

    @contextmanager
    def understood(self, run: str = "") -> Generator[None, None, None]:
        try:
            yield
        except driver().Error as error:
            raise translated(error, run) from error


def in_doubt() -> InDoubt:
    return InDoubt(
        "Lost the connection to the store during a commit; its outcome is unknown.",
        hint="When the server answers again, run `takeback recover` to find out.",
    )
