"""One database file as this process has it open: the connection, what its tables look like, the log in it, and a second
connection that sees it as it was before the transaction."""

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from takeback.adapters.sqlite.child import driver
from takeback.adapters.sqlite.child.driver import Cursor, Patience, SqliteConnection, Watchman
from takeback.adapters.sqlite.child.log import Log, SqliteOp
from takeback.adapters.sqlite.child.shapes import SqliteShape, shapes
from takeback.errors import NoRemedy, ResourceUnreachable, RowsHeld, TakebackError

_KNOWN = 1000  # statements
HAS_COUNTERS = "SELECT 1 FROM main.sqlite_schema WHERE name = 'sqlite_sequence'"
COUNTERS = "SELECT name, seq FROM main.sqlite_sequence"
_HAS_MOVED = apsw.SQLITE_FCNTL_HAS_MOVED


class OpenFile:
    def __init__(self, path: str, patience: Patience) -> None:
        self.path = path
        self._patience = patience
        self._moved = array("i", [0])
        self._moved_at = self._moved.buffer_info()[0]
        self.watchman = Watchman()
        self.connection = driver.connection(path)
        self.connection.set_busy_handler(patience)
        self.connection.set_authorizer(self.watchman)
        # For what answers no rows; one for each statement takes its time.
        self.cursor = self.connection.cursor()
        self.shapes: dict[str, SqliteShape] = {}
        self.has_virtual = False
        self.links: tuple[Any, ...] | None = None  # foreign keys; None: not looked for yet
        self._reading: dict[str, str] = {}
        self.counts_rows = False  # there is a table with AUTOINCREMENT
        self._version = -1
        self._data = -1  # what SQLite counts when it sees that the file was changed
        self.harmless: set[str] = set()  # statements that only change rows, found so by asking
        self._before: SqliteConnection | None = None
        self._witness: tuple[SqliteConnection, Log] | None = None
        with self.as_ours():
            self.log = Log(self.connection)

    @property
    def is_replaced(self) -> bool:
        """Another file has come to its place: what is open is not what its name means any more."""
        self.connection.file_control("main", _HAS_MOVED, self._moved_at)
        return bool(self._moved[0])

    @contextmanager
    def as_ours(self) -> Iterator[None]:
        """Statements prepared in here are not checked by the authorizer."""
        self.watchman.ours += 1
        try:
            yield
        finally:
            self.watchman.ours -= 1

    def ours(self, statement: str, parameters: Any = None) -> Cursor:
        self.watchman.ours += 1
        try:
            return self.connection.execute(statement, parameters)
        finally:
            self.watchman.ours -= 1

    @contextmanager
    def understood(self) -> Iterator[None]:
        """What SQLite says, as an error of ours."""
        try:
            yield
        except apsw.Error as error:
            raise driver.said(error, self.path) from None

    def trouble(self, error: apsw.Error) -> TakebackError:
        """The same of a statement of the user, which may have been refused by us."""
        refusal = self.watchman.refusal
        return refusal if refusal and isinstance(error, apsw.AuthError) else driver.said(error, self.path)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction of our own statements; rolled back at the end unless it was committed."""
        self.begin()
        try:
            with self.understood(), self.as_ours():
                yield
        finally:
            self.rollback()

    def begin(self) -> None:
        """From here on no one else can change the file."""
        watchman = self.watchman
        watchman.ours += 1
        try:
            self.cursor.execute("BEGIN IMMEDIATE")
        except apsw.BusyError as error:
            said = driver.said(error, self.path, self._patience.holder)
            raise RowsHeld(str(said), hint=said.hint) from None
        except apsw.Error as error:
            raise driver.said(error, self.path) from None
        finally:
            watchman.ours -= 1
        if self.connection.data_version() == self._data:
            return  # no one has written since we did
        try:
            self.log.forget_numbers()
            self.look()
        except BaseException:
            self.rollback()
            raise

    def look(self) -> None:
        """Read the schema again if it was changed."""
        version = self.version()
        if version == self._version:
            return
        self.harmless.clear()
        with self.as_ours():
            self.shapes = shapes(self.connection)
            self._reading.clear()
            self.links = None
            self.log.fresh()
            self.counts_rows = self.ours(HAS_COUNTERS).fetchone() is not None
            self.has_virtual = any(shape.virtual for shape in self.shapes.values())
            self._version = version
            if any(shape.unseen for shape in self.shapes.values()):
                self.keep_before_readable()

    def know(self, statement: str) -> None:
        if len(self.harmless) >= _KNOWN:
            self.harmless.clear()
        self.harmless.add(statement)

    def version(self) -> int:
        """Counts changes of the schema, and VACUUM, which gives rows without a key other rowids."""
        return self.ours("PRAGMA schema_version").get

    def sequence(self) -> dict[str, Any]:
        """The counters of AUTOINCREMENT."""
        # The first of them may have come with this transaction.
        if self.counts_rows or (self.watchman.schema and self.ours(HAS_COUNTERS).fetchone()):
            return dict(self.ours(COUNTERS).fetchall())
        return {}

    def op(self, id: str) -> SqliteOp | None:
        with self.understood():
            self.look()
            with self.as_ours():
                return self.log.op(id)

    def keep_before_readable(self) -> None:
        """With a rollback journal, others cannot read any more once changed pages reach the file before the commit."""
        self.ours("PRAGMA cache_spill = 0")

    @property
    def as_before(self) -> SqliteConnection:
        """A connection that sees the committed rows: those from before the transaction, because only we may write
        now."""
        if self._before is None:
            self._before = driver.connection(self.path, reading=True)
        return self._before

    @property
    def witness(self) -> Log:
        """The log as someone else reads it: through a connection that has written nothing."""
        if self._witness is None:
            connection = driver.connection(self.path, reading=True)
            self._witness = connection, Log(connection)
        return self._witness[1]

    def look_back(self, connection: SqliteConnection | None) -> None:
        """A connection that sees the earlier rows; None if they cannot be read any more."""
        if self._before is not None:
            self._before.close(True)
        self._before = connection

    def before(self, shape: SqliteShape, key: Any) -> tuple[Any, ...] | None:
        try:
            return self.as_before.execute(self.reading(shape), (key,)).fetchone()
        except apsw.BusyError:
            raise NoRemedy(
                f"The earlier rows of {shape.name} can no longer be read: the transaction is too large.",
                hint="Nothing was changed. Make it in smaller transactions, or switch the database to WAL.",
            ) from None

    def reading(self, shape: SqliteShape) -> str:
        """One row by its key."""
        if (statement := self._reading.get(shape.name)) is None:
            where = " AND ".join(f"{one} = ?" for one in shape.key_names)
            statement = f"SELECT {shape.selected} FROM main.{driver.quoted(shape.name)} WHERE {where}"
            self._reading[shape.name] = statement
        return statement

    def refuse_orphan(self, state: str = "Nothing was changed.") -> None:
        """The caller no longer gets the answer, and another process may already be looking for the outcome."""
        if not self._patience.has_parent():
            raise ResourceUnreachable("The process that asked for this has ended.", hint=state)

    def commit(self) -> None:
        if self._before is not None:
            self.look_back(None)  # a reader would keep us from committing
        watchman = self.watchman
        watchman.ours += 1
        try:
            self.cursor.execute("COMMIT")
        finally:
            watchman.ours -= 1
        if watchman.schema:
            self.ours("PRAGMA cache_spill = 1")
            self._data = -1
        else:
            self._data = self.connection.data_version()

    def rollback(self) -> None:
        if not self.connection.get_autocommit():
            self.ours("ROLLBACK")
        self.log.forget_numbers()
        self._version = self._data = -1

    def close(self) -> None:
        for one in (self._before, self._witness and self._witness[0], self.connection):
            if one is not None:
                one.close(True)
        self._before = self._witness = None
