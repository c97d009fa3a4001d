"""Where the images of rows are, and how those of one effect are found there.

An index of every image would cost as much as the image itself. So only those of statements that changed few rows are in
one; a statement that changed many says so in `takeback.wide`, and its images are found by the blocks they are in."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.adapters.postgres.connecting import ask
from takeback.adapters.postgres.tables import SCHEMA

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection

MANY = 1000  # rows of one statement


def log_name(log: int) -> str:
    return f"{SCHEMA}.log_{log}"


def is_wide(connection: "Connection", op: int) -> bool:
    """Has one of its statements changed many rows?"""
    return bool(ask(connection, "select 1 from takeback.wide where op = %s limit 1", [op]))


def of_op(op: int, wide: bool) -> str:
    """The condition for its images. `wide` may be said without need, never be left out."""
    return f"op = {op}" if wide else f"op = {op} and not wide"


class Reach(NamedTuple):
    """Where in a log images are, from the first to the last of them: places that hold for this transaction. Who knows
    them need not read the images of all others."""

    first: str
    last: str

    @property
    def sql(self) -> str:
        return f"ctid between '{self.first}' and '{self.last}'"


class Kept(NamedTuple):
    """What a log has of an effect."""

    log: int
    relation: int
    name: str  # of the table, when it was last looked at
    shape: list[Any]  # of the log
    form: list[Any]  # the shape that the table had when the first of the images was written
    first: int  # the statements that wrote them: the first and the last
    last: int
    minus: int  # rows that were, and rows that came to be
    plus: int
    minus_reach: Reach | None  # where each of them are; of a few, an index knows better
    plus_reach: Reach | None


def kept(connection: "Connection", logs: Sequence[int], images: str, wide: bool) -> list[Kept]:
    """In those of the logs that have any; `images` is the condition for them, `wide` if they may be many."""
    if not logs:
        return []
    places = ", ".join(
        f"{end}(ctid) filter (where sign {sign} 0)" if wide else "null"
        for sign in "<>"
        for end in ("min", "max")
    )
    each = " union all ".join(
        f"select {log} as log, min(step) as first, max(step) as last, count(*) filter (where sign < 0) as minus, "
        f"count(*) filter (where sign > 0) as plus, array[{places}]::text[] as places "
        f"from {log_name(log)} where {images}"
        for log in logs
    )
    rows = ask(
        connection,
        "select l.no, l.relation::int8, l.name, l.shape, coalesce((select f.shape from takeback.form f "
        "where f.log = l.no and f.since <= k.first order by f.since desc limit 1), '[]'), "
        f"k.first, k.last, k.minus, k.plus, k.places from ({each}) k join takeback.log l on l.no = k.log "
        "where k.first is not null order by l.no",
    )
    return [Kept(*row[:-1], *_reaches(row[-1])) for row in rows]


def _reaches(places: Sequence[str | None]) -> Iterator[Reach | None]:
    for first, last in (places[:2], places[2:]):
        yield Reach(first, last) if first and last else None
