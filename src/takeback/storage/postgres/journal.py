"""The journal in PostgreSQL: appended to by one function there, in one trip; read by the statements of SQLite's."""

import json
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from takeback.model.record import Draft, Kind, Record, canonical
from takeback.model.run import Lease
from takeback.storage.bodies import deflated
from takeback.storage.leases import refuse_unheld
from takeback.storage.postgres.database import PostgresDatabase, Session
from takeback.storage.postgres.facts import facts_of
from takeback.storage.postgres.speaking import Statement, bytes_of, flag, jsonb, number, texts
from takeback.storage.sqlite import SqlJournal

_APPEND = Statement(
    "takeback_append",
    "SELECT * FROM append($1::text, $2::bigint, $3::bigint, $4::text, $5::boolean, $6::text[], $7::text[], $8::text[],"
    " $9::text[], $10::text[], $11::bytea[], $12::bytea[], $13::jsonb)",
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

    def append(self, lease: Lease | None, drafts: Sequence[Draft]) -> tuple[Record, ...]:
        refuse_unheld(lease, drafts)
        if not drafts:
            return ()
        bodies = [canonical(draft.body) for draft in drafts]
        fence = (lease.run.encode(), number(lease.generation)) if lease else (None, None)
        token = "" if drafts[0].kind in _ONCE else new_token()
        at = number(self._now() if self._now else None)
        before = (*fence, at, token.encode() or None)
        after = (
            texts([draft.kind.value for draft in drafts]),
            texts([draft.run for draft in drafts]),
            texts([draft.effect for draft in drafts]),
            texts([draft.body.get("key", "") if draft.effect else "" for draft in drafts]),
            texts([draft.body.get("resource", "") if draft.effect else "" for draft in drafts]),
            bytes_of(bodies),
            bytes_of([deflated(body) for body in bodies]),
            jsonb(_FACTS.encode([facts_of(draft) for draft in drafts])),
        )

        def asked(session: Session, again: bool) -> list[Any]:
            return _APPEND.ask(session.connection, session.prepared, (*before, flag(again), *after))

        run = lease.run if lease else ""
        database = self._postgres
        if database.plain:
            rows = database.once(asked, run)
        else:
            with database.write() as session, database.understood(run):
                rows = asked(session, False)
                database.appended(_NUMBER.unpack(rows[0][0])[0], rows[0][2][:32])
        seq, made_at, hashes = rows[0]
        (first,), (when,) = _NUMBER.unpack(seq), _NUMBER.unpack(made_at)
        return tuple(
            Record(first + n, one.kind, one.run, one.effect, when, one.body, hashes[32 * n : 32 * n + 32])
            for n, one in enumerate(drafts)
        )

    def tally(self) -> dict[str, int]:
        """Those that are done are not counted one by one: they are what is left of all."""
        counts = {str(name): int(n) for name, n in self._tables.read("SELECT name, n FROM tally WHERE n > 0")}
        in_flight = self._tables.read(
            "SELECT e.state, count(*) FROM in_flight f JOIN effects e ON e.seq = f.seq GROUP BY 1"
        )
        ((records, effects),) = self._tables.read(
            "SELECT coalesce((SELECT seq FROM records ORDER BY seq DESC LIMIT 1), 0),"
            " coalesce((SELECT ordinal FROM effects ORDER BY seq DESC LIMIT 1), 0)"
        )
        done = effects - counts.get("aborted", 0) - counts.get("undone", 0) - sum(n for _, n in in_flight)
        return counts | dict(in_flight) | ({"done": done} if done else {}) | {"records": records}

    def resolve(self, prefix: str) -> tuple[str, ...]:
        return () if "\0" in prefix else super().resolve(prefix)

    def check(self) -> Iterator[str]:
        from takeback.storage.check_sqlite import check_records

        return check_records(self._postgres)


def new_token() -> str:
    """Of one append; ordered by time, so that its index grows at its end."""
    return f"{time.time_ns():016x}{os.urandom(8).hex()}"
