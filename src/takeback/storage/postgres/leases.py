"""Leases in PostgreSQL: expiry by the clock of the server, which is the same for all."""

import time
from collections.abc import Sequence
from typing import Any

from takeback.errors import LeaseLost
from takeback.model.ids import short
from takeback.model.run import Lease, Owner
from takeback.storage.leases import Alive, held
from takeback.storage.postgres.database import PostgresDatabase
from takeback.storage.postgres.journal import new_token

_TAKE = "SELECT * FROM take(?, ?, ?, ?::integer, ?, ?, ?::bigint, ?, ?::bigint, ?)"
_CLAIM = "SELECT * FROM claim(?, ?::bigint, ?, ?, ?::integer, ?, ?, ?::bigint, ?, ?, ?)"
_NOW = "(SELECT now_us())"
_LOOK_FOR_DEAD = 1.0  # seconds between two looks who of this machine has died, while there is other work


class PostgresLeases:
    def __init__(self, database: PostgresDatabase, alive: Alive, machine: str = "") -> None:
        self._database = database
        self._alive = alive
        self._machine = machine
        self._looked = 0.0

    def acquire(self, run: str, owner: Owner, now: int, lasts: int, *, expired: bool = False) -> Lease:
        token = new_token()
        free = -1  # a generation that is known to be nobody's
        while True:
            found = self._database.read(_TAKE, (run, *owner, self._machine, lasts, token, free, expired))[0]
            taken, generation, boot, space, pid, started, expires_at, is_over = found
            lease = Lease(run, generation, Owner(boot, space, pid, started), expires_at)
            if taken:
                return lease
            # Whether a process lives only its own machine can tell.
            if generation == free or not self._may_take(lease, is_over):
                raise held(lease)
            free = generation

    def _may_take(self, lease: Lease, is_over: bool) -> bool:
        if lease.owner.pid == 0:
            return True
        living = self._alive(lease.owner)
        return is_over if living is None else not living

    def claim(self, owner: Owner, now: int, lasts: int, workflows: Sequence[str]) -> Lease | None:
        if not workflows:
            return None
        look = time.monotonic() - self._looked > _LOOK_FOR_DEAD
        lease = self._claim(owner, now, lasts, workflows, self._dead() if look else [])
        if lease is None and not look and (dead := self._dead()):
            lease = self._claim(owner, now, lasts, workflows, dead)
        return lease

    def _claim(
        self, owner: Owner, now: int, lasts: int, workflows: Sequence[str], dead: list[str]
    ) -> Lease | None:
        token, again = new_token(), False

        def asked(session: Any) -> list[Any]:
            nonlocal again
            values = (list(workflows), now, *owner, self._machine, lasts, token, again, dead)
            again = True
            return session.execute(_CLAIM, values).fetchall()

        for run, generation, expires_at in self._database.ask(asked):
            return Lease(run, generation, owner, expires_at)
        return None

    def _dead(self) -> list[str]:
        self._looked = time.monotonic()
        holders = self._database.read("SELECT DISTINCT boot, space, pid, started FROM leases WHERE pid <> 0")
        return [" ".join(map(str, holder)) for holder in holders if self._alive(Owner(*holder)) is False]

    def renew(self, lease: Lease, now: int, lasts: int) -> Lease:
        found = self._database.read(
            f"UPDATE leases SET expires_at = {_NOW} + ? WHERE run = ? AND generation = ? AND pid <> 0"
            " RETURNING expires_at",
            (lasts, lease.run, lease.generation),
        )
        if not found:
            raise LeaseLost(f"Run {short(lease.run)} was taken over by another process.")
        return lease._replace(expires_at=found[0][0])

    def release(self, lease: Lease) -> None:
        self._database.read("SELECT give_up(?, ?::bigint)", (lease.run, lease.generation))

    def holder(self, run: str) -> Lease | None:
        found = self._look(run)
        return found[0] if found else None

    def free(self, run: str, now: int) -> bool:
        found = self._look(run)
        return found is None or self._may_take(*found)

    def elsewhere(self, run: str) -> bool:
        """Whether it was held last on another machine."""
        found = self._database.read("SELECT machine FROM leases WHERE run = ?", (run,))
        return bool(found) and found[0][0] not in ("", self._machine)

    def _look(self, run: str) -> tuple[Lease, bool] | None:
        rows = self._database.read(
            f"SELECT generation, boot, space, pid, started, expires_at, expires_at < {_NOW} FROM leases"
            " WHERE run = ? AND generation > 0",
            (run,),
        )
        if not rows:
            return None
        generation, boot, space, pid, started, expires_at, is_over = rows[0]
        return Lease(run, generation, Owner(boot, space, pid, started), expires_at), is_over


class LeasesAtHome(PostgresLeases):
    """For recovery: what a process of another machine left is not looked at from here. The files are others here, and
    the process may live: its lease only ran out."""

    def acquire(self, run: str, owner: Owner, now: int, lasts: int, *, expired: bool = False) -> Lease:
        if self.elsewhere(run) and (lease := self.holder(run)):
            raise held(lease)
        return super().acquire(run, owner, now, lasts, expired=expired)

    def free(self, run: str, now: int) -> bool:
        return not self.elsewhere(run) and super().free(run, now)
