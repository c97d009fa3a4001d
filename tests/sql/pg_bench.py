"""A PostgreSQL database, and effects on it; each step by a fresh adapter, as fresh processes would have it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from takeback.adapters.database import Keyring
from takeback.adapters.postgres.adapter import PostgresAdapter
from takeback.adapters.postgres.session import PostgresSession
from takeback.model.change import OnConflict
from takeback.model.database import Database
from takeback.model.effect import Effect, State
from takeback.model.plan import TargetOutcome
from takeback.testing.adapter_suite import Desk, undo_of
from tests.memory import MemoryBlobs
from tests.sql.engines import intended, made

_SYSTEM = Path("/usr/lib/postgresql/15/bin")


class PgBench:
    def __init__(self, url: str, programs: Path = _SYSTEM) -> None:
        self.url = url
        self.pg_dump = str(programs / "pg_dump")
        self.blobs = MemoryBlobs()
        self.keyring = Keyring()
        self.database: Database = self.keyring.named(url)
        self.by_hand = psycopg.connect(url, autocommit=True)

    def close(self) -> None:
        self.by_hand.close()

    def adapter(self) -> PostgresAdapter:
        return PostgresAdapter(self.blobs, self.keyring)

    def protect(self, *tables: str) -> None:
        self.adapter().protect(self.database, tables)

    @contextmanager
    def session(self) -> Iterator[PostgresSession]:
        session = self.adapter().connect(self.database)
        try:
            yield session
        finally:
            session.close()

    def do(self, *statements: str, parameters: Any = (), summary: str = "") -> Effect:
        """All of them as one effect."""
        found = self.try_to(*statements, parameters=parameters, summary=summary)
        assert found is not None, "nothing was changed"
        return found

    def try_to(self, *statements: str, parameters: Any = (), summary: str = "") -> Effect | None:
        asked = [(statement, parameters) for statement in statements]
        return made(self.adapter(), self.database, *asked, summary=summary)

    @contextmanager
    def program(self, **given: str) -> "Iterator[psycopg.Connection[Any]]":
        """A session of a program with a driver of its own. `effect` is what it did, and `told` what was said, when it
        has ended."""
        adapter = self.adapter()
        effect = intended(adapter, self.database, "a program")
        self.told: list[str] = []
        variables = adapter.enter(effect, lambda sentence, hint: self.told.append(sentence))
        options = {"options": variables["PGOPTIONS"], "application_name": variables["PGAPPNAME"]} | given
        with psycopg.connect(self.url, autocommit=True, **options) as connection:  # pyright: ignore
            yield connection
        self.effect = effect._replace(state=State.DONE, receipt=adapter.leave(effect) or {})

    def undo(self, effect: Effect, on_conflict: OnConflict = OnConflict.REFUSE) -> Effect:
        return Desk(self.adapter()).undo(effect, on_conflict)

    def outcomes(
        self, effect: Effect, on_conflict: OnConflict = OnConflict.REFUSE
    ) -> Sequence[TargetOutcome]:
        return self.adapter().assess(undo_of(effect, on_conflict), effect).outcomes

    def run(self, *statements: str) -> None:
        """By someone who is not recorded."""
        for statement in statements:
            self.by_hand.execute(statement.encode())

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.by_hand.execute(query.encode()).fetchall()

    def world(self) -> dict[str, list[str]]:
        """Every row of every table, as text."""
        tables = self.rows(
            "select format('%I.%I', n.nspname, c.relname) from pg_class c "
            "join pg_namespace n on n.oid = c.relnamespace "
            "where c.relkind = 'r' and c.relpersistence <> 't' "
            "and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^takeback' order by 1"
        )
        return {
            name: sorted(row[0] for row in self.rows(f"select t::text from only {name} t"))
            for (name,) in tables
        }
