"""One connection to `journal.db`: durable transactions, one at a time, and errors in our own words."""

import os
import sqlite3
from _thread import RLock  # the same lock as threading.RLock, without two milliseconds of start-up
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from takeback.errors import ResourceUnreachable, StoreBusy, TakebackError
from takeback.storage import disk, tables
from takeback.storage.owners import lock_holders
from takeback.storage.sqlite.older_format import OlderFormat, is_old

Row = tuple[Any, ...]

BUSY_SECONDS = 10
# In this order: the first sets what must be set before any table.
SCHEMAS = ("blobs.sql", "journal.sql", "projects.sql")


class SqliteDatabase:
    """Thread-safe: a transaction holds the lock from begin to commit; a read holds it while it fetches."""

    def __init__(
        self, path: str, older: OlderFormat | None = None, *, read_only: bool = False, full: bool = False
    ) -> None:
        """`older`: how older tables are read and rewritten. `full`: nothing can be made beside it; then it is
        only read, while no other process uses it."""
        self.path = path
        read_only = read_only or full
        self._full = full
        self.read_only = read_only
        self.lock = RLock()
        # What others hold back until the next commit (blobs put but not yet written) is written first, inside it.
        self.before_commit: list[Callable[[sqlite3.Connection], None]] = []
        self.after_rollback: list[Callable[[], None]] = []
        self.after_write: list[Callable[[], None]] = []
        self.pending: list[Callable[[], bool]] = []  # whether they hold something back
        self.on_io_error: Callable[[], None] = lambda: None
        self._process = os.getpid()
        self._depth = 0
        self._first_older = older
        self._older = older  # None: the tables are those of today
        self._file: sqlite3.Connection | None = None  # while a copy in memory is read instead
        self._seen = 0  # of the file, when it was copied: another number, when anyone else has changed it
        self._failed = False  # the disk has lost, or may have lost, something that was written
        self._connection = self._connect()

    def _connect(self) -> sqlite3.Connection:
        uri = "file:" + "".join(c if c not in "?#%" else f"%{ord(c):02x}" for c in self.path)
        with self._translated():
            connection = sqlite3.connect(
                uri + (self._only_looking() if self.read_only else ""),
                uri=True,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                self._set_up(connection)
                self._older = self._older if is_old(connection) else None
                if self._older:
                    self._older.show(connection)
            except sqlite3.Error:
                connection.close()
                raise
            return connection

    def _set_up(self, connection: sqlite3.Connection) -> None:
        if self._full:
            # Alone, SQLite keeps its index of the write-ahead file in memory.
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA query_only=1")
        if not self.read_only:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            # Each new effect is looked for by its id and its key, anywhere in two indexes.
            connection.execute("PRAGMA cache_size=-16000")

    def _only_looking(self) -> str:
        """Where nothing can be written SQLite cannot make its index of the write-ahead file either; if that file is
        empty, it needs none. A store on a full disk is read exclusively."""
        try:
            settled = os.stat(self.path + "-wal").st_size == 0
        except FileNotFoundError:
            settled = True
        return "?mode=ro&immutable=1" if settled else "" if self._full else "?mode=ro"

    def write(self, durable: bool = True, alone: bool = False) -> "_Transaction":
        """All of it or none of it; durable when the block is left. Inner blocks join the outer transaction. Data that
        can be derived again need not be `durable`: it becomes so with the next durable transaction. `alone`: at most
        one statement of the block writes, and nothing is held back, so that statement is the whole transaction."""
        return _Transaction(self, durable, alone)

    def enter(self, durable: bool, alone: bool) -> tuple[sqlite3.Connection, bool]:
        """Also whether a transaction was begun, which has to be left."""
        if os.getpid() != self._process:
            raise tables.forked()
        if self._depth:
            return self._connection, False
        if self._failed:
            raise ResourceUnreachable(
                "The disk under the store failed, so this process writes nothing more to the store.",
                hint="Check the disk, then run `takeback verify --read-data`.",
            )
        if durable and self.read_only:
            # A copy in memory would take it, and lose it.
            raise self._unwritable("it is open for reading only")
        if durable and (limited := disk.limited(self.path)):
            raise limited
        if durable and self._file:
            self._leave_copy()
        if self._older and not self._file:
            self._older.upgrade(self._connection)
            self._older = None
        if not durable:
            self._connection.execute("PRAGMA synchronous=NORMAL")
        try:
            if not alone:
                self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error:
            self._left(durable)
            raise
        self._depth = 1
        return self._connection, True

    def commit(self, durable: bool) -> None:
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")
        self._depth = 0
        if not durable:
            self._connection.execute("PRAGMA synchronous=FULL")

    def roll_back(self, durable: bool) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            for forget in self.after_rollback if durable else ():
                forget()
        finally:
            self._left(durable)

    def withdraw(self, failed: BaseException) -> None:
        """A commit whose sync failed stays in the write-ahead file, and the next process would find it there. A commit
        reported as failed must not appear later: another frame overwrites it, if the disk still takes one."""
        if getattr(failed, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_IOERR:
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA synchronous=OFF")
                self._connection.execute("BEGIN IMMEDIATE")
                for step in (1, -1):  # SQLite writes no page whose content stays as it is
                    self._connection.execute(
                        f"UPDATE tally SET amount = amount + {step} WHERE name = 'listed'"
                    )
                self._connection.execute("COMMIT")
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._connection.execute("PRAGMA synchronous=FULL")

    def _left(self, durable: bool) -> None:
        self._depth = 0
        if not durable:
            self._connection.execute("PRAGMA synchronous=FULL")

    def told(self, error: sqlite3.Error) -> TakebackError:
        """The write-ahead file has room for what comes next when all that is in it has gone where it belongs: so a
        small record may fit after all when it is tried again."""
        if not self._depth and getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return self._in_our_words(error)

    def read(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> list[Row]:
        with self.lock:
            if os.getpid() != self._process:
                raise tables.forked()
            try:
                if self._file and self._file.execute("PRAGMA data_version").fetchone()[0] != self._seen:
                    self._leave_copy()
                try:
                    return self._connection.execute(sql, values).fetchall()
                except sqlite3.OperationalError as error:
                    if hasattr(error, "sqlite_errorcode"):
                        raise  # SQLite refused it; text that does not decode has no number, Python found it
                return damaged_too(self._connection, sql, values)
            except sqlite3.Error as error:
                if self._was_upgraded():
                    return self.read(sql, values)
                raise self._in_our_words(error) from error

    def _was_upgraded(self) -> bool:
        """Whether another process rewrote older tables since they were opened."""
        with self._translated():
            if self._older is None or self._file or is_old(self._connection):
                return False
            self._older.hide(self._connection)
        self._older = None
        return True

    def script(self, sql: str) -> None:
        with self.lock, self._translated():
            self._connection.executescript(sql)

    @property
    def only_read(self) -> bool:
        """Whether what could be made again must not be written into the file: it is read-only, or of format 1, which
        nothing but a change may upgrade."""
        return self.read_only or self.is_older

    @property
    def is_older(self) -> bool:
        """Whether the tables are those of an older format."""
        return self._older is not None and not self._file

    def rewrite(self) -> None:
        """Rewrite every page without what was deleted, and empty the write-ahead file."""
        with self.lock, self._translated():
            self._connection.execute("PRAGMA secure_delete=ON")
            self._connection.execute("VACUUM")
        self.fold_in()

    def _leave_copy(self) -> None:
        if self._file:
            self._connection.close()
            self._connection, self._file = self._file, None

    def copy_into_memory(self) -> None:
        """Read an unwritable store from a copy in memory, until it is written again, by us or another process."""
        with self.lock, self._translated():
            copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            self._connection.backup(copy)
            if self._older:
                self._older.rewrite(copy)
            if self._older and not self.read_only:
                self._seen = self._connection.execute("PRAGMA data_version").fetchone()[0]
                self._file = self._connection
            else:
                self._older = None
                self._connection.close()
            self._connection = copy

    def shrink(self) -> None:
        """Return free pages. Optional: it gives way to other writers."""
        self.read("PRAGMA busy_timeout = 250")
        try:
            free = self.read("PRAGMA freelist_count")[0][0]
            while free:
                self.read("PRAGMA incremental_vacuum(1000)")
                left = self.read("PRAGMA freelist_count")[0][0]
                if left >= free:
                    break
                free = left
            self.read("PRAGMA wal_checkpoint(TRUNCATE)")
        except StoreBusy:
            pass
        finally:
            self.read(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")

    def read_anew(self) -> None:
        """After the disk failed: by a new connection, which believes only what is on disk and has its checksum."""
        with self.lock:
            if self._failed and not self._depth and os.getpid() == self._process:
                self._leave_copy()
                self._connection.close()
                self._connection = self._connect()
                self._failed = False

    def open_again(self) -> None:
        """For writing, after it was opened on a full disk and room was made."""
        with self.lock:
            if self._full:
                self._connection.close()
                self._full = self.read_only = False
                self._older = self._first_older
                self._connection = self._connect()

    def fold_in(self) -> None:
        """Write everything in the write-ahead file to the database file, and sync that."""
        with self.lock:
            self._leave_copy()
        busy, _, _ = self.read("PRAGMA wal_checkpoint(TRUNCATE)")[0]
        if busy:
            raise StoreBusy(
                "Another process is working on the store.", hint="Try again when no other process uses it."
            )

    def close(self) -> None:
        with self.lock:
            if os.getpid() == self._process:
                self._leave_copy()
                self._connection.close()

    @contextmanager
    def _translated(self) -> Generator[None, None, None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._in_our_words(error) from error

    def _in_our_words(self, error: sqlite3.Error) -> TakebackError:
        if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
            return tables.closed()
        if str(error) == tables.SAID:
            return tables.refused()
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return _busy(self.path)
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return tables.damaged(f"{error}.")
        if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL):
            # A full disk stays sound; one that fails may have lost what it said it had written.
            if code == sqlite3.SQLITE_FULL or (_of_index(error) and disk.is_full(os.path.dirname(self.path))):
                return disk.full(os.path.dirname(self.path))
            if _of_index(error) and (limited := disk.limited(self.path)):
                return limited
            if code == sqlite3.SQLITE_IOERR:
                # The kernel may drop the pages that it could not write, and the next sync says yes without them.
                self._failed = True
                self.on_io_error()
            return ResourceUnreachable(
                f"The store could not be written: {error}.",
                hint="Check free space and the disk, then run `takeback verify`.",
            )
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return self._unwritable(str(error))
        return tables.refused_record(f"{error}.")

    def _unwritable(self, why: str) -> ResourceUnreachable:
        place = os.path.dirname(self.path)
        if self._full:
            return disk.full(place)
        return ResourceUnreachable(
            f"The store at {place} cannot be written: {why}.",
            hint="Check that it exists and belongs to you, or choose another with --store.",
        )


def _busy(path: str) -> StoreBusy:
    by = lock_holders((path, f"{path}-shm"))
    if not by:
        return tables.busy()
    return StoreBusy(
        f"The store has been locked for {BUSY_SECONDS} seconds by {by[0]}.",
        hint="Try again when it is done. A stopped process continues after `kill -CONT PID`.",
    )


def schema(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), "schema", name), encoding="utf-8") as file:
        return file.read()


def _of_index(error: sqlite3.Error) -> bool:
    """Of the index of the write-ahead file, which is never more than a copy; this error has no code for "full"."""
    codes = sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP
    return error.sqlite_errorcode in codes


def _text(raw: bytes) -> str:
    """A damaged row must stay readable: its hash shows the damage, and the other rows stay usable."""
    return raw.decode("utf-8", "surrogateescape")


def damaged_too(
    connection: sqlite3.Connection, sql: str, values: Sequence[Any] | dict[str, Any] = ()
) -> list[Row]:
    """Rows with text that may be damaged. Elsewhere that is an error, which saves a call for each text."""
    usual, connection.text_factory = connection.text_factory, _text
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.text_factory = usual


class _Transaction:
    """One block. A class, because a generator as context manager takes as long again as SQLite does to begin."""

    __slots__ = ("_alone", "_database", "_durable", "_outermost")

    def __init__(self, database: SqliteDatabase, durable: bool, alone: bool) -> None:
        self._database = database
        self._durable = durable
        self._alone = alone
        self._outermost = False

    def __enter__(self) -> sqlite3.Connection:
        database = self._database
        database.lock.acquire()
        try:
            connection, self._outermost = database.enter(self._durable, self._alone)
            if self._outermost and self._durable and not self._alone:
                for flush in database.before_commit:
                    flush(connection)
            return connection
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        database = self._database
        try:
            if self._outermost:
                try:
                    if error is None:
                        database.commit(self._durable)
                        return
                except BaseException as failed:
                    database.roll_back(self._durable)
                    database.withdraw(failed)
                    raise
                database.roll_back(self._durable)
                if self._alone:
                    database.withdraw(error)
            if isinstance(error, sqlite3.Error):
                raise database.told(error) from error
        except sqlite3.Error as failed:
            raise database.told(failed) from failed
        finally:
            database.lock.release()
            if self._outermost:
                for tell in database.after_write:
                    tell()
