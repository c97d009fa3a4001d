"""Leases in SQLite: a generation that only grows, an owner, an expiry."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from takeback.errors import LeaseHeld, LeaseLost, Misuse, StoreFull
from takeback.model.boot_clock import since_boot
from takeback.model.ids import short
from takeback.model.record import OF_STORE, Draft, Kind
from takeback.model.run import Lease, OnDeath, Owner
from takeback.model.stop import Stop
from takeback.storage.sqlite.database import SqliteDatabase

Alive = Callable[[Owner], "bool | None"]

_OF_SETTLED = (
    Kind.ACCEPT, Kind.PIN, Kind.UNPIN, Kind.FORGET, Kind.ERASE, Kind.SIGNAL, Kind.DECIDE, *OF_STORE
)  # fmt: skip
# Exactly as in the schema, so that SQLite sees that the partial index applies.
RESUMABLE = "on_death = 'resume' AND (state = 'open' OR state = 'suspended')"
# Nearly all runs that are due are either new or waited for something; each kind stands in the index in its order.
_NEW = "due_at = 0 AND ?2 > 0 ORDER BY number"
_WAITED = "due_at > 0 AND due_at <= ?2 ORDER BY due_at, number"


def may_take(lease: Lease, is_over: bool, alive: Alive, expired: bool = False) -> bool:
    """A lease is free when it was released, when its owner is known to be dead, or when it expired and its owner cannot
    be checked here. An owner known to live keeps it, unless `expired` is enough: a paused process may still be in the
    middle of touching the world."""
    if lease.owner.pid == 0 or (expired and is_over):
        return True
    living = alive(lease.owner)
    return is_over if living is None else not living


def refuse_unheld(lease: Lease | None, drafts: Sequence[Draft]) -> None:
    """A lease speaks for its own run only; without one only of what is settled, or of what waits for a worker."""
    for draft in drafts:
        if lease is None:
            submitted = draft.kind is Kind.OPEN and draft.body.get("on_death") == OnDeath.RESUME
            if not submitted and draft.kind not in _OF_SETTLED:
                words = f"A {draft.kind.value} record needs a lease of its run."
                raise Misuse(words, hint="Open or resume the run first.")
        elif draft.run != lease.run:
            raise Misuse(
                f"The lease of run {short(lease.run)} does not speak for run {short(draft.run)}.",
                hint="Open or resume that run.",
            )


def refuse_unheld_opening(lease: Lease | None, kind: Kind, run: str, known: bool) -> None:
    """Only a run that does not exist yet is opened without a lease."""
    if lease is None and known and kind is Kind.OPEN:
        raise Misuse(f"Run {short(run)} was opened before.", hint="Resume it, or submit another one.")


def held(lease: Lease) -> LeaseHeld:
    return LeaseHeld(
        f"Run {short(lease.run)} is locked by process {lease.owner.pid}.",
        hint="Wait for it to finish, or stop it; its lease ends with it.",
    )


class NotClaimed(NamedTuple):
    """Of runs that were stopped."""

    everything: bool
    agents: tuple[str, ...]
    runs: tuple[str, ...]


def of_claims(stops: Sequence[Stop]) -> NotClaimed:
    agents = tuple(dict.fromkeys(one.agent for one in stops if one.agent))
    runs = tuple(dict.fromkeys(one.run for one in stops if one.run))
    return NotClaimed(any(not (one.agent or one.run) for one in stops), agents, runs)


class SqliteLeases:
    def __init__(self, database: SqliteDatabase, alive: Alive, clock: Callable[[], int] = since_boot) -> None:
        self._database = database
        self._alive = alive
        self._clock = clock

    def acquire(self, run: str, owner: Owner, now: int, lasts: int, *, expired: bool = False) -> Lease:
        with self._database.write():
            current = self.holder(run)
            if current and not self._may_take(current, expired):
                raise held(current)
            return self._take(run, current, owner, lasts)

    def claim(
        self, owner: Owner, now: int, lasts: int, workflows: Sequence[str], stops: Sequence[Stop] = ()
    ) -> Lease | None:
        stopped = of_claims(stops)
        # Looked for before anyone has to wait for us: who polls finds nothing nearly every time.
        if stopped.everything or self._due_longest(now, workflows, stopped) is None:
            return None
        with self._database.write():
            run = self._due_longest(now, workflows, stopped)
            return None if run is None else self._take(run, self.holder(run), owner, lasts)

    def renew(self, lease: Lease, now: int, lasts: int) -> Lease:
        with self._database.write() as connection:
            expires_at = self._clock() + lasts
            renewed = connection.execute(
                "UPDATE leases SET expires_at = ? WHERE run = ? AND generation = ? AND pid <> 0",
                (expires_at, lease.run, lease.generation),
            )
            if not renewed.rowcount:
                raise LeaseLost(f"Run {short(lease.run)} was taken over by another process.")
            return lease._replace(expires_at=expires_at)

    def release(self, lease: Lease) -> None:
        try:
            self._release(lease)
        except StoreFull:
            self._release(lease)  # on a full disk the store has made room for this much

    def _release(self, lease: Lease) -> None:
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

    def free(self, run: str, now: int) -> bool:
        current = self.holder(run)
        return current is None or self._may_take(current)

    def _may_take(self, lease: Lease, expired: bool = False) -> bool:
        return may_take(lease, lease.expires_at < self._clock(), self._alive, expired)

    def _take(self, run: str, current: Lease | None, owner: Owner, lasts: int) -> Lease:
        lease = Lease(run, current.generation + 1 if current else 1, owner, self._clock() + lasts)
        with self._database.write() as connection:
            connection.execute(
                "INSERT INTO leases (run, generation, boot, space, pid, started, expires_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run) DO UPDATE SET generation = excluded.generation,"
                " boot = excluded.boot, space = excluded.space, pid = excluded.pid, started = excluded.started,"
                " expires_at = excluded.expires_at",
                (run, lease.generation, *owner, lease.expires_at),
            )
        return lease

    def _due_longest(self, now: int, workflows: Sequence[str], stopped: NotClaimed) -> str | None:
        """Who is held by the living is passed over in SQL: there may be as many as there are workers."""
        holders = self._database.read("SELECT DISTINCT boot, space, pid, started FROM leases WHERE pid <> 0")
        dead = [holder for holder in holders if self._alive(Owner(*holder)) is False]
        gone = ",".join(["(?, ?, ?, ?)"] * len(dead)) or "(NULL, NULL, NULL, NULL)"
        free = (
            "coalesce(leases.pid, 0) = 0 OR leases.expires_at < ?3"
            f" OR (leases.boot, leases.space, leases.pid, leases.started) IN (VALUES {gone})"
        )
        values = (
            now,
            self._clock(),
            *(word for holder in dead for word in holder),
            *stopped.agents,
            *stopped.runs,
        )
        allowed = "".join(
            f" AND {column} NOT IN ({', '.join('?' * len(names))})"
            for column, names in (("agent", stopped.agents), ("id", stopped.runs))
            if names
        )
        found = [
            row
            for workflow in workflows
            for kind in (_NEW, _WAITED)
            for row in self._database.read(
                "SELECT CASE due_at WHEN 0 THEN opened_at ELSE due_at END, number, id"
                " FROM runs LEFT JOIN leases ON leases.run = runs.id"
                f" WHERE workflow = ?1 AND {RESUMABLE} AND ({free}){allowed} AND {kind} LIMIT 1",
                (workflow, *values),
            )
        ]
        return min(found)[2] if found else None
