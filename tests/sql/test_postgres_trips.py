"""What goes to PostgreSQL and back: one connection for one undo, few trips, and nothing presumed that is not so."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

import takeback
from takeback.adapters.postgres.adapter import PostgresAdapter
from takeback.adapters.postgres.ddl import definitions
from takeback.adapters.postgres.logs import MANY
from takeback.adapters.postgres.patient_connection import PatientConnection
from takeback.errors import Conflict
from takeback.model.plan import Outcome, Standing
from takeback.testing.adapter_suite import Desk, undo_of
from tests.servers.process import wait_until
from tests.sql.engines import intended
from tests.sql.pg_bench import PgBench

_SESSIONS = "from pg_stat_activity where application_name = 'takeback' and datname = current_database()"


class Seen(NamedTuple):
    connects: list[str]
    trips: list[str]
    statements: list[str]  # of which several may go in one trip


@pytest.fixture
def bench(pg_database: Any) -> Iterator[PgBench]:
    bench = PgBench(pg_database.url)
    bench.run(
        "create table users (id int primary key, name text, age int)",
        "insert into users values (1, 'Ann', 30), (2, 'Bob', 40), (3, 'Cy', 50)",
    )
    bench.protect()
    yield bench
    bench.close()


@pytest.fixture
def seen(bench: PgBench, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Whatever is asked of the server from now on by takeback."""
    found = Seen([], [], [])
    connect: Callable[..., Any] = PatientConnection.connect
    execute: Callable[..., Any] = psycopg.Connection.execute
    pipeline: Callable[..., Any] = psycopg.Connection.pipeline

    def connected(*args: Any, **named: Any) -> Any:
        found.connects.append("")
        return connect(*args, **named)

    def executed(self: Any, statement: bytes, *args: Any, **named: Any) -> Any:
        found.statements.append(statement.decode())
        if not self._pipeline:  # those in a pipeline go together
            found.trips.append(statement.decode())
        return execute(self, statement, *args, **named)

    def pipelined(self: Any) -> Any:
        found.trips.append("several")
        return pipeline(self)

    monkeypatch.setattr(PatientConnection, "connect", connected)
    monkeypatch.setattr(psycopg.Connection, "execute", executed)
    monkeypatch.setattr(psycopg.Connection, "pipeline", pipelined)
    return found


def test_an_undo_has_one_connection_and_few_trips(bench: PgBench, seen: Seen) -> None:
    effect = bench.do("update users set age = 31 where id = 1")
    seen.connects.clear()
    seen.trips.clear()
    bench.undo(effect)
    assert len(seen.connects) == 1
    assert len(seen.trips) <= 15, seen.trips


def test_finding_r5_the_schema_is_read_only_where_it_changed(
    bench: PgBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading it is most of what a schema change takes."""
    read: Callable[..., Any] = definitions.read
    reads: list[str] = []
    monkeypatch.setattr(definitions, "read", lambda connection: reads.append("") or read(connection))

    def count(*statements: str) -> int:
        bench.run(*(f"create index i{number} on users (age)" for number in range(6)))
        with bench.program() as connection, connection.transaction():
            for statement in statements:
                connection.execute(statement.encode())
        reads.clear()
        bench.undo(bench.effect)
        bench.run(*(f"drop index i{number}" for number in range(6)))
        return len(reads)

    assert count("drop index i0") <= 10
    assert count(*(f"drop index i{number}" for number in range(6))) <= 60


def test_a_small_transaction_makes_no_connection_and_few_trips(bench: PgBench, seen: Seen) -> None:
    adapter = bench.adapter()
    with bench.session() as session:
        for _ in range(2):
            seen.connects.clear()
            seen.trips.clear()
            effect = intended(adapter, session.database, "update")
            session.begin(effect)
            session.execute("update users set age = age + 1 where id = 1", ())
            assert session.commit()
            assert adapter.verify(effect).standing is Standing.AFTER
        assert not seen.connects
        assert len(seen.trips) <= 8, seen.trips


def test_whoever_undoes_one_effect_need_not_know_what_stands_on_it(
    bench: PgBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with takeback.open(tmp_path / "store") as tb:
        with tb.run("agent") as run:
            effect = run.sql(bench.url).execute("update users set age = 31 where id = 1").effect
        assert effect
        monkeypatch.setattr(PostgresAdapter, "standing_on", None)
        assert tb.undo(effect).outcome == "done"


def test_a_connection_that_the_server_ended_is_made_again(bench: PgBench, seen: Seen) -> None:
    effect = bench.do("update users set age = 31 where id = 1")
    adapter = bench.adapter()
    assert adapter.verify(effect).standing is Standing.AFTER
    bench.run(f"select pg_terminate_backend(pid, 10000) {_SESSIONS}")
    seen.connects.clear()
    assert adapter.verify(effect).standing is Standing.AFTER
    assert len(seen.connects) == 1


def test_a_child_does_not_speak_for_its_parent(
    bench: PgBench, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect = bench.do("update users set age = 31 where id = 1")
    adapter, parent = bench.adapter(), os.getpid()
    adapter.verify(effect)
    seen.connects.clear()
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        adapter.verify(effect)
        adapter.verify(effect)
        assert len(seen.connects) == 1
        child.setattr(os, "getpid", lambda: parent)
        adapter.verify(effect)
        assert len(seen.connects) == 1
        child.setattr(os, "getpid", lambda: -1)
        _ended(bench, adapter, 1)
    _ended(bench, adapter, 0)


def _ended(bench: PgBench, adapter: PostgresAdapter, left: int) -> None:
    """The end of an adapter is the end of what it kept, for the process that it is in."""
    links = adapter._links  # pyright: ignore[reportPrivateUsage]
    links.close()
    wait_until(lambda: bench.rows(f"select count(*) {_SESSIONS}") == [(left,)], "a session ends")


def test_what_an_adapter_kept_ends_with_it(bench: PgBench) -> None:
    effect = bench.do("update users set age = 31 where id = 1")
    adapter = bench.adapter()
    adapter.verify(effect)
    assert bench.rows(f"select count(*) {_SESSIONS}") == [(1,)]
    del adapter
    wait_until(lambda: bench.rows(f"select count(*) {_SESSIONS}") == [(0,)], "a session ends")


@pytest.mark.parametrize(
    ("done", "since", "says"),
    [
        (
            "update users set age = age + 1",
            "update users set age = 99 where id = 2",
            "id=2 was changed since",
        ),
        ("update users set age = age + 1", "delete from users where id = 2", "id=2 was deleted since"),
        ("delete from users", "insert into users values (2, 'new', 1)", "id=2 is there again since"),
        (
            "insert into users values (4, 'Di', 1)",
            "update users set age = 2 where id = 4",
            "id=4 was changed since",
        ),
    ],
)
def test_what_changes_after_the_last_look_is_named(bench: PgBench, done: str, since: str, says: str) -> None:
    """An undo that was planned puts rows back without reading them first; what is in the way is then found."""
    effect = bench.do(done)
    desk = Desk(bench.adapter())
    undo = desk.intend(undo_of(effect), effect)
    bench.run(since)
    before = bench.world()
    with pytest.raises(Conflict, match=says):
        desk.adapter.apply(undo)
    assert bench.world() == before


def test_what_was_put_back_by_hand_after_the_last_look_is_no_conflict(bench: PgBench) -> None:
    before = bench.world()
    effect = bench.do("update users set age = age + 1")
    desk = Desk(bench.adapter())
    undo = desk.intend(undo_of(effect), effect)
    bench.run("update users set age = 40 where id = 2")
    desk.adapter.apply(undo)
    assert bench.world() == before


def test_a_row_that_took_another_key_is_no_obstacle(bench: PgBench) -> None:
    """Not one of the rows was there both before and after: then they are not looked at in pairs."""
    before = bench.world()
    effect = bench.do("update users set id = id + 10")
    assert [one.outcome for one in bench.outcomes(effect)] == [Outcome.UNDONE]
    bench.undo(effect)
    assert bench.world() == before


def test_an_undo_of_many_rows_reads_the_log_only_where_they_are(bench: PgBench, seen: Seen) -> None:
    bench.run(f"insert into users select i, 'more', 1 from generate_series(4, {2 * MANY}) i")
    first = bench.do("update users set age = age + 1")
    bench.do(f"insert into users select i, 'most', 1 from generate_series({2 * MANY + 1}, {4 * MANY}) i")
    before = bench.rows("select age, count(*) from users group by 1 order by 1")
    assert bench.undo(bench.undo(first))
    assert bench.rows("select age, count(*) from users group by 1 order by 1") == before
    updates = [one for one in seen.statements if one.startswith("update only")]
    places = [
        re.findall(r"sign [<>] 0 and ctid between '\((\d+),\d+\)' and '\((\d+),\d+\)'", one)
        for one in updates
    ]
    assert [len(one) for one in places] == [2, 2]
    (before_it, after_it), back = places
    assert [after_it, before_it] == back
    assert int(before_it[1]) <= int(after_it[0]), "what it found is written before what it made"


def test_a_number_with_more_digits_behind_the_point_is_another(bench: PgBench) -> None:
    bench.run("create table prices (id int primary key, price numeric)")
    bench.protect()
    bench.run("insert into prices values (1, 1.0), (2, 'NaN'), (3, null)")
    effect = bench.do("update prices set price = case id when 1 then 2.0 when 2 then null else 'NaN' end")
    bench.run("update prices set price = 2.00 where id = 1")
    assert [one.outcome for one in bench.outcomes(effect)] == [Outcome.UNDONE, Outcome.CONFLICT]
    bench.run("update prices set price = 2.0 where id = 1")
    bench.undo(effect)
    assert bench.rows("select price::text from prices order by id") == [("1.0",), ("NaN",), (None,)]


def test_a_small_table_beside_a_large_one_does_not_change_how_the_large_one_is_read(
    bench: PgBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server knows nothing of images that came since it last looked: it would compare all with all."""
    bench.run("create table large (id int primary key, n int)")
    bench.run(f"insert into large select i, 1 from generate_series(1, {2 * MANY}) i")
    bench.protect()
    effect = bench.do("update users set age = 0 where id = 1", "update large set n = 2")
    execute: Callable[..., Any] = psycopg.Connection.execute
    how, asked = "", list[tuple[str, str]]()

    def executed(self: Any, statement: bytes, *args: Any, **named: Any) -> Any:
        nonlocal how
        sql = statement.decode()
        how = sql if "enable_nestloop" in sql else how
        if "takeback.log_" in sql and " join " in sql:
            asked.append(("large" if "large" in sql else "users", how))
        return execute(self, statement, *args, **named)

    monkeypatch.setattr(psycopg.Connection, "execute", executed)
    bench.undo(effect)
    assert {name for name, _ in asked} == {"large", "users"}
    assert {setting for name, setting in asked if name == "large"} == {"set local enable_nestloop = off"}
    assert bench.rows("select count(*) from large where n = 1") == [(2 * MANY,)]


def test_while_no_effect_is_open_a_statement_is_asked_no_more_than_two_things(bench: PgBench) -> None:
    """The server reads this condition anew for each statement of anybody, so that each call in it is paid for where the
    triggers stay attached."""
    bench.adapter().attach_when(bench.database, (), always=True)
    told = bench.rows(
        "select pg_get_triggerdef(oid) from pg_trigger where tgrelid = 'users'::regclass and tgname ~ '^zz_takeback'"
    )
    assert len(told) == 4
    for (text,) in told:
        condition = text.partition(" WHEN ")[2].partition(" EXECUTE ")[0].lower()
        assert re.findall(r"\w+(?=\()", condition) == ["current_setting", "current_setting"]
