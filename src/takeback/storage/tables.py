"""What the parts of a store need of the database that its tables are in: SQLite's own, or a server."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol


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
    lock: AbstractContextManager[Any]  # held by whoever is in a transaction; it can be taken again by the same thread
    read_only: bool
    # What others hold back until the next commit (blobs put but not yet written) is written first, inside it.
    before_commit: list[Callable[[Any], None]]
    after_rollback: list[Callable[[], None]]
    pending: list[Callable[[], bool]]  # whether they hold something back
    on_io_error: Callable[[], None]

    def write(self) -> AbstractContextManager[Connection]: ...
