"""How many rows an effect changed in the end: a row that was written twice counts once, one that is as it was not at
all. Without a key, rows that look alike are one as good as the other."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from takeback.adapters.postgres.connecting import ask
from takeback.adapters.postgres.counting import Counted
from takeback.adapters.postgres.logs import is_wide
from takeback.adapters.postgres.tables import tables
from takeback.adapters.postgres.telling import net_counts

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection


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
            self._keyless |= _keyless(connection, unknown)
            wanted = [log for log in found.logs if self._keyless.get(log)]
        counts = dict(found.tables)
        if wanted:
            wide = is_wide(connection, op)
            for _, name, one in net_counts(connection, op, list(wanted), wide):
                if name in counts:
                    counts[name] = one
        return found._replace(tables={name: one for name, one in counts.items() if any(one.values())})

    def forget(self) -> None:
        """The schema may have been changed."""
        self._keyless.clear()


def _keyless(connection: "Connection", logs: Collection[int]) -> dict[int, bool]:
    if not logs:
        return {}
    known = ask(connection, "select relation::int8, no from takeback.log where no = any (%s)", [list(logs)])
    by_oid: dict[int, int] = dict(known)
    return {by_oid[table.oid]: table.key is None for table in tables(connection, list(by_oid))}
