"""Every kind of statement: taken back exactly, or refused with nothing changed; brought back; and what others do since
is found."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from takeback.adapters.database.keyring import Keyring
from takeback.adapters.sqlite.adapter import SqliteAdapter
from takeback.errors import Conflict, NoRemedy, Refused, StatementFailed
from takeback.model.database import Database
from takeback.model.effect import Effect
from takeback.model.effect import State as EffectState
from takeback.model.plan import Outcome
from takeback.storage.memory_blobs import MemoryBlobs
from takeback.testing.adapter_desk import Desk, undo_of
from tests.sql.engines import intended
from tests.sql.sqlite_cases import CASES, EXACT, FAILS, NOTHING, READS, Case


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


# Small effects are logged in another way when the log is there already, as it mostly is.
@pytest.fixture(params=[("delete", False), ("wal", True)], ids=["delete", "wal, protected"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "app.db", *request.param)
    yield made
    made.adapter.close()


def cases(*expected: str) -> Any:
    chosen = [case for case in CASES if case.expect in expected]
    return pytest.mark.parametrize("case", chosen, ids=[case.name for case in chosen])


@cases(EXACT)
def test_it_is_taken_back_exactly_and_brought_back(world: World, case: Case) -> None:
    world.make(case.before)
    before = world.state()
    effect = world.do(case.statements)
    assert effect is not None
    after = world.state()
    assert after != before
    if case.since:
        world.others(case.since)
    if case.conflict:
        changed = world.state()
        outcomes = world.adapter.assess(undo_of(effect), effect).outcomes
        assert Outcome.CONFLICT in {one.outcome for one in outcomes}
        with pytest.raises(Conflict):
            Desk(world.adapter).undo(effect)
        assert world.state() == changed
        return

    undone = Desk(world.adapter).undo(effect)

    if case.since:
        assert world.ask(case.kept)
        return
    assert world.state() == before
    assert list(world.adapter.rows(effect)) or effect.receipt["schema"]
    redone = Desk(world.adapter).undo(undone)
    assert world.state() == after
    Desk(world.adapter).undo(redone)
    assert world.state() == before


@cases(NOTHING)
def test_what_changes_nothing_is_no_effect(world: World, case: Case) -> None:
    world.make(case.before)
    before = world.state()

    assert world.do(case.statements) is None
    assert world.state() == before


@cases(FAILS)
def test_what_fails_leaves_nothing(world: World, case: Case) -> None:
    world.make(case.before)
    before = world.state()

    with pytest.raises(StatementFailed) as caught:
        world.do(case.statements)

    assert caught.value.hint and world.state() == before


@cases("refused")
def test_what_cannot_be_taken_back_is_refused(world: World, case: Case) -> None:
    world.make(case.before)
    world.adapter.protect(world.database, ())
    before = world.state()

    with pytest.raises((Refused, NoRemedy)) as caught:
        world.do(case.statements)

    assert caught.value.hint and world.state() == before


@cases(READS)
def test_what_only_reads_is_no_effect(world: World, case: Case) -> None:
    world.make(case.before)
    session = world.adapter.connect(world.database)
    try:
        assert session.read(case.statements[0], ()) is not None
    finally:
        session.close()
