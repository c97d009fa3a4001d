"""A SQLite file, reached through its adapter and, beside it, as anybody else would."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from takeback.adapters.database import Keyring
from takeback.adapters.sqlite.adapter import SqliteAdapter
from takeback.adapters.sqlite.session import SqliteSession
from takeback.model.database import Database
from takeback.model.effect import Effect
from takeback.model.effect import State as EffectState
from tests.memory import MemoryBlobs
from tests.sql.engines import intended
from tests.sql.sqlite_cases import T


class World:
    def __init__(self, file: Path, journal: str, protected: bool = False) -> None:
        self.file, self.journal, self._protected = file, journal, protected
        self.keyring = Keyring()
        self.database: Database = self.keyring.named(f"sqlite:///{file}")
        self.adapter = SqliteAdapter(MemoryBlobs(), self.keyring)

    def make(self, script: str) -> None:
        self.file.touch()
        with closing(sqlite3.connect(self.file)) as connection:
            connection.execute(f"PRAGMA journal_mode = {self.journal}")
            connection.executescript(script)
            connection.commit()
        if self._protected:
            self.adapter.protect(self.database, ())

    def others(self, statement: str) -> None:
        with closing(sqlite3.connect(self.file, timeout=120, isolation_level=None)) as connection:
            connection.execute(statement)

    def ask(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(self.file, timeout=120)) as connection:
            return connection.execute(query).fetchall()

    def state(self) -> dict[str, Any]:
        """Everything but the log: with types and rowids, as someone else reads it."""
        with closing(sqlite3.connect(self.file, timeout=120)) as connection:
            schema = connection.execute(
                "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE tbl_name NOT LIKE 'takeback%' ORDER BY 1, 2"
            ).fetchall()
            found: dict[str, Any] = {
                "schema": schema,
                "version": connection.execute("PRAGMA user_version").fetchall(),
            }
            for kind, name, _, _ in schema:
                if kind == "table":
                    rows = connection.execute(
                        f'SELECT * FROM "{name.replace(chr(34), chr(34) * 2)}"'
                    ).fetchall()
                    found[name] = sorted(map(repr, rows))  # 1 is not 1.0
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return found

    def do(self, statements: tuple[str, ...]) -> Effect | None:
        session = self.adapter.connect(self.database)
        try:
            rest = list(statements)
            while rest and rest[0].startswith("PRAGMA foreign_keys"):
                assert session.read(rest.pop(0), ()) is not None
            effect = intended(self.adapter, session.database, rest[0])
            session.begin(effect)
            try:
                for text in rest:
                    session.execute(text, ())
                receipt = session.commit()
            except BaseException:
                session.rollback()
                raise
        finally:
            session.close()
        return effect._replace(state=EffectState.DONE, receipt=receipt) if receipt is not None else None


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "app.db", "delete")
    made.make(T)
    yield made
    made.adapter.close()


@pytest.fixture
def session(world: World) -> Iterator[SqliteSession]:
    made = world.adapter.connect(world.database)
    yield made
    made.close()


def done(world: World, *statements: str) -> Effect:
    effect = world.do(statements)
    assert effect is not None
    return effect
