"""The journal in PostgreSQL and its leases: appended to by one function there, in one trip."""

import json
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from takeback.errors import LeaseLost, TakebackError
from takeback.model.change import DECIDED_AT, PARTIAL, UNDO
from takeback.model.effect import waits
from takeback.model.format_1 import word
from takeback.model.ids import short
from takeback.model.lifecycle import BIRTHS, touched
from takeback.model.record import HASH, UNSALTED, Draft, Flaw, Kind, Record, canonical, covered, new_salt
from takeback.model.resource import Project, ancestors, made_markers, touched_projects, without_fragment
from takeback.model.run import Lease, Owner, RunState
from takeback.model.stop import Stop
from takeback.storage.bodies import deflated
from takeback.storage.leases import Alive, NotClaimed, held, may_take, of_claims, refuse_unheld
from takeback.storage.postgres.connection import driver
from takeback.storage.postgres.database import PostgresDatabase, StoreSession
from takeback.storage.postgres.fast_append import Plain, Seal, Statement, bytes_of, flag, jsonb, number, texts
from takeback.storage.sqlite.journal import SqlJournal


def facts_of(draft: Draft) -> dict[str, Any]:
    if draft.kind in BIRTHS:
        return _of_birth(draft.body)
    if draft.kind is Kind.OPEN:
        facts = _named(draft.body, "name", "agent", "on_death", "key", "workflow")
        if root := draft.body.get("project"):
            facts |= _of_projects((Project(root, bool(draft.body.get("marked")), began=True),))
        return facts
    if draft.kind is Kind.CLOSE:
        note = draft.body.get("error", "") if draft.body.get("outcome") != RunState.SUSPENDED else ""
        facts = _named(draft.body, "outcome", "due", "awaits", "read")
        return facts | {"note": note or draft.body.get("why", "")}
    if draft.kind is Kind.SIGNAL:
        return {"name": draft.body["name"]}
    return {}


def _named(body: dict[str, Any], *names: str) -> dict[str, Any]:
    """Of the words of format 1, which a copied record may have, those of today."""
    found = {name: body[name] for name in names if name in body}
    return found | {name: word(found[name]) for name in ("outcome", "on_death") if name in found}


def _of_birth(body: dict[str, Any]) -> dict[str, Any]:
    resources = touched(body)
    grounds = list(dict.fromkeys(without_fragment(one) for one in resources))
    around = dict.fromkeys(grounds)
    for one in grounds:
        around.update(dict.fromkeys(ancestors(one)))
    args: dict[str, Any] = body.get("args", {})
    inside = [one if one.endswith("/") else f"{one}/" for one in grounds]
    facts: dict[str, Any] = {"around": list(around), "inside": inside}
    if resources != (body["resource"],):
        facts["touched"] = resources
    if grounds != [body["resource"]]:
        facts["grounds"] = grounds
    if undoes := body.get("undoes"):
        facts["undoes"] = undoes
        if args.get(PARTIAL) and body["kind"] == UNDO:
            facts[PARTIAL] = 1
        if DECIDED_AT in args:
            facts[DECIDED_AT] = args[DECIDED_AT]
    if waiting := waits(args):
        facts["waits"] = waiting
    if needs := body.get("needs"):
        facts["needs"] = list(needs)
    return facts | _of_projects((*touched_projects(body), *made_markers(body)))


def _of_projects(projects: tuple[Project, ...]) -> dict[str, Any]:
    told = [
        {"root": one.root, **dict(zip(one._fields[1:], map(int, one[1:]), strict=True))} for one in projects
    ]
    return {"projects": told} if told else {}


_APPEND = Statement(
    "takeback_append",
    "SELECT * FROM append_to_projects($1::text, $2::bigint, $3::bigint, $4::text, $5::boolean, $6::text[], $7::text[],"
    " $8::text[], $9::text[], $10::text[], $11::bytea[], $12::bytea[], $13::bytea[], $14::jsonb, $15::boolean)",
)
_KNOWS_KEY = (
    "SELECT EXISTS (SELECT 1 FROM effects WHERE key = ? AND key <> ''),"
    " CASE WHEN unlisted() THEN (SELECT seq FROM records ORDER BY seq DESC LIMIT 1) END"
)
_CAN_LIST = "SELECT unlisted() AND has_table_privilege('turn', 'UPDATE')"
# Of effects that are not listed, for a reader without the right to list them.
_WAITING = (
    "SELECT effect FROM records WHERE effect <> '' AND seq > coalesce((SELECT n FROM tally WHERE name = 'listed'), 0)"
    " AND seq > coalesce((SELECT seq FROM records WHERE key IS NULL ORDER BY seq DESC LIMIT 1), 0)"
)
_NUMBER = struct.Struct("!q")
_ONCE = (Kind.INTENT, Kind.DONE, Kind.ABORT)  # what an effect can do but once tells whether it was done
_FACTS = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class PostgresJournal(SqlJournal):
    _IN_FLIGHT = "e.seq IN (SELECT seq FROM in_flight)"

    def __init__(
        self,
        database: PostgresDatabase,
        now: Callable[[], int] | None = None,
        original: Callable[[], Record] | None = None,
    ) -> None:
        """Without `now` the clock of the server counts. `original`: of a copy, the record that is appended next."""
        super().__init__(database)
        self._postgres = database
        self._now = now
        self._original = original
        self._plain = Plain(database, now)
        database.after_rollback.append(self._plain.forget)

    def append(self, lease: Lease | None, drafts: Sequence[Draft]) -> tuple[Record, ...]:
        refuse_unheld(lease, drafts)
        if not drafts:
            return ()
        bodies = [canonical(draft.body) for draft in drafts]
        kept = [deflated(body) for body in bodies]
        seals = [self._sealed(body) for body in bodies]
        token = None if drafts[0].kind in _ONCE else new_token().encode()
        run = lease.run if lease else ""

        def asked(session: StoreSession, again: bool) -> tuple[Record, ...]:
            if lease and not again:
                records = self._plainly(session, lease, drafts, seals, kept, token)
                if records:
                    return records
            return self._wholly(session, lease, drafts, seals, kept, token, again)

        database = self._postgres
        with database.lock:
            if database.plain:
                return database.once(asked, run)
            with database.write() as session, database.understood(run):
                records = asked(session, False)
                database.appended(records[0].seq, records[0].hash + records[0].seal)
                return records

    def _sealed(self, body: bytes) -> Seal:
        if not self._original:
            salt = new_salt()
            return salt, covered(salt, body)
        original = self._original()
        erased = original.seal == UNSALTED
        return original.seal, original.hash if erased else covered(original.seal, body)

    def _plainly(self, session: StoreSession, *what: Any) -> tuple[Record, ...] | None:
        try:
            return self._plain.append(session, *what)
        except driver().errors.UniqueViolation:
            if session.in_transaction:
                raise
            return None  # someone else came in between; the tables will tell what may be appended now

    def _wholly(
        self,
        session: StoreSession,
        lease: Lease | None,
        drafts: Sequence[Draft],
        seals: Sequence[Seal],
        kept: Sequence[bytes],
        token: bytes | None,
        again: bool,
    ) -> tuple[Record, ...]:
        fence = (lease.run.encode(), number(lease.generation)) if lease else (None, None)
        values = (
            *fence,
            number(self._now() if self._now else None),
            token,
            flag(again),
            texts([draft.kind.value for draft in drafts]),
            texts([draft.run for draft in drafts]),
            texts([draft.effect for draft in drafts]),
            texts([draft.body.get("key", "") if draft.effect else "" for draft in drafts]),
            texts([draft.body.get("resource", "") if draft.effect else "" for draft in drafts]),
            bytes_of([of_body for _, of_body in seals]),
            bytes_of([seal for seal, _ in seals]),
            bytes_of(kept),
            jsonb(_FACTS.encode([facts_of(draft) for draft in drafts])),
            flag(lease is not None and self._plain.wants_to_know),
        )
        ((seq, made_at, hashes, is_open, held),) = _APPEND.ask(session.connection, session.prepared, values)
        (first,), (at,) = _NUMBER.unpack(seq), _NUMBER.unpack(made_at)
        records = tuple(
            Record(first + n, *one[:3], at, one.body, hashes[HASH * n : HASH * n + HASH], seals[n][0])
            for n, one in enumerate(drafts)
        )
        self._plain.learn(drafts, first, records[-1], is_open and is_open == b"\1", held)
        return records

    def tally(self) -> dict[str, int]:
        """Those that are done are not counted one by one: they are what is left of all."""
        self._list()
        rows = self._tables.read("SELECT name, n FROM tally WHERE n > 0 AND name <> 'listed'")
        counts = {str(name): int(n) for name, n in rows}
        in_flight = self._tables.read(
            "SELECT e.state, count(*) FROM in_flight f JOIN effects e ON e.seq = f.seq GROUP BY 1"
        )
        ((records, effects),) = self._tables.read(
            "SELECT coalesce((SELECT seq FROM records ORDER BY seq DESC LIMIT 1), 0),"
            " coalesce((SELECT ordinal FROM effects ORDER BY seq DESC LIMIT 1), 0)"
        )
        others = sum(counts.get(state, 0) for state in ("aborted", "undone", "dropped"))
        done = effects - others - sum(n for _, n in in_flight)
        return counts | dict(in_flight) | ({"done": done} if done else {}) | {"records": records}

    def resolve(self, prefix: str) -> tuple[str, ...]:
        return () if "\0" in prefix else super().resolve(prefix)

    def check(self) -> Iterator[Flaw]:
        from takeback.storage.sqlite.check import check_records

        with suppress(TakebackError):  # whatever keeps it from being listed is among the findings
            self._list()
        waiting = self._postgres.read(_WAITING) if self._postgres.read_only else []
        for finding in check_records(self._postgres):
            if (finding.effect,) not in waiting:
                yield finding

    def _list(self) -> None:
        """List every record before the tables are read; on a replica, or with a read-only role, only records listed by
        others are seen."""
        database = self._postgres
        if database.read_only or not database.read(_CAN_LIST)[0][0]:
            return
        database.read("SELECT list_all(?)", (not database.writing_here,))

    def _knows_key(self, key: str) -> bool:
        with self._postgres.lock:
            found, newest = self._tables.read(_KNOWS_KEY, (key,))[0]
            if found or newest is None:
                return bool(found)
            return newest != self._plain.seq or self._plain.has_key(key)


def new_token() -> str:
    """Of one append; ordered by time, so that its index grows at its end."""
    return f"{time.time_ns():016x}{os.urandom(8).hex()}"


_TAKE = "SELECT * FROM take(?, ?, ?, ?::integer, ?, ?, ?::bigint, ?, ?::bigint, ?)"
_CLAIM = "SELECT * FROM claim(?, ?::bigint, ?, ?, ?::integer, ?, ?, ?::bigint, ?, ?, ?, ?, ?)"
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
        free = -1  # a generation that no process has
        while True:
            found = self._database.read(_TAKE, (run, *owner, self._machine, lasts, token, free, expired))[0]
            taken, generation, boot, space, pid, started, expires_at, is_over = found
            lease = Lease(run, generation, Owner(boot, space, pid, started), expires_at)
            if taken:
                return lease
            # Whether a process lives only its own machine can tell.
            if generation == free or not may_take(lease, is_over, self._alive):
                raise held(lease)
            free = generation

    def claim(
        self, owner: Owner, now: int, lasts: int, workflows: Sequence[str], stops: Sequence[Stop] = ()
    ) -> Lease | None:
        stopped = of_claims(stops)
        if not workflows or stopped.everything:
            return None
        look = time.monotonic() - self._looked > _LOOK_FOR_DEAD
        lease = self._claim(owner, now, lasts, workflows, self._dead() if look else [], stopped)
        if lease is None and not look and (dead := self._dead()):
            lease = self._claim(owner, now, lasts, workflows, dead, stopped)
        return lease

    def _claim(
        self,
        owner: Owner,
        now: int,
        lasts: int,
        workflows: Sequence[str],
        dead: list[str],
        stopped: NotClaimed,
    ) -> Lease | None:
        token, again = new_token(), False

        def asked(session: Any) -> list[Any]:
            nonlocal again
            passed_over = (list(stopped.agents), list(stopped.runs))
            values = (list(workflows), now, *owner, self._machine, lasts, token, again, dead, *passed_over)
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
        return found is None or may_take(*found, self._alive)

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
