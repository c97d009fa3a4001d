"""What the parts of a store need of the database that its tables are in: SQLite's own, or a server."""

from _thread import RLock
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from takeback.storage.packs import Entry, Place


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
    lock: RLock  # held by whoever is in a transaction; it can be taken again by the same thread
    read_only: bool
    # What others hold back until the next commit (blobs put but not yet written) is written first, inside it.
    before_commit: list[Callable[[Any], None]]
    after_rollback: list[Callable[[], None]]
    pending: list[Callable[[], bool]]  # whether they hold something back
    on_io_error: Callable[[], None]

    def write(self) -> AbstractContextManager[Connection]: ...

    def shrink(self) -> None:
        """Give space back that a sweep has freed. Only a nicety: whoever is at work meanwhile goes first."""
        ...


class Shelf(Protocol):
    """Where blobs are that are too large for a row: packs beside the database, or objects elsewhere.

    Not thread-safe: the lock of the database is held around it.
    """

    directory: str  # what it is called

    def append(self, entries: "Sequence[Entry]") -> "list[Place]":
        """Written and read back, but not durable before `sync`. No sweep takes it before `release`."""
        ...

    def sync(self) -> None: ...

    def is_broken(self, pack: int) -> bool:
        """Whether what was appended there lately must not be trusted."""
        ...

    def release(self, for_nothing: bool = False) -> None:
        """All that was appended is committed or given up; `for_nothing`: all of it is given up."""
        ...

    def read(self, place: "Place", check: bool = False) -> "Entry": ...

    def peek(self, place: "Place") -> "Entry":
        """Without its data."""
        ...

    def alone(self) -> AbstractContextManager[None]:
        """For a sweep; `StoreBusy` while another one is at work."""
        ...

    def tidy(self, tables: Tables, in_use: set[int], oldest: int, copying: bool) -> None:
        """Remove what no row names: of packs that were `in_use`, and of others that are older than `oldest` seconds."""
        ...

    def close(self) -> None: ...
