"""Leases in SQLite: a generation that only grows, an owner, an expiry."""

from collections.abc import Callable, Sequence

from takeback.errors import LeaseHeld, LeaseLost, Misuse
from takeback.model.ids import short
from takeback.model.record import Draft, Kind
from takeback.model.run import Lease, Owner
from takeback.storage.database import Database

Alive = Callable[[Owner], "bool | None"]


def may_take(lease: Lease, now: int, alive: Alive) -> bool:
    """A lease is free when it was released, when its owner is known to be dead, or when it expired and nobody here
    can tell. An owner known to live keeps it: a paused process may still be in the middle of touching the world."""
    if lease.owner.pid == 0:
        return True
    living = alive(lease.owner)
    return lease.expires_at < now if living is None else not living


def refuse_unheld(lease: Lease | None, drafts: Sequence[Draft]) -> None:
    """A lease speaks for its own run only; without one only settled things can be spoken of."""
    for draft in drafts:
        if lease is None and draft.kind not in (Kind.KEEP, Kind.FORGET):
            raise Misuse(
                f"A {draft.kind.value} record needs a lease of its run.", hint="Open or resume the run first."
            )
        if lease is not None and draft.run != lease.run:
            raise Misuse(
                f"The lease of run {short(lease.run)} does not speak for run {short(draft.run)}.",
                hint="Open or resume that run.",
            )


def held(lease: Lease) -> LeaseHeld:
    return LeaseHeld(
        f"Run {short(lease.run)} is in the hands of process {lease.owner.pid}.",
        hint="Wait for it to finish, or stop it; its lease ends with it.",
    )


class SqliteLeases:
    def __init__(self, database: Database, alive: Alive) -> None:
        self._database = database
        self._alive = alive

    def acquire(self, run: str, owner: Owner, now: int, lasts: int) -> Lease:
        with self._database.write() as connection:
            current = self.holder(run)
            if current and not may_take(current, now, self._alive):
                raise held(current)
            lease = Lease(run, current.generation + 1 if current else 1, owner, now + lasts)
            connection.execute(
                "INSERT OR REPLACE INTO leases (run, generation, boot, space, pid, started, expires_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (run, lease.generation, *owner, lease.expires_at),
            )
            return lease

    def renew(self, lease: Lease, now: int, lasts: int) -> Lease:
        with self._database.write() as connection:
            renewed = connection.execute(
                "UPDATE leases SET expires_at = ? WHERE run = ? AND generation = ? AND pid <> 0",
                (now + lasts, lease.run, lease.generation),
            )
            if not renewed.rowcount:
                raise LeaseLost(f"Run {short(lease.run)} was taken over by another process.")
            return lease._replace(expires_at=now + lasts)

    def release(self, lease: Lease) -> None:
        with self._database.write() as connection:
            connection.execute(
                "UPDATE leases SET pid = 0, expires_at = 0 WHERE run = ? AND generation = ?",
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
