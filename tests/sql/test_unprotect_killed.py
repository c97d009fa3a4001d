"""`sql unprotect` killed anywhere: each way back is in force and works, or is recorded as given up."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import takeback
from takeback.adapters.database import Databases
from takeback.adapters.mariadb.wire import Wire
from takeback.adapters.postgres.patient_connection import PatientConnection
from takeback.adapters.redis.connection import RedisLink
from takeback.adapters.sqlite.process import SqliteChild
from takeback.api import opened_of
from takeback.testing.crash import (
    Boundaries,
    in_a_process,
    killed_everywhere,
    open_wrapped,
    wrap_system_calls,
)
from tests.sql.conftest import SET_UP, served, sqlite_shop

# What asks something of a database: a boundary before it and one after it.
QUESTIONS: tuple[tuple[Any, str], ...] = (
    (PatientConnection, "execute"), (Wire, "run"), (Wire, "rows"), (RedisLink, "ask"), (SqliteChild, "ask"),
)  # fmt: skip
CLEAR = ("DROP TABLE IF EXISTS orders", "DROP TABLE IF EXISTS users")
READ = {"redis": ("GET a", "GET b")}
WORK = {"redis": ("SET a 2", "SET b 2")}
ADDRESS = "env:APP_DB"
Count = Callable[[str, object], None]


class Ground(NamedTuple):
    """A database with one change in force and one undone, made anew for every death."""

    engine: str
    store: Path
    outside: Callable[[str], None]

    def prepare(self) -> None:
        with takeback.open(self.store) as tb:
            for statement in ("SET a 1", "SET b 1") if self.engine == "redis" else (*CLEAR, *SET_UP):
                self.outside(statement)
            tb.unprotect(ADDRESS)
            database = opened_of(tb).parts.named(ADDRESS)
            adapter = opened_of(tb).parts.adapters[database.engine]
            assert isinstance(adapter, Databases)
            adapter.protect(database, ())
            for statement in WORK.get(
                self.engine, ("UPDATE users SET role = 'none'", "DELETE FROM orders WHERE id = 10")
            ):
                with tb.run("work") as run:
                    run.sql(ADDRESS).execute(statement)
            tb.undo("@")

    def seen(self) -> list[object]:
        asked = READ.get(
            self.engine, ("SELECT id, role FROM users ORDER BY id", "SELECT id FROM orders ORDER BY id")
        )
        with takeback.open(self.store) as tb, tb.run("look") as run:
            return [run.sql(ADDRESS).execute(one).rows for one in asked]

    def unprotect(self, boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        for kind, name in QUESTIONS:
            setattr(kind, name, _counted(kind, name, boundaries))
        with open_wrapped(str(self.store), boundaries) as tb:
            tb.unprotect(ADDRESS)

    def check(self, first: list[object], at: int) -> str:
        where = f"killed at boundary {at}" if at else "not killed"
        with takeback.open(self.store) as tb:
            mine = tb.effects(newest=True, limit=3)
            gone = {one.forgotten for one in mine}
            assert len(gone) == 1, f"{where}: some are given up, others are not: {mine}"
            if not mine[0].forgotten:
                tb.redo()
                tb.undo([one.id for one in mine if not one.is_undo])
                assert self.seen() == first, where
            for one in mine if mine[0].forgotten else ():
                with pytest.raises(takeback.Refused, match="undo data was deleted"):
                    tb.undo(one.id)
            _, left = tb.unprotect(ADDRESS)
            assert bool(left) is not mine[0].forgotten, where
            tb.sweep(0)
            assert tb.verify().sound, where
        return "given up" if mine[0].forgotten else "in force"


def _counted(kind: Any, name: str, boundaries: Boundaries) -> Callable[..., Any]:
    inner = getattr(kind, name)

    def call(*args: Any, **options: Any) -> Any:
        boundaries.pass_one(f"before {kind.__name__}.{name}")
        answer = inner(*args, **options)
        boundaries.pass_one(f"after {kind.__name__}.{name}")
        return answer

    return call


@pytest.fixture(params=["sqlite", "postgres", "mariadb", "redis"])
def ground(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    store = tmp_path / "store"
    if request.param == "sqlite":
        shop = sqlite_shop(tmp_path)
        monkeypatch.setenv("APP_DB", shop.url)
        return Ground("sqlite", store, shop.outside)
    if request.param == "redis":
        found = request.getfixturevalue("redis_database")

        def outside(statement: str) -> None:
            connection = found.connect()
            connection.execute_command(*statement.split())
            connection.close()

        monkeypatch.setenv("APP_DB", found.url)
        return Ground("redis", store, outside)
    found = request.getfixturevalue("pg_database" if request.param == "postgres" else "maria_database")
    shop = served(found, request.param)
    monkeypatch.setenv("APP_DB", shop.url)
    return Ground(request.param, store, shop.outside)


def first_of(ground: Ground) -> list[object]:
    """What the rows were before anything was done."""
    ground.prepare()
    with takeback.open(ground.store) as tb:
        tb.undo([one.id for one in tb.effects(state="done") if not one.is_undo])
    return ground.seen()


@pytest.mark.sampled(4)
def test_fresh_eyes_2_killed_around_the_record_no_way_back_is_promised_that_is_gone(
    ground: Ground, record_property: Count
) -> None:
    first = first_of(ground)
    ground.prepare()
    passed = in_a_process(ground.unprotect, Boundaries()).passed
    ground.check(first, 0)
    seen: list[str] = []
    for number in (
        passed.index("before journal.append") + 1, passed.index("after journal.append") + 1, len(passed)
    ):  # fmt: skip
        ground.prepare()
        end = in_a_process(ground.unprotect, Boundaries(number))
        assert end.killed, end.error
        seen.append(ground.check(first, number))
    record_property("processes killed at a boundary", len(seen))
    assert seen == ["in force", "given up", "given up"]


def test_fresh_eyes_2_a_removal_that_stopped_at_any_statement_is_finished_by_the_next(
    maria_database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB has no transaction for it."""
    monkeypatch.setenv("APP_DB", maria_database.url)
    ground = Ground("mariadb", tmp_path / "store", served(maria_database, "mariadb").outside)
    run, tables = Wire.run, 0

    def stopped(self: Wire, statement: str, *words: Any) -> Any:
        nonlocal tables
        if statement.startswith("DROP TABLE"):
            tables += 1
            if tables > done:
                raise takeback.ResourceUnreachable("The server is gone.")
        return run(self, statement, *words)

    for done in range(7):  # as many tables as there are
        ground.prepare()
        tables = 0
        with takeback.open(ground.store) as tb:
            monkeypatch.setattr(Wire, "run", stopped)
            with pytest.raises(takeback.ResourceUnreachable) as told:
                tb.unprotect(ADDRESS)
            monkeypatch.setattr(Wire, "run", run)
            assert "ways back are given up" in told.value.hint
            cover, gone = tb.unprotect(ADDRESS)
            assert not cover.protected and not gone, done


def test_closing_a_store_closes_its_connections_to_postgresql(
    pg_database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APP_DB", pg_database.url)
    ground = Ground("postgres", tmp_path / "store", served(pg_database, "postgres").outside)

    ground.prepare()

    with closing(pg_database.connect()) as connection:
        found = connection.execute(
            "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND application_name = 'takeback'"
        ).fetchall()
    assert not found


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_fresh_eyes_2_killed_at_every_boundary_of_unprotect(ground: Ground, record_property: Count) -> None:
    first, seen = first_of(ground), set[str]()
    deaths = killed_everywhere(ground.prepare, ground.unprotect, lambda at: seen.add(ground.check(first, at)))
    record_property("processes killed at a boundary", deaths)
    assert seen == {"in force", "given up"} and deaths > 10
