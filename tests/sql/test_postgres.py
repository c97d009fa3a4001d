"""What people may rely on with PostgreSQL."""

import os
import subprocess
import sys

import psycopg
import pytest

from takeback.adapters.database.keyring import Keyring
from takeback.adapters.postgres.adapter import PostgresAdapter
from takeback.errors import Conflict, Misuse, NoRemedy, Refused, StatementFailed, StoreBusy
from takeback.model.plan import OnConflict, Outcome
from takeback.model.standing import Standing
from takeback.storage.memory_blobs import MemoryBlobs
from tests.sql.engines import intended
from tests.sql.pg_bench import PgBench

USERS = "create table users (id int primary key, name text, age int)"
THREE = "insert into users values (1, 'Ann', 30), (2, 'Bob', 40), (3, 'Cy', 50)"


@pytest.fixture
def bench(pg_each_database):
    bench = PgBench(pg_each_database.url)
    yield bench
    bench.close()


@pytest.fixture
def users(bench):
    bench.run(USERS, THREE)
    bench.protect()
    return bench


@pytest.mark.parametrize(
    "statement",
    [
        "update users set age = age + 1",
        "delete from users where id = 2",
        "insert into users values (4, 'Di', 60)",
        "truncate users",
        "update users set id = id + 10",
    ],
)
def test_there_and_back(users, statement):
    before = users.world()
    effect = users.do(statement)
    after = users.world()
    assert after != before

    undo = users.undo(effect)
    assert users.world() == before
    assert users.adapter().verify(effect).standing is Standing.BEFORE
    users.undo(undo)

    assert users.world() == after
    assert users.adapter().verify(effect).standing is Standing.AFTER


def test_a_row_changed_since_is_a_conflict_named_by_key(users):
    effect = users.do("update users set age = age + 1")
    users.run("update users set age = 99 where id = 2")
    before = users.world()

    whole, conflict = users.outcomes(effect)
    assert whole.outcome is Outcome.UNDONE and whole.detail == "2 rows"
    assert conflict.outcome is Outcome.CONFLICT and conflict.resource.endswith("/public.users/id=2")
    assert conflict.detail == (
        "was changed since (age: expected '41', is '99', undo would put back '40'), "
        "changed by someone who is not recorded"
    )
    with pytest.raises(Conflict, match="id=2"):
        users.undo(effect)

    assert users.world() == before


def test_the_effect_that_changed_it_since_is_named(users):
    first = users.do("update users set age = age + 1")
    second = users.do("update users set age = 0 where id = 1")

    assert f"changed by effect {second.id[:8]}" in users.outcomes(first)[1].detail
    assert users.adapter().standing_on(first) == [second.id]
    assert users.adapter().standing_on(second) == []


def test_skip_leaves_the_row_and_the_later_effect_gets_another_past(users):
    first = users.do("update users set age = age + 1")
    second = users.do("update users set age = 0 where id = 1")

    users.undo(first, OnConflict.SKIP)
    assert users.rows("select id, age from users order by id") == [(1, 0), (2, 40), (3, 50)]
    users.undo(second)

    assert users.rows("select id, age from users order by id") == [(1, 30), (2, 40), (3, 50)]


def test_force_overwrites_and_redo_brings_it_back(users):
    effect = users.do("update users set age = age + 1 where id = 1")
    users.run("update users set age = 99 where id = 1")

    undo = users.undo(effect, OnConflict.FORCE)
    assert users.rows("select age from users where id = 1") == [(30,)]
    users.undo(undo)

    assert users.rows("select age from users where id = 1") == [(99,)]


def test_rows_of_an_effect(users):
    effect = users.do("update users set age = 31 where id = 1", "delete from users where id = 3")

    changes = {change.key: change for change in users.adapter().rows(effect)}

    assert changes["id=1"].before == {"id": "1", "name": "Ann", "age": "30"}
    assert changes["id=1"].after == {"id": "1", "name": "Ann", "age": "31"}
    assert changes["id=3"].after is None
    assert effect.receipt == {
        "tables": {"public.users": {"inserted": 0, "updated": 1, "deleted": 1}},
        "schema": [],
    }


def test_what_is_only_read_is_no_effect(users):
    with users.session() as session:
        found = session.read("select name from users where name like 'A%' order by id", ())
        assert found is not None and found.rows == (("Ann",),) and found.columns == ("name",)
        assert session.read("with x as (delete from users returning *) select * from x", ()) is None
        assert session.read("select count(*) from users", ()).rows == ((3,),)


def test_a_statement_that_changes_nothing_leaves_no_marker(users):
    assert users.try_to("update users set age = 1 where id = 77") is None
    assert users.rows("select count(*) from takeback.op") == [(0,)]


def test_an_unprotected_table_is_refused_and_nothing_is_written(users):
    users.run("create table other (id int)")

    with pytest.raises(NoRemedy, match=r"public\.other"):
        users.do("insert into other values (1)", "delete from users")

    assert users.rows("select count(*) from users") == [(3,)]
    assert users.rows("select count(*) from other") == [(0,)]


@pytest.mark.parametrize(
    "statements",
    [
        [
            "alter table users disable trigger all",
            "delete from users",
            "alter table users enable trigger all",
        ],
        ["select set_config('takeback.op', '', true)", "delete from users"],
        ["do $$ begin perform set_config('takeback.op', '', true); delete from users; end $$"],
        ["delete from takeback.op"],
        ['create collation mine from "C"'],
        ["select lo_create(0)"],
    ],
)
def test_what_gets_round_the_capture_is_rolled_back(users, statements):
    before = users.world()

    with pytest.raises(NoRemedy):
        users.do(*statements)

    assert users.world() == before


def test_triggers_that_were_switched_off_before_are_noticed(users):
    users.run("alter table users disable trigger all")
    with pytest.raises(NoRemedy, match="was captured"):
        users.do("delete from users where id = 1")
    assert users.rows("select count(*) from users") == [(3,)]

    users.protect()
    users.undo(users.do("delete from users where id = 1"))
    assert users.rows("select count(*) from users") == [(3,)]


def test_replica_mode_does_not_get_round_the_capture(users):
    effect = users.do("select set_config('session_replication_role', 'replica', true)", "delete from users")
    users.undo(effect)
    assert users.rows("select count(*) from users") == [(3,)]


@pytest.mark.parametrize(
    "statement",
    ["commit", "begin", "rollback", "insert into users values (9); commit; begin", "vacuum", "set search_path = x",
     "listen x", "copy users from stdin", "prepare transaction 'x'", "create database x", "/* x */ commit",
     "create index concurrently on users (age)", "copy users to '/tmp/x'"],
)  # fmt: skip
def test_what_would_leave_the_transaction_is_refused(users, statement):
    before = users.world()

    with pytest.raises(Refused):
        users.do("delete from users", statement)

    assert users.world() == before


def test_a_statement_that_failed_in_a_block_of_its_own_is_no_alarm(users):
    effect = users.do(
        "do $$ begin begin insert into users values (4, 'x', 1), (1, 'y', 1); exception when unique_violation then "
        "update users set age = 5 where id = 1; end; end $$"
    )
    assert users.rows("select age from users order by id") == [(5,), (40,), (50,)]
    users.undo(effect)
    assert users.rows("select age from users order by id") == [(30,), (40,), (50,)]


def test_what_was_rolled_back_to_a_savepoint_does_not_count(users):
    effect = users.do(
        "savepoint a", "delete from users", "rollback to savepoint a", "update users set age = 1 where id = 1"
    )
    assert [one.key for one in users.adapter().rows(effect)] == ["id=1"]
    users.undo(effect)
    assert users.rows("select age from users order by id") == [(30,), (40,), (50,)]


def test_an_error_of_the_database_is_told_in_its_words_without_rows(users):
    before = users.world()

    with pytest.raises(StatementFailed, match="duplicate key") as caught:
        users.do("delete from users where id = 3", "insert into users values (1, 'secret', 1)")

    assert "secret" not in str(caught.value) + caught.value.hint
    assert users.world() == before


def test_two_undos_one_wins(users):
    effect = users.do("delete from users")
    users.undo(effect)

    with pytest.raises(Conflict):
        users.undo(effect)


def test_a_script_twice_is_once(users):
    from takeback.testing.adapter_desk import Desk

    adapter = users.adapter()
    effect = Desk(adapter).intend(users.script("update users set age = age + 1"))
    adapter.apply(effect)
    users.adapter().apply(effect)
    assert users.rows("select age from users where id = 1") == [(31,)]
    users.adapter().undo(effect)
    users.adapter().undo(effect)
    assert users.rows("select age from users where id = 1") == [(30,)]
    assert adapter.verify(effect).standing is Standing.BEFORE
    assert users.rows("select count(*) from takeback.op") == [(0,)]


def test_many_effects_and_failures_on_one_session(users):
    adapter = users.adapter()
    effects = []
    with users.session() as session:
        for number in range(5):
            effect = intended(adapter, session.database, "more")
            session.begin(effect)
            session.execute("update users set age = age + 1 where id <= %s", [number])
            if number == 3:
                with pytest.raises(StatementFailed):
                    session.execute("insert into users values (1)", ())
                session.rollback()
            elif session.commit() is not None:
                effects.append(effect)
    assert len(effects) == 3
    for effect in reversed(effects):
        users.undo(effect)
    assert users.rows("select age from users order by id") == [(30,), (40,), (50,)]


def test_executemany_is_one_effect(users):
    with users.session() as session:
        effect = intended(users.adapter(), session.database, "many")
        session.begin(effect)
        assert session.execute(
            "insert into users values (%s, %s)", [(n, "x") for n in range(10, 20)], many=True
        )
        assert session.commit() == {
            "tables": {"public.users": {"inserted": 10, "updated": 0, "deleted": 0}},
            "schema": [],
        }
    users.undo(effect)
    assert users.rows("select count(*) from users") == [(3,)]


PROGRAM = """
import os, psycopg, sys
with psycopg.connect(sys.argv[1] if len(sys.argv) > 1 else os.environ["APP_DB"]) as connection:
    for number in range(10):
        connection.execute("update users set age = age + 1 where id = 1")
        connection.commit()
    connection.execute("delete from users where id = 2")
    connection.commit()
    connection.execute("delete from users")
    if os.environ.get("DIE"):
        os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("how", ["by PGOPTIONS", "by the variable of the address"])
def test_a_program_with_its_own_driver_is_one_effect(users, how, monkeypatch):
    monkeypatch.setenv("APP_DB", users.url)
    database = users.keyring.named("env:APP_DB" if "variable" in how else users.url)
    before = users.rows("select id, age from users order by id")
    adapter = users.adapter()
    effect = intended(adapter, database, "a program")
    variables = adapter.enter(effect)
    environment = os.environ | dict(variables) | {"DIE": "1"}
    if "variable" in how:
        environment.pop("PGOPTIONS")
    users.run("update users set name = 'by hand' where id = 3")

    subprocess.run(
        [sys.executable, "-c", PROGRAM, *([] if "variable" in how else [users.url])],
        env=environment,
        timeout=120,
        check=False,
    )
    receipt = users.adapter().leave(effect)

    assert receipt == {"tables": {"public.users": {"inserted": 0, "updated": 1, "deleted": 1}}, "schema": []}
    assert users.adapter().leave(effect) == receipt
    assert users.rows("select id, age from users order by id") == [(1, 40), (3, 50)]
    users.undo(effect)
    assert users.rows("select id, age from users order by id") == before
    assert users.rows("select name from users where id = 3") == [("by hand",)]


def test_a_program_cannot_do_what_has_no_way_back_nor_go_on_after_its_end(users):
    adapter = users.adapter()
    effect = intended(adapter, users.database, "a program")
    options = adapter.enter(effect)["PGOPTIONS"]
    with psycopg.connect(users.url, options=options, autocommit=True) as program:
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            program.execute("create extension hstore")
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            program.execute("create index concurrently on users (name)")
        program.execute("create temp table x (id int)")
        with program.transaction():
            program.execute("delete from users where id = 1")
            with pytest.raises(StoreBusy):
                users.adapter().leave(effect)
        assert users.adapter().leave(effect)["schema"] == []
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            program.execute("delete from users")
    users.undo(effect)
    assert users.rows("select count(*) from users") == [(3,)]


def test_a_program_that_changed_nothing_leaves_nothing(users):
    adapter = users.adapter()
    effect = intended(adapter, users.database, "a program")
    adapter.enter(effect)

    assert users.adapter().found(effect, ()) is None
    assert users.rows("select count(*) from takeback.op") == [(0,)]


def definition(bench, name="users"):
    """What there is of a table besides its rows."""
    of = f"'{name}'::regclass"
    return bench.rows(
        f"select pg_get_indexdef(indexrelid) from pg_index where indrelid = {of} union all "
        f"select pg_get_constraintdef(oid) from pg_constraint where conrelid = {of} union all "
        f"select pg_get_triggerdef(oid) from pg_trigger where tgrelid = {of} and not tgisinternal union all "
        f"select relacl::text || relowner || obj_description(oid) from pg_class where oid = {of} order by 1"
    )


@pytest.fixture
def full(users):
    users.run(
        "create table teams (id int primary key)", "insert into teams values (1)",
        "alter table users add column team int default 1 references teams",
        "alter table users add column no serial", "create index on users (age)",
        "comment on table users is 'people'", "grant select on users to public",
    )  # fmt: skip
    users.protect()
    return users


def test_a_dropped_table_comes_back_with_everything(full):
    before, made = full.world(), definition(full)
    effect = full.do("update users set age = 0", "drop table users")
    assert effect.receipt["schema"] == ["table public.users was dropped"]
    assert full.rows("select to_regclass('users')") == [(None,)]
    full.run("insert into teams values (2)", "delete from teams where id = 2")

    undo = full.undo(effect)
    assert full.world() == before and definition(full) == made
    full.run("insert into users (id) values (9)", "delete from users where id = 9")
    full.undo(full.undo(undo))

    assert full.world() == before and definition(full) == made
    assert full.rows("select nspname from pg_namespace where nspname ~ '^takeback_'") == []


def test_a_dropped_table_whose_name_is_used_again_is_a_conflict(full):
    effect = full.do("drop table if exists users, not_there")
    full.run("create table users (id int)")

    assert "its place is taken" in full.outcomes(effect)[0].detail
    with pytest.raises(Conflict, match="its place is taken"):
        full.undo(effect)
    assert full.rows("select count(*) from users") == [(0,)]


def test_a_dropped_table_whose_rows_point_nowhere_now_is_a_conflict(full):
    effect = full.do("drop table users")
    full.run("delete from teams")

    with pytest.raises(Conflict, match="rows that it points to are gone"):
        full.undo(effect)


def test_what_hangs_on_a_dropped_table_is_not_lost(full):
    full.run("create view old as select * from users")
    with pytest.raises(StatementFailed, match="other objects depend on it"):
        full.do("drop table users")
    effect = full.do("drop table users cascade")
    full.undo(effect)
    assert full.rows("select count(*) from old") == [(3,)]


def test_a_table_that_was_made_goes_and_comes_again(users):
    effect = users.do(
        "create table notes (id int primary key, person int references users, text text)",
        "insert into notes values (1, 1, 'x')",
        "create table copies as select * from users",
        "create temp table scratch (id int)",
        "update users set age = 7",
    )
    assert effect.receipt["schema"] == ["table public.notes was created", "table public.copies was created"]
    after = users.world()

    undo = users.undo(effect)
    assert users.rows("select to_regclass('notes'), to_regclass('copies')") == [(None, None)]
    assert users.rows("select age from users order by id") == [(30,), (40,), (50,)]
    users.undo(undo)

    assert users.world() == after
    more = users.do("insert into notes values (2, 2, 'y')")
    with pytest.raises(Conflict, match="has other rows since"):
        users.undo(effect)
    users.undo(more)
    users.undo(effect)


def test_forgetting_a_dropped_table_frees_it(full):
    effect = full.do("drop table users")
    full.adapter().release(effect)

    assert full.rows("select nspname from pg_namespace where nspname ~ '^takeback_'") == []
    assert full.adapter().verify(effect).standing is Standing.AFTER


def test_a_made_table_is_gone_when_a_later_step_fails(users):
    before = users.world()
    effect = users.do("create table notes (id int primary key)", "insert into notes values (1)")

    users.adapter().undo(effect)

    assert users.world() == before
    assert users.rows("select nspname from pg_namespace where nspname ~ '^takeback_'") == []


def test_an_undo_keeps_no_second_copy_of_the_rows_and_outlives_the_forgetting_of_the_first(users):
    before = users.world()
    effect = users.do("update users set age = 0", "delete from users where id = 2")
    after = users.world()
    kept = users.rows("select count(*) from takeback.log_1")
    undo = users.undo(effect)
    assert users.rows("select count(*) from takeback.log_1") == kept
    assert {one.key: one.after and one.after["age"] for one in users.adapter().rows(undo)} == {
        "id=1": "30", "id=2": "40", "id=3": "50",
    }  # fmt: skip

    users.adapter().release(effect)
    redo = users.undo(undo)
    assert users.world() == after
    users.undo(redo)

    assert users.world() == before


def test_unprotect_leaves_nothing_and_what_is_not_protected_is_refused(full):
    full.do("drop table users")
    full.run("create table fresh (id int)")
    cover = full.adapter().cover(full.database)
    assert cover.tier == "full" and cover.protected == ("public.teams",)
    assert [name for name, _ in cover.unprotected] == ["public.fresh"]

    assert full.adapter().unprotect(full.database, ()).protected == ()

    assert full.rows("select nspname from pg_namespace where nspname ~ 'takeback'") == []
    assert full.rows("select tgname from pg_trigger where tgname ~ 'takeback'") == []
    assert full.rows("select evtname from pg_event_trigger") == []
    with pytest.raises(NoRemedy, match="not protected"):
        full.adapter().connect(full.database)


def test_an_address_that_is_not_understood_is_not_repeated():
    with pytest.raises(Misuse) as refused:
        PostgresAdapter(MemoryBlobs(), keyring := Keyring()).connect(
            keyring.named("postgresql://u:geheim%ZZ@h/x")
        )
    assert "geheim" not in str(refused.value) and "%25" in refused.value.hint


def test_rows_that_point_to_one_that_is_to_go_are_named(bench):
    bench.run(
        "create table parents (id int primary key)",
        "create table children (a int, b text, parent int references parents, primary key (a, b))",
        "create table loose (parent int references parents)",
    )
    bench.protect()
    effect = bench.do("insert into parents values (7), (8)")
    bench.run(
        "insert into children select n, 'x' || chr(10), 7 from generate_series(1, 5) n",
        "insert into loose values (8), (8)",
    )
    told = {one.resource.rpartition("/")[2]: one.detail for one in bench.outcomes(effect)}
    assert "public.children a=" in told["id=7"] and told["id=7"].count("a=") == 3
    assert "and 2 more" in told["id=7"]
    assert "point to it: 2 of public.loose" in told["id=8"]
