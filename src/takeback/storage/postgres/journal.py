"""The journal in PostgreSQL: appended to by one function there, in one trip; read by the statements of SQLite's."""

import json
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from takeback.errors import TakebackError
from takeback.model.flaw import Flaw
from takeback.model.record import Draft, Kind, Record, canonical
from takeback.model.run import Lease
from takeback.storage.bodies import deflated
from takeback.storage.leases import refuse_unheld
from takeback.storage.postgres.connecting import driver
from takeback.storage.postgres.database import PostgresDatabase, Session
from takeback.storage.postgres.facts import facts_of
from takeback.storage.postgres.plain import Plain
from takeback.storage.postgres.speaking import Statement, bytes_of, flag, jsonb, number, texts
from takeback.storage.sqlite import SqlJournal

_APPEND = Statement(
    "takeback_append",
    "SELECT * FROM append_to_projects($1::text, $2::bigint, $3::bigint, $4::text, $5::boolean, $6::text[], $7::text[],"
    " $8::text[], $9::text[], $10::text[], $11::bytea[], $12::bytea[], $13::jsonb, $14::boolean)",
)
_KNOWS_KEY = (
    "SELECT EXISTS (SELECT 1 FROM effects WHERE key = ? AND key <> ''),"
    " CASE WHEN unlisted() THEN (SELECT seq FROM records ORDER BY seq DESC LIMIT 1) END"
)
_CAN_LIST = "SELECT unlisted() AND has_table_privilege('turn', 'UPDATE')"
# Of effects that are not listed, where nobody can do that.
_WAITING = (
    "SELECT effect FROM records WHERE effect <> '' AND seq > coalesce((SELECT n FROM tally WHERE name = 'listed'), 0)"
    " AND seq > coalesce((SELECT seq FROM records WHERE key IS NULL ORDER BY seq DESC LIMIT 1), 0)"
)
_NUMBER = struct.Struct("!q")
_ONCE = (Kind.INTENT, Kind.DONE, Kind.ABORT)  # what an effect can do but once tells whether it was done
_FACTS = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class PostgresJournal(SqlJournal):
    _IN_FLIGHT = "e.seq IN (SELECT seq FROM in_flight)"

    def __init__(self, database: PostgresDatabase, now: Callable[[], int] | None = None) -> None:
        """Without `now` the clock of the server tells when."""
        super().__init__(database)
        self._postgres = database
        self._now = now
        self._plain = Plain(database, now)
        database.after_rollback.append(self._plain.forget)

    def append(self, lease: Lease | None, drafts: Sequence[Draft]) -> tuple[Record, ...]:
        refuse_unheld(lease, drafts)
        if not drafts:
            return ()
        bodies = [canonical(draft.body) for draft in drafts]
        kept = [deflated(body) for body in bodies]
        token = None if drafts[0].kind in _ONCE else new_token().encode()
        run = lease.run if lease else ""

        def asked(session: Session, again: bool) -> tuple[Record, ...]:
            if lease and not again:
                records = self._plainly(session, lease, drafts, bodies, kept, token)
                if records:
                    return records
            return self._wholly(session, lease, drafts, bodies, kept, token, again)

        database = self._postgres
        with database.lock:
            if database.plain:
                return database.once(asked, run)
            with database.write() as session, database.understood(run):
                records = asked(session, False)
                database.appended(records[0].seq, records[0].hash)
                return records

    def _plainly(self, session: Session, *what: Any) -> tuple[Record, ...] | None:
        psycopg = driver()
        try:
            return self._plain.append(session, *what)
        except psycopg.errors.UniqueViolation:
            if session.in_transaction:
                raise
            return None  # someone else came in between; the tables will tell what may be appended now

    def _wholly(
        self,
        session: Session,
        lease: Lease | None,
        drafts: Sequence[Draft],
        bodies: Sequence[bytes],
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
            bytes_of(bodies),
            bytes_of(kept),
            jsonb(_FACTS.encode([facts_of(draft) for draft in drafts])),
            flag(lease is not None and self._plain.wants_to_know),
        )
        ((seq, made_at, hashes, is_open, held),) = _APPEND.ask(session.connection, session.prepared, values)
        (first,), (at,) = _NUMBER.unpack(seq), _NUMBER.unpack(made_at)
        records = tuple(
            Record(first + n, one.kind, one.run, one.effect, at, one.body, hashes[32 * n : 32 * n + 32])
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
        from takeback.storage.check_sqlite import check_records

        with suppress(TakebackError):  # whatever keeps it from being listed is among the findings
            self._list()
        waiting = self._postgres.read(_WAITING) if self._postgres.read_only else []
        for finding in check_records(self._postgres):
            if (finding.effect,) not in waiting:
                yield finding

    def _list(self) -> None:
        """The tables tell of every record before they are read; on a replica, and to a role that may only read, of what
        was listed by others."""
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
