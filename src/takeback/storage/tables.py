"""The interface of a store to its database, and the triggers of a store that was moved."""

from _thread import RLock
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from takeback.errors import Misuse, RecordInvalid, Refused, StoreBusy

# A store that was moved takes nothing new: its unfinished effects would continue in two places.
#
# Triggers see to that, also for processes that have had it open all the time; they are made when it is
# retired, so that a store in use pays nothing for them.


SAID = "retired"  # by the trigger; nothing else says that
_SQLITE_REFUSES = f"BEGIN SELECT RAISE(ABORT, '{SAID}'); END"
SQLITE = (
    "CREATE TABLE retired (words TEXT NOT NULL) STRICT",
    f"CREATE TRIGGER retired_takes_no_record BEFORE INSERT ON records {_SQLITE_REFUSES}",
    f"CREATE TRIGGER retired_gives_no_lease BEFORE INSERT ON leases {_SQLITE_REFUSES}",
    f"CREATE TRIGGER retired_gives_no_lease_again BEFORE UPDATE OF generation ON leases {_SQLITE_REFUSES}",
)
SQLITE_AGAIN = (
    "DROP TRIGGER retired_takes_no_record",
    "DROP TRIGGER retired_gives_no_lease",
    "DROP TRIGGER retired_gives_no_lease_again",
    "DROP TABLE retired",
)
STATE = "TB009"
POSTGRES = (
    "CREATE TABLE retired (words text NOT NULL)",
    "CREATE FUNCTION retired_refuses() RETURNS trigger LANGUAGE plpgsql AS"
    f" 'BEGIN RAISE EXCEPTION ''{SAID}'' USING errcode = ''{STATE}''; END'",
    "CREATE TRIGGER retired_takes_no_record BEFORE INSERT ON records EXECUTE FUNCTION retired_refuses()",
    "CREATE TRIGGER retired_gives_no_lease BEFORE INSERT OR UPDATE OF generation ON leases"
    " EXECUTE FUNCTION retired_refuses()",
)
POSTGRES_AGAIN = (
    "DROP TRIGGER retired_takes_no_record ON records",
    "DROP TRIGGER retired_gives_no_lease ON leases",
    "DROP FUNCTION retired_refuses()",
    "DROP TABLE retired",
)


def refused(name: str = "", words: str = "") -> Refused:
    """`words`: what became of it."""
    return Refused(
        f"The store{f' at {name}' if name else ''} takes no new records: {words or 'it was moved'}.",
        hint="Use the other one; this one can only be read. `takeback store reopen PLACE` makes it usable again: then "
        "do not continue unfinished runs in both.",
    )


def damaged(said: str) -> RecordInvalid:
    return RecordInvalid(
        f"The journal is damaged: {said}", hint="Run `takeback verify`: it shows how far the damage reaches."
    )


def refused_record(said: str) -> RecordInvalid:
    return RecordInvalid(f"The journal refused: {said}", hint="Run `takeback verify`.")


def busy() -> StoreBusy:
    return StoreBusy(
        "Another process has been writing to the store for too long.",
        hint="Try again; `takeback doctor` shows who is at work.",
    )


def closed() -> Misuse:
    return Misuse("The store was closed.", hint="Open it again with takeback.open().")


def forked() -> Misuse:
    return Misuse(
        "This store was opened before a fork and is used in the child.",
        hint="Call takeback.open() again in the child process.",
    )


class Reading(Protocol):
    def read(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...


class Answer(Protocol):
    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """In a transaction. Statements are written as both kinds of database take them, with `?` for values."""

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Answer: ...

    def executemany(self, sql: str, values: Sequence[Sequence[Any]], /) -> object: ...


class Tables(Reading, Protocol):
    lock: RLock  # held during a transaction; the same thread can take it again
    read_only: bool
    # What others hold back until the next commit (blobs put but not yet written) is written first, inside it.
    before_commit: list[Callable[[Any], None]]
    after_rollback: list[Callable[[], None]]
    after_write: list[Callable[[], None]]  # of a whole transaction, whatever became of it, without the lock
    pending: list[Callable[[], bool]]  # whether they hold something back
    on_io_error: Callable[[], None]

    def write(self) -> AbstractContextManager[Connection]: ...

    def shrink(self) -> None:
        """Return space that a sweep has freed. Optional: it gives way to other writers."""
        ...


class PackEntry(NamedTuple):
    digest: bytes
    base: bytes  # empty: none
    form: int
    size: int  # of the content
    data: bytes


class PackPlace(NamedTuple):
    pack: int
    position: int
    length: int  # of the data


class Shelf(Protocol):
    """Where blobs are that are too large for a row: packs beside the database, or objects elsewhere.

    Not thread-safe: the lock of the database is held around it.
    """

    directory: str  # what it is called

    def append(self, entries: Sequence[PackEntry]) -> list[PackPlace]:
        """Written and read back, but not durable before `sync`. No sweep takes it before `release`."""
        ...

    def sync(self) -> None: ...

    def is_broken(self, pack: int) -> bool:
        """Whether what was appended there lately must not be trusted."""
        ...

    def release(self, for_nothing: bool = False) -> None:
        """All that was appended is committed or given up; `for_nothing`: all of it is given up."""
        ...

    def read(self, place: PackPlace, check: bool = False) -> PackEntry: ...

    def peek(self, place: PackPlace) -> PackEntry:
        """Without its data."""
        ...

    def alone(self) -> AbstractContextManager[None]:
        """For a sweep; `StoreBusy` while another one is at work."""
        ...

    def tidy(
        self, tables: Tables, in_use: set[int], oldest: int, copying: bool, for_good: bool = False
    ) -> None:
        """Remove what no row names: of packs that were `in_use`, and of others that are older than `oldest` seconds;
        `for_good`: wherever it is."""
        ...

    def close(self) -> None: ...
