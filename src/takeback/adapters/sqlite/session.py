"""A connection to a SQLite file, held by a process of its own, on which whatever is changed belongs to an effect."""

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from takeback.adapters.database import (
    OPEN,
    SECONDS,
    Reviewed,
    RowChange,
    Rows,
    first_words,
    most_of,
    summary,
)
from takeback.adapters.sqlite.process import Gone, SqliteChild
from takeback.adapters.sqlite.wire import Tell, silently
from takeback.errors import InDoubt, Misuse, ResourceUnreachable
from takeback.model.database import Database
from takeback.model.effect import Effect
from takeback.model.resource import quote

# Which file an address means: `sqlite:///relative.db`, `sqlite:////absolute.db`.


_START = "sqlite:///"
_QUOTED = re.compile(rb"%([0-9A-Fa-f]{2})")


def resolved(database: Database) -> Database:
    """By the absolute path, links followed: two ways to one file are one database."""
    return database._replace(url=_START + quote(os.fsencode(os.path.realpath(path_of(database)))))


def path_of(database: Database) -> str:
    scheme, _, rest = database.url.partition("://")
    rest, _, query = rest.partition("?")
    path = rest[1:]
    if scheme.lower().partition("+")[0] != "sqlite" or not rest.startswith("/"):
        raise Misuse(
            f"{database.url!r} names no file.",
            hint="sqlite:///app.db is a file in this directory, sqlite:////srv/app.db an absolute path.",
        )
    if not path or path.startswith(":memory:"):
        raise Misuse(
            "Changes to a SQLite database in memory cannot be undone: it ends with its process.",
            hint="Name a file: sqlite:///app.db.",
        )
    if query:
        raise Misuse(f"Unknown options in a SQLite address: {query}.", hint="Name the file alone.")
    return os.fsdecode(_QUOTED.sub(lambda found: bytes.fromhex(found[1].decode()), os.fsencode(path)))


_WRITES = frozenset(("INSERT", "UPDATE", "DELETE", "REPLACE", "CREATE", "DROP", "ALTER"))
_PAGE = 1000  # rows
_LOST = "The process that works on the database ended."


class SqliteDesk:
    """Asks one child about one file; starts it when it is needed, and again when it is gone."""

    def __init__(self, path: str, patience: int = SECONDS, tell: Tell = silently) -> None:
        """`patience`: seconds to wait for a transaction of others; 0: no limit. `tell` reports whom it waits for."""
        self.path: str = path
        self._patience = patience
        self._tell = tell
        self._child: SqliteChild | None = None
        self._is_open = False

    def ask(self, what: str, *given: Any) -> Any:
        child = self._child
        if child is None or not child.usable:
            child, self._is_open = SqliteChild(), False
            self._child = child
        try:
            if not self._is_open:
                child.ask("open", self.path, self._patience, tell=self._tell)
                self._is_open = True
            return child.ask(what, *given, tell=self._tell)
        except Gone:
            self._is_open = False
            raise
        except BaseException:
            self._is_open = self._is_open and child.usable
            raise

    def turn_to(self, path: str) -> None:
        """Another file, with the same process."""
        if path != self.path:
            self.path = path
            self._is_open = False

    @property
    def is_alive(self) -> bool:
        return self._is_open and self._child is not None and self._child.usable

    @property
    def pid(self) -> int:
        return self._child.pid if self._child is not None else 0

    def close_file(self) -> None:
        """The process stays: the next question is answered sooner."""
        if self.is_alive:
            with suppress(Gone):  # it died, and with it every file it had open
                self.ask("close")
        self._is_open = False

    def end(self) -> None:
        if self._child is not None:
            self._child.end()
        self._child, self._is_open = None, False


Sessions = dict[str, "SqliteSession"]


class SqliteSession:
    answers: tuple[Rows, ...] = ()

    def __init__(
        self, database: Database, held: Sessions, committed: Sessions, patience: int, tell: Tell
    ) -> None:
        """Of every session of the adapter: `held` by effect, `committed` the last of each."""
        self.database = database
        self._all_held = held
        self._all_committed = committed
        self._id = ""  # of the effect
        self._begins: tuple[str, int] | None = None  # with its first statement
        self._thread = 0  # in which it was committed
        self._desk = SqliteDesk(path_of(database), patience, tell)
        self._asked("cover")  # it can be opened and read, or this says why not

    def summary(self, statement: str, parameters: Any) -> str:
        return summary(statement)

    def read(self, statement: str, parameters: Any) -> Rows | None:
        if first_words(statement) in _WRITES:
            return None
        found = self._asked("read", statement, bindings(parameters))
        return _rows(found) if found is not None else None

    def begin(self, effect: Effect) -> None:
        if not os.access(self._desk.path, os.W_OK):
            raise ResourceUnreachable(
                f"{self._desk.path} cannot be written.", hint="Nothing was changed. Check its rights."
            )
        self._all_committed.pop(self._id, None)
        self._begins = effect.id, most_of(effect)
        self._id = effect.id

    def execute(self, statement: str, parameters: Any, many: bool = False) -> Rows:
        given = [bindings(one) for one in parameters] if many else bindings(parameters)
        begins, self._begins = self._begins, None
        if begins is not None:
            return _rows(self._asked("begin_with", *begins, statement, given, many))
        return _rows(self._asked("execute", statement, given, many))

    def commit(self) -> dict[str, Any] | None:
        if self._begins is not None:
            self._begins = None
            return None
        receipt = self._committed("commit")
        self._thread = threading.get_ident()
        self._all_committed[self._id] = self
        return receipt

    def reread(self, id: str) -> tuple[bool, dict[str, Any]] | None:
        """Of what was committed here last, as another connection of the same process finds it. None: ask elsewhere."""
        if self._thread != threading.get_ident() or not self._desk.is_alive:
            return None
        return self._asked("reread", id)

    def rollback(self) -> None:
        self._begins = None
        if self._desk.is_alive:
            self._asked("rollback")

    def close(self) -> None:
        self._all_held.pop(self._id, None)
        self._all_committed.pop(self._id, None)
        self._desk.end()

    # -- Reviewing

    def review(self) -> Reviewed:
        if self._begins is not None:
            self._begins = None
            return Reviewed(None, (), OPEN)
        receipt = self._asked("review")
        return Reviewed(receipt, changes(self._asked, self._id) if receipt is not None else (), OPEN)

    def hold(self, effect: Effect, seconds: float) -> None:
        """Only this process can: when it ends, or after so many seconds, it is rolled back."""
        self._asked("hold", effect.id, seconds)
        self._all_held[effect.id] = self

    @property
    def pid(self) -> int:
        """Of the process that has the locks."""
        return self._desk.pid

    def holds(self, id: str) -> bool:
        return self._desk.is_alive and bool(self._asked("holds", id))

    def keep(self, id: str) -> bool:
        return self._desk.is_alive and bool(self._committed("keep", id))

    def drop(self, id: str) -> None:
        if self._desk.is_alive:
            self._asked("drop", id)

    def _committed(self, what: str, *given: Any) -> Any:
        try:
            return self._desk.ask(what, *given)
        except Gone:
            raise InDoubt(
                f"{_LOST} Whether it had committed is not known.", hint="The file is asked."
            ) from None

    def _asked(self, what: str, *given: Any) -> Any:
        try:
            return self._desk.ask(what, *given)
        except Gone:
            raise ResourceUnreachable(f"{_LOST} Nothing was changed.", hint="Try again.") from None


def changes(ask: Callable[..., Any], effect: str) -> Iterator[RowChange]:
    """Rows of an effect, as the process sends them."""
    after = 0
    while found := ask("rows", effect, after, _PAGE):
        yield from (RowChange(*row[1:]) for row in found)
        after = found[-1][0]


def _rows(found: Any) -> Rows:
    rows, columns, count = found
    return Rows(tuple(rows), tuple(columns), count)


def bindings(given: Any) -> Any:
    """A tuple, or a dict by name, of what SQLite knows."""
    if given is None:
        return ()
    if isinstance(given, dict):
        return {str(name): _value(value) for name, value in given.items()}  # pyright: ignore
    if isinstance(given, (str, bytes)):
        raise Misuse("Parameters are a list or a dict.", hint="For one parameter: [value].")
    return tuple(_value(value) for value in given)


def _value(value: Any) -> Any:
    if value is None or isinstance(value, (int, float, str, bytes)):
        return int(value) if isinstance(value, bool) else value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)  # pyright: ignore[reportUnknownArgumentType]
    if hasattr(value, "isoformat"):  # dates and times, as the sqlite3 of Python writes them
        try:
            return str(value.isoformat(" "))
        except TypeError:
            return str(value.isoformat())
    raise Misuse(
        f"SQLite knows no values of type {type(value).__name__}.", hint="Give None, a number, text or bytes."
    )
