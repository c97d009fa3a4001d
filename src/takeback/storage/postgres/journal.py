"""The journal in PostgreSQL: appended to by one function there, in one trip; read by the statements of SQLite's."""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from takeback.model.record import Draft, Record, canonical
from takeback.model.run import Lease
from takeback.storage.bodies import deflated
from takeback.storage.leases import refuse_unheld
from takeback.storage.postgres.database import PostgresDatabase, Session
from takeback.storage.postgres.facts import facts_of
from takeback.storage.sqlite import SqlJournal

_APPEND = (
    b"SELECT * FROM append(%s::text, %s::bigint, %s::bigint, %s::text, %s::boolean, %s::text[], %s::text[], %s::text[],"
    b" %s::bytea[], %s::bytea[], %s::jsonb)"
)


class PostgresJournal(SqlJournal):
    def __init__(self, database: PostgresDatabase, now: Callable[[], int] | None = None) -> None:
        """Without `now` the clock of the server tells when."""
        super().__init__(database)
        self._postgres = database
        self._now = now

    def append(self, lease: Lease | None, drafts: Sequence[Draft]) -> tuple[Record, ...]:
        refuse_unheld(lease, drafts)
        if not drafts:
            return ()
        token = new_token()
        bodies = [canonical(draft.body) for draft in drafts]
        rest = (
            [draft.kind.value for draft in drafts],
            [draft.run for draft in drafts],
            [draft.effect for draft in drafts],
            bodies,
            [deflated(body) for body in bodies],
            json.dumps([facts_of(draft) for draft in drafts], ensure_ascii=False),
        )
        fence = (lease.run, lease.generation) if lease else (None, None)
        at = self._now() if self._now else None

        def asked(session: Session, again: bool) -> list[Any]:
            values = (*fence, at, token, again, *rest)
            return session.connection.execute(_APPEND, values, prepare=True, binary=True).fetchall()

        run = lease.run if lease else ""
        database = self._postgres
        if database.plain:
            rows = database.once(asked, run)
        else:
            with database.write() as session, database.understood(run):
                rows = asked(session, False)
                database.appended(token)
        return tuple(
            Record(seq, draft.kind, draft.run, draft.effect, made_at, draft.body, hash)
            for draft, (seq, made_at, hash) in zip(drafts, rows, strict=True)
        )

    def resolve(self, prefix: str) -> tuple[str, ...]:
        return () if "\0" in prefix else super().resolve(prefix)

    def check(self) -> Iterator[str]:
        from takeback.storage.check_sqlite import check_records

        return check_records(self._postgres)


def new_token() -> str:
    """Of one append; ordered by time, so that its index grows at its end."""
    return f"{time.time_ns():016x}{os.urandom(8).hex()}"
