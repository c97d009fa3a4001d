"""A connection to the file, by apsw: what statements of others may do on it, how long it waits for a lock."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Protocol

import apsw

from takeback.adapters.sqlite.wire import Tell
from takeback.errors import Refused, ResourceUnreachable, StatementFailed, StoreBusy, TakebackError


class Cursor(Protocol):
    exec_trace: Any
    is_readonly: bool
    is_explain: int
    get: Any

    def execute(self, statements: str, bindings: Any = None, *, can_cache: bool = True) -> "Cursor": ...
    def executemany(
        self, statements: str, sequenceofbindings: Iterable[Any], *, can_cache: bool = True
    ) -> "Cursor": ...
    def get_description(self) -> tuple[tuple[str, str], ...]: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def close(self, force: bool = False) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...


class SqliteConnection(Protocol):
    def execute(self, statements: str, bindings: Any = None, *, can_cache: bool = True) -> Cursor: ...
    def executemany(self, statements: str, sequenceofbindings: Iterable[Any]) -> Cursor: ...
    def cursor(self) -> Cursor: ...
    def pragma(self, name: str, value: Any = None) -> Any: ...
    def changes(self) -> int: ...
    def data_version(self) -> int: ...
    def file_control(self, dbname: str, op: int, pointer: int) -> bool: ...
    def last_insert_rowid(self) -> int: ...
    def get_autocommit(self) -> bool: ...
    def config(self, op: int, *args: int) -> int: ...
    def set_busy_handler(self, callable: Callable[[int], bool] | None) -> None: ...
    def set_authorizer(self, callable: Callable[..., int] | None) -> None: ...
    def preupdate_hook(self, callback: Callable[[Any], None] | None) -> None: ...
    def close(self, force: bool = False) -> None: ...


_BUSY = 10_000  # ms to wait for someone else's transaction
# Whatever else begins like these is the user's.
OURS = frozenset((
    "takeback_op", "takeback_op_of_schema", "takeback_table", "takeback_image", "takeback_image_key", "takeback_recent",
))  # fmt: skip
_TEMPORARY_OURS = OURS | {"takeback_skip"}
_CACHE = 64 << 10  # KiB

# What a PRAGMA asks, with or without an argument.
_ASKING = frozenset((
    "table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list",
    "foreign_key_check", "integrity_check", "quick_check", "database_list", "collation_list", "function_list",
    "module_list", "pragma_list", "compile_options",
))  # fmt: skip
# What it sets for this connection alone; nothing of it is in the file.
_FOR_THE_CONNECTION = frozenset((
    "foreign_keys", "defer_foreign_keys", "recursive_triggers", "case_sensitive_like", "ignore_check_constraints",
    "reverse_unordered_selects", "cache_size", "automatic_index",
))  # fmt: skip
# What it sets in the first page, with the transaction.
IN_THE_HEADER = ("user_version", "application_id")
_ACTING = frozenset(("wal_checkpoint", "optimize", "incremental_vacuum", "shrink_memory"))
_SCHEMA_CHANGES = frozenset(
    number for name, number in vars(apsw).items()
    if name.startswith(("SQLITE_CREATE_", "SQLITE_DROP_", "SQLITE_ALTER_")) and "TEMP" not in name
)  # fmt: skip
_TEMPORARY = frozenset(
    number for name, number in vars(apsw).items() if name.startswith("SQLITE_CREATE_TEMP_")
)  # fmt: skip
_WRITES = (apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE)


def connection(path: str, *, reading: bool = False) -> SqliteConnection:
    if not os.path.exists(path):
        raise ResourceUnreachable(
            f"There is no database at {path}.",
            hint="Put the file back in its place, then try again.",
        )
    try:
        how = apsw.SQLITE_OPEN_READONLY if reading else apsw.SQLITE_OPEN_READWRITE
        # An absolute path is no URI; what is attached by us is one.
        made: Any = apsw.Connection(path, flags=how | apsw.SQLITE_OPEN_URI)
        made.set_busy_timeout(_BUSY)
        # As the sqlite3 of Python and of Debian have it: a schema that they accept must be read here too.
        made.config(apsw.SQLITE_DBCONFIG_DQS_DML, 1)
        made.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 1)
        made.execute("PRAGMA synchronous = FULL")
        made.execute(f"PRAGMA cache_size = -{_CACHE}").fetchall()
        made.execute("SELECT 1 FROM main.sqlite_schema LIMIT 1").fetchall()
    except apsw.Error as error:
        raise said(error, path) from None
    return made


def said(error: Exception, path: str = "", holder: str = "") -> TakebackError:
    """What SQLite said, as one of our errors. `holder`: who has what it waited for."""
    words = str(error).removeprefix(f"{type(error).__name__}: ")
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return StoreBusy(
            f"Another process has a transaction open on this database{holder and ': '}{holder}.",
            hint="Nothing was changed. Try again when it has ended; the setting lock_seconds is how long it is "
            "waited for.",
        )
    if isinstance(error, apsw.NotADBError):
        return Refused(f"{path or 'The file'} is not a SQLite database.", hint="Check the path.")
    if isinstance(error, apsw.ReadOnlyError):
        return ResourceUnreachable(
            f"The database cannot be written: {words}.", hint="Check rights and mount."
        )
    if isinstance(error, apsw.FullError):
        return ResourceUnreachable(
            f"There is no room left on the disk for {path or 'the database'}.",
            hint="Nothing was changed. Make room, then try again.",
        )
    if isinstance(error, (apsw.CantOpenError, apsw.IOError, apsw.PermissionsError)):
        return ResourceUnreachable(
            f"SQLite cannot work on the file: {words}.", hint="Check rights and space."
        )
    if isinstance(error, apsw.CorruptError):
        return ResourceUnreachable(
            f"SQLite says that the file is damaged: {words}.", hint="`PRAGMA integrity_check` shows more."
        )
    where = getattr(error, "error_offset", -1)
    position = f" (at character {where + 1})" if isinstance(where, int) and where >= 0 else ""
    return StatementFailed(
        f"SQLite said no: {words}{position}.", hint="Nothing was changed: the transaction was rolled back."
    )


class Watchman:
    """Asked by SQLite, while it prepares a statement, about everything that the statement would do."""

    def __init__(self) -> None:
        self.ours = 0  # statements of ours are being prepared
        self.rebuilt: set[str] = set()  # tables that are dropped or altered, in lower case
        self.schema = False  # the schema may change
        self.header: set[str] = set()
        self.refusal: Refused | None = None
        self.nests = False  # a savepoint: alone it would begin a transaction
        self.is_content = True  # nothing was asked about that needs more than the hook

    def fresh(self) -> None:
        if self.is_content:
            return
        self.rebuilt, self.schema, self.header, self.refusal, self.nests = set(), False, set(), None, False
        self.is_content = True

    def __call__(
        self, action: int, first: str | None, second: str | None, database: str | None, inner: str | None
    ) -> int:
        if self.ours:
            return apsw.SQLITE_OK
        if action == apsw.SQLITE_PRAGMA:
            return self._pragma((first or "").lower(), second)
        if action == apsw.SQLITE_TRANSACTION:
            return self._no(
                f"{first or 'BEGIN'}: the transaction belongs to the effect.",
                "Leave it out: the effect begins and ends it. Savepoints are fine.",
            )
        if action == apsw.SQLITE_SAVEPOINT:
            self.nests, self.is_content = True, False
            return apsw.SQLITE_OK
        if action in (apsw.SQLITE_ATTACH, apsw.SQLITE_DETACH):
            return self._no(
                "Changes to an attached database could not be undone.",
                "Open each file by itself, with an address of its own.",
            )
        if action == apsw.SQLITE_ANALYZE:
            return self._no(
                "ANALYZE writes statistics, which are not captured.",
                "Run it outside of takeback: it changes no data.",
            )
        if action in _TEMPORARY and any((one or "").lower() in _TEMPORARY_OURS for one in (first, second)):
            # A trigger would make changes that are not captured: it fires while the log is written.
            return self._no("This is a name of takeback's own tables.", "Take another one.")
        if database == "temp":
            return apsw.SQLITE_OK
        if action in _WRITES and (first or "").lower() in OURS:
            return self._no(f"{first} is where takeback keeps the way back.", "Leave it alone.")
        if action in _SCHEMA_CHANGES:
            return self._schema_change(action, first or "", second or "")
        return apsw.SQLITE_OK

    def _schema_change(self, action: int, first: str, second: str) -> int:
        table = second if action == apsw.SQLITE_ALTER_TABLE else first
        if action in (apsw.SQLITE_ALTER_TABLE, apsw.SQLITE_DROP_TABLE, apsw.SQLITE_DROP_VTABLE):
            self.rebuilt.add(table.lower())
        if table.lower() in OURS or second.lower() in OURS:
            return self._no(f"{table} is a name that takeback keeps for itself.", "Leave it alone.")
        self.schema, self.is_content = True, False
        return apsw.SQLITE_OK

    def _pragma(self, name: str, value: str | None) -> int:
        if name in _ASKING or (value is None and name not in _ACTING) or name in _FOR_THE_CONNECTION:
            return apsw.SQLITE_OK
        if name in IN_THE_HEADER:
            self.header.add(name)
            self.is_content = False
            return apsw.SQLITE_OK
        return self._no(
            f"PRAGMA {name} changes the file or the connection in a way that cannot be undone.",
            "Set it outside of takeback.",
        )

    def _no(self, message: str, hint: str) -> int:
        self.refusal, self.is_content = Refused(message, hint=hint), False
        return apsw.SQLITE_DENY


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_FIRST_LOOK = 1.0  # seconds: most waits are shorter
_PAUSES = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.025)  # SQLite's own; then the last one, twice as long
_LOCKS = "/proc/locks"


class Patience:
    """SQLite calls it each time a lock is not free, to ask whether to keep waiting."""

    def __init__(self, path: str, seconds: int, has_parent: Callable[[], bool], tell: Tell) -> None:
        """`seconds`: 0: no limit."""
        self._path = path
        self._seconds = seconds
        self.has_parent = has_parent
        self._tell = tell
        self._began = self._look_at = 0.0
        self.holder = ""  # who had it when it was last waited for, in words

    def __call__(self, times: int) -> bool:
        now = time.monotonic()
        if not times:
            self._began, self.holder = now, ""
            self._look_at = now + min(_FIRST_LOOK, self._seconds / 2 or _FIRST_LOOK)
        if self._seconds and now - self._began >= self._seconds:
            return False
        if now >= self._look_at:
            self._look_at = now + _FIRST_LOOK
            if not self.has_parent():
                return False  # no process waits for it any more
            self._look()
        time.sleep(_PAUSES[times] if times < len(_PAUSES) else 2 * _PAUSES[-1])
        return True

    def _look(self) -> None:
        process = next(_with_locks(self._path), 0)
        words = f"{_name(process)} (process {process})" if process else "a transaction of someone else"
        if words != self.holder:
            self._tell(process, words)
        self.holder = words


def _with_locks(path: str) -> Iterator[int]:
    """Other processes that have one on the file or, with a write-ahead log, on its index; those that write first.
    (Opening the file to ask would give up the locks that we have.)"""
    files: set[int] = set()
    for one in (path, f"{path}-shm"):
        with suppress(OSError):
            files.add(os.stat(one).st_ino)
    try:
        with open(_LOCKS, encoding="ascii") as file:
            lines = [line.split() for line in file if "->" not in line]  # which is one that waits itself
    except OSError:
        return
    for kind in ("WRITE", "READ"):
        for one in lines:
            if len(one) > 5 and one[3] == kind and int(one[5].rpartition(":")[2]) in files:
                if (process := int(one[4])) > 0 and process != os.getpid():
                    yield process


def _name(process: int) -> str:
    try:
        with open(f"/proc/{process}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "a program"


def not_utf8() -> StatementFailed:
    return StatementFailed(
        "There is text in these rows that is not UTF-8, so they cannot be read or kept.",
        hint="Nothing was changed. `SELECT CAST(column AS BLOB)` shows the bytes; as a blob or in UTF-8 they can be "
        "kept.",
    )
