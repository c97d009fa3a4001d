"""How many rows an effect changed in the end: a row that was written twice counts once, one that is as it was not at
all. Without a key, rows that look alike are one as good as the other."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from takeback.adapters.postgres.connecting import ask
from takeback.adapters.postgres.counting import Counted
from takeback.adapters.postgres.logs import is_wide, log_name, of_op
from takeback.adapters.postgres.net import images
from takeback.adapters.postgres.tables import Table, tables

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection

_KINDS = ("inserted", "updated", "deleted")


class Netting:
    """For one session, which knows the tables that it has met."""

    def __init__(self) -> None:
        self._keyless: dict[int, bool] = {}  # by log

    def netted(self, connection: "Connection", op: int, found: Counted, statements: int) -> Counted:
        """What the server counted is right where one statement wrote to rows that have a key."""
        if statements > 1:
            wanted: Collection[int] = found.logs
        else:
            unknown = [log for log in found.logs if log not in self._keyless]
            self._keyless |= {log: table.key is None for log, table in _tables(connection, unknown).items()}
            wanted = [log for log in found.logs if self._keyless.get(log)]
        counts = dict(found.tables)
        for log, table in _tables(connection, wanted).items():
            if table.shown in counts:
                counts[table.shown] = _counts(connection, op, log, table)
        return found._replace(tables={name: one for name, one in counts.items() if any(one.values())})

    def forget(self) -> None:
        """The schema may have been changed."""
        self._keyless.clear()


def _tables(connection: "Connection", logs: Collection[int]) -> dict[int, Table]:
    if not logs:
        return {}
    known = ask(connection, "select relation::int8, no from takeback.log where no = any (%s)", [list(logs)])
    by_oid: dict[int, int] = {oid: log for oid, log in known}  # noqa: C416
    return {by_oid[table.oid]: table for table in tables(connection, list(by_oid))}


def _counts(connection: "Connection", op: int, log: int, table: Table) -> dict[str, int]:
    own = of_op(op, is_wide(connection, op))
    key = ", ".join(f"c{number}" for number in table.key.columns) if table.key else "null"
    left = (
        f"select {key}, sum(sign)::int8 as count from {log_name(log)} where {own} "
        f"group by {f'{key}, ' if table.key else ''}{images(table.columns, 'c')}::text having sum(sign) <> 0"
    )
    if table.key:
        asked = (
            f"select count(*) filter (where not pre), count(*) filter (where pre and post), "
            f"count(*) filter (where not post) from (select bool_or(count < 0) as pre, bool_or(count > 0) as post "
            f"from ({left}) l group by {key}) k"
        )
    else:
        asked = (
            f"select coalesce(sum(count) filter (where count > 0), 0)::int8, 0, "
            f"coalesce(-sum(count) filter (where count < 0), 0)::int8 from ({left}) l"
        )
    return dict(zip(_KINDS, ask(connection, asked)[0], strict=True))
