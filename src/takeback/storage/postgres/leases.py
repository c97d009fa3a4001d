"""Leases in PostgreSQL: expiry by the clock of the server, which is the same for all."""

from typing import Any

from takeback.errors import LeaseLost
from takeback.model.ids import short
from takeback.model.run import Lease, Owner
from takeback.storage.leases import Alive, held
from takeback.storage.postgres.database import PostgresDatabase
from takeback.storage.postgres.journal import new_token

_TAKE = "SELECT * FROM take(?, ?, ?, ?::integer, ?, ?::bigint, ?::bigint, ?, ?::bigint, ?)"


class PostgresLeases:
    def __init__(self, database: PostgresDatabase, alive: Alive, by_server: bool = True) -> None:
        """Not `by_server`: the time that the caller tells counts, as tests need it."""
        self._database = database
        self._alive = alive
        self._by_server = by_server

    def _time(self, now: int) -> int | None:
        return None if self._by_server else now

    def acquire(self, run: str, owner: Owner, now: int, lasts: int, *, expired: bool = False) -> Lease:
        token = new_token()
        free = 0  # a generation that is known to be nobody's
        while True:
            values = (run, *owner, self._time(now), lasts, token, free, expired)
            taken, generation, boot, space, pid, started, expires_at, is_over = self._one(_TAKE, values)
            lease = Lease(run, generation, Owner(boot, space, pid, started), expires_at)
            if taken:
                return lease
            # As `may_take` says; whether a process lives only its own machine can tell.
            living = self._alive(lease.owner)
            if generation == free or living or (living is None and not is_over):
                raise held(lease)
            free = generation

    def renew(self, lease: Lease, now: int, lasts: int) -> Lease:
        found = self._database.read(
            "UPDATE leases SET expires_at = coalesce(?::bigint, now_us()) + ?"
            " WHERE run = ? AND generation = ? AND pid <> 0 RETURNING expires_at",
            (self._time(now), lasts, lease.run, lease.generation),
        )
        if not found:
            raise LeaseLost(f"Run {short(lease.run)} was taken over by another process.")
        return lease._replace(expires_at=found[0][0])

    def release(self, lease: Lease) -> None:
        self._database.read(
            "WITH mine AS (SELECT run FROM leases WHERE run = ? AND generation = ? AND pid <> 0 FOR UPDATE)"
            " UPDATE leases SET pid = 0, expires_at = 0 FROM mine WHERE leases.run = mine.run",
            (lease.run, lease.generation),
        )

    def holder(self, run: str) -> Lease | None:
        rows = self._database.read(
            "SELECT generation, boot, space, pid, started, expires_at FROM leases WHERE run = ?", (run,)
        )
        if not rows:
            return None
        generation, boot, space, pid, started, expires_at = rows[0]
        return Lease(run, generation, Owner(boot, space, pid, started), expires_at)

    def _one(self, sql: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return self._database.read(sql, values)[0]


