"""Defects of PostgreSQL that were found by trying to break it, by their numbers; each failed before it was mended."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from takeback.errors import NoRemedy, TakebackError
from tests.e2e.conftest import CommandLine
from tests.sql.engines import intended
from tests.sql.pg_bench import PgBench
from tests.sql.test_postgres_schema import definitions
from tests.sql.test_postgres_schema import world as rows_of
from tests.world import World


@contextmanager
def program(bench: PgBench, **options: str) -> "Iterator[psycopg.Connection]":
    """A program's own session. `bench.effect` is what it did, when it has ended."""
    adapter = bench.adapter()
    effect = intended(adapter, bench.database, "a program")
    bench.told = []
    variables = adapter.enter(effect, lambda sentence, hint: bench.told.append(sentence))
    given = {"options": variables["PGOPTIONS"], "application_name": variables["PGAPPNAME"]} | options
    with psycopg.connect(bench.url, autocommit=True, **given) as connection:
        yield connection
    bench.effect = effect._replace(receipt=adapter.leave(effect))


def claims(bench: PgBench, name: str) -> None:
    """From now on the server says that each column has an option, with another value each time it is asked."""
    bench.run(
        "alter function takeback.objects() rename to true_objects",
        "create sequence takeback.claimed",
        "create function takeback.objects() returns table (kind text, oid bigint, part int, doc jsonb) language sql "
        "volatile security definer as $$ select o.kind, o.oid, o.part, case o.kind when 'column' then o.doc || "
        f"jsonb_build_object('options', jsonb_build_array('{name}=' || nextval('takeback.claimed'))) else o.doc end "
        "from takeback.true_objects() o $$",
    )


# -- 38: a comparison that a minor version breaks


def test_finding_38_an_option_that_the_server_keeps_for_itself_is_not_compared(users):
    claims(users, "pg_attver")
    before = rows_of(users), definitions(users)

    effect = users.do(
        "alter table users alter column age type text", "alter table users add column note text"
    )
    users.undo(effect)

    assert (rows_of(users), definitions(users)) == before
    assert effect.receipt["schema"] == [
        "column public.users.age was changed (type)",
        "column public.users.note was created",
    ]


def test_finding_38_advice_that_differs_is_named_and_the_way_back_stays(users):
    before = rows_of(users)
    effect = users.do("alter table users alter column age type text")
    users.run("alter table users alter column age set (n_distinct = 3)")
    claims(users, "future")

    undo = users.undo(effect)

    assert rows_of(users) == before
    differs = [one for one in undo.receipt["schema"] if "differs from before" in one]
    assert len(differs) == 1 and differs[0].startswith(
        "column public.users.age differs from before (options: "
    )
    assert "future=" in differs[0]


# -- 7: the usual rebuild of a table

_REBUILT = (
    "create table n (id int primary key, name text, age int)",
    "insert into n select id, name || 'x', age from users",
    "drop table users",
    "alter table n rename to users",
)


def test_finding_7_a_table_that_was_rebuilt_in_one_transaction_comes_back(users):
    before = rows_of(users), definitions(users)
    effect = users.do(*_REBUILT)
    after = rows_of(users), definitions(users)

    undo = users.undo(effect)
    assert (rows_of(users), definitions(users)) == before
    redo = users.undo(undo)
    assert (rows_of(users), definitions(users)) == after
    users.undo(redo)
    assert (rows_of(users), definitions(users)) == before


def test_finding_7_a_table_that_a_program_rebuilt_comes_back(users):
    before = rows_of(users), definitions(users)
    with program(users) as connection, connection.transaction():
        for statement in _REBUILT:
            connection.execute(statement)
    assert "one_way" not in users.effect.receipt

    users.undo(users.effect)

    assert (rows_of(users), definitions(users)) == before


def test_finding_7_changes_that_have_no_way_back_together_are_refused_before(users):
    users.run("create table other (id int primary key)")
    before = rows_of(users), definitions(users)

    with pytest.raises(NoRemedy, match="Together these statements cannot be taken back"):
        users.do(
            "create table n (id int primary key)",
            "alter table other add column n int references n",
            "drop table users",
            "alter table n rename to users",
        )

    assert (rows_of(users), definitions(users)) == before


# -- 5: large objects

_WRITES = (
    "select lo_unlink(lo) from large",
    "select lo_put(lo, 0, 'spoilt') from large",
    "select lo_create(0)",
    "select lo_from_bytea(0, 'new')",
    "do $$ begin perform lo_unlink(lo) from large; end $$",
    "with gone as (select lo_unlink(lo) from large) select count(*) from gone",
)


def large(bench: PgBench) -> list[tuple]:
    return bench.rows("select lo, convert_from(lo_get(lo), 'utf8') from large") + bench.rows(
        "select count(*) from pg_largeobject_metadata"
    )


@pytest.fixture
def objects(users: PgBench) -> PgBench:
    users.run(
        "create table large (id int primary key, lo oid)",
        "insert into large values (1, lo_from_bytea(0, 'precious'))",
    )
    users.run("select pg_stat_force_next_flush()")
    users.protect()
    return users


@pytest.mark.parametrize("statement", _WRITES)
def test_finding_5_a_statement_that_writes_large_objects_is_refused(objects, statement):
    before = large(objects)
    with objects.session() as session:
        assert session.read(statement, None) is None  # so it is not taken for one that only reads
    with pytest.raises(NoRemedy, match="large objects"):
        objects.do(statement)

    assert large(objects) == before


def test_finding_5_a_statement_that_only_reads_still_only_reads(objects):
    with objects.session() as session:
        assert session.read("select convert_from(lo_get(lo), 'utf8') from large", None).rows == (
            ("precious",),
        )
        assert session.read("select count(*) from users where id > %s", [1]).rows == ((2,),)


@pytest.mark.parametrize(
    "statement", [*_WRITES, "create role takeback_test_nobody", "create database takeback_test_no"]
)
def test_finding_5_a_program_is_stopped_before_it_writes_what_no_trigger_sees(objects, statement):
    before = large(objects)
    with program(objects) as connection:
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(statement)
        connection.execute("delete from users where id = 1")

    assert large(objects) == before
    (told,) = objects.told
    assert told.startswith("The program tried to change ") and told.endswith(
        "no way back, so it was stopped."
    )
    assert "notes" not in objects.effect.receipt
    assert objects.rows("select count(*) from pg_roles where rolname = 'takeback_test_nobody'") == [(0,)]


def test_finding_5_others_write_large_objects_while_a_program_runs(objects):
    with program(objects) as connection:
        objects.run("select lo_put(lo, 0, 'PRECIOUS') from large", "create role takeback_test_other")
        connection.execute("delete from users where id = 1")
    objects.run("drop role takeback_test_other")

    assert objects.told == []
    assert (
        "The role takeback_test_other was created while the program ran."
        in objects.effect.receipt["notes"][0]
    )
    objects.undo(objects.effect)
    assert large(objects)[0][1] == "PRECIOUS"


def test_finding_5_large_objects_that_are_written_while_a_program_runs_are_told(users):
    with program(users, application_name="of its own") as connection:
        connection.execute("select lo_create(0)")
        connection.execute("delete from users where id = 1")

    (note,) = users.effect.receipt["notes"]
    assert note.startswith("Large objects were written while the program ran, or just before.")


# -- 6: sessions that are not recognised


def test_finding_6_a_program_with_connection_options_of_its_own_is_recognised(users, monkeypatch):
    monkeypatch.setenv("APP_DB", users.url)
    database = users.keyring.named("env:APP_DB")
    adapter = users.adapter()
    effect = intended(adapter, database, "a program")
    variables = adapter.enter(effect)
    own = "-c statement_timeout=9000"
    with psycopg.connect(variables["APP_DB"], options=own, autocommit=True) as connection:
        assert connection.execute("show statement_timeout").fetchone() == ("9s",)
        connection.execute("delete from users where id = 1")
    monkeypatch.setenv("PGAPPNAME", variables["PGAPPNAME"])
    with psycopg.connect(users.url, options=own, autocommit=True) as connection:
        connection.execute("alter table users add column note text")
        connection.execute("delete from users where id = 2")
    monkeypatch.delenv("PGAPPNAME")

    receipt = adapter.leave(effect)

    assert receipt["tables"] == {"public.users": {"inserted": 0, "updated": 0, "deleted": 2}}
    users.undo(effect)
    assert users.world() == {"public.users": ["(1,Ann,30)", "(2,Bob,40)", "(3,Cy,50)"]}


def test_finding_6_rows_that_no_known_session_wrote_are_told_with_their_table(users):
    told: list[tuple[str, str]] = []
    adapter = users.adapter()
    effect = intended(adapter, users.database, "a program")
    adapter.enter(effect, lambda sentence, hint: told.append((sentence, hint)))
    with psycopg.connect(users.url, autocommit=True) as connection:  # with neither options nor name
        connection.execute("delete from users where id = 1")

    assert adapter.leave(effect) is None

    ((sentence, hint),) = told
    assert sentence == (
        "No session of the program was seen, but other sessions wrote to protected tables (public.users: 1 row)."
    )
    assert "PGAPPNAME" in hint


def test_finding_6_takeback_inside_a_program_is_not_taken_for_it(users, monkeypatch):
    adapter = users.adapter()
    effect = intended(adapter, users.database, "a program")
    monkeypatch.setenv("PGAPPNAME", adapter.enter(effect)["PGAPPNAME"])

    inner = users.do("delete from users where id = 1")
    users.undo(inner)

    monkeypatch.delenv("PGAPPNAME")
    assert adapter.leave(effect) is None
    assert users.world() == {"public.users": ["(1,Ann,30)", "(2,Bob,40)", "(3,Cy,50)"]}


_ANSWERS = {
    "options of its own": (
        "import os, psycopg; c = psycopg.connect(os.environ['APP_DB'], options='-c statement_timeout=9000', "
        "autocommit=True); c.execute('delete from users where id = 1'); raise SystemExit(1)"
    ),
    "a cleared environment": (
        "import os, psycopg; os.environ.clear(); c = psycopg.connect({url!r}, autocommit=True); "
        "c.execute('delete from users where id = 1'); c.close(); raise SystemExit(1)"
    ),
}


@pytest.fixture
def takeback(world: World) -> CommandLine:
    return CommandLine(os.fspath(world.root))


@pytest.mark.parametrize("how", _ANSWERS)
def test_finding_6_the_command_line_says_only_what_was_seen(users, takeback, how):
    script = _ANSWERS[how].format(url=users.url) if "cleared" in how else _ANSWERS[how]
    said = takeback("run", "--sql", "env:APP_DB", "--", sys.executable, "-c", script, APP_DB=users.url)

    rows = len(users.rows("select from users"))
    assert said.code == 1 and "so no file was changed" in said.err and "nothing was changed" not in said.err
    if how == "options of its own":
        assert ": taken back: public.users: 1 deleted\n" in said.err and rows == 3
    else:
        assert "taken back" not in said.err and rows == 2
        assert ": no change of it was seen.\n" in said.err
        assert "other sessions wrote to protected tables (public.users: 1 row)" in said.err
        assert "hint: takeback recognises a program by PGOPTIONS, by PGAPPNAME" in said.err


def test_finding_r3_a_row_that_was_changed_hides_no_table_that_was_dropped(users, takeback):
    users.run("create table old (id int)")
    users.protect()
    script = (
        "import os, psycopg; c = psycopg.connect(os.environ['APP_DB'], autocommit=True); "
        "c.execute('update users set age = 1 where id = 1'); c.execute('drop table old')"
    )
    said = takeback("run", "--sql", "env:APP_DB", "--", sys.executable, "-c", script, APP_DB=users.url)

    assert said.code == 0
    assert ": table public.old was dropped; public.users: 1 updated: " in said.err


def test_finding_r3_a_conflict_names_the_columns_that_others_changed_and_no_other(users):
    effect = users.do("update users set age = 31, name = 'Anna' where id = 1")
    users.run("update users set name = 'ANN' where id = 1")

    (outcome,) = users.outcomes(effect)

    assert "name: expected 'Anna', is 'ANN', undo would put back 'Ann'" in outcome.detail
    assert "age" not in outcome.detail


# -- 8: types that takeback's own tables are of


@pytest.fixture
def moods(bench: PgBench) -> PgBench:
    bench.run(
        "create type mood as enum ('a', 'b')",
        "create table t (id int primary key, m mood)",
        "insert into t values (1, 'b'), (2, 'a')",
        "create view v as select m from t",
    )
    bench.protect()
    return bench


def test_finding_8_a_program_cannot_drop_a_type_with_the_rows_that_are_saved_of_it(moods):
    before = rows_of(moods), definitions(moods)
    with program(moods) as connection:
        with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="rows that takeback keeps"):
            connection.execute("drop type mood cascade")
        connection.execute("delete from t where id = 1")

    moods.undo(moods.effect)

    assert (rows_of(moods), definitions(moods)) == before


def test_finding_8_a_person_cannot_drop_a_type_with_images_of_earlier_effects(moods):
    before = rows_of(moods)
    effect = moods.do("update t set m = 'a'")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="rows that takeback keeps"):
        moods.run("drop type mood cascade")

    moods.undo(effect)
    assert rows_of(moods) == before


def test_finding_8_a_type_can_be_dropped_when_no_row_of_it_is_kept(moods):
    moods.run("drop type mood cascade")
    moods.protect()

    effect = moods.do("delete from t where id = 1")
    moods.undo(effect)

    assert rows_of(moods) == {"public.t": ['{"id": 1}', '{"id": 2}']}


# -- 23: what leaves the transaction, or the database


@pytest.fixture
def counting(bench: PgBench) -> PgBench:
    bench.run(
        "create table s (id serial primary key)",
        "insert into s select from generate_series(1, 5)",
        "create function hidden() returns bigint language sql as $$ select setval('s_id_seq', 1) $$",
    )
    bench.protect()
    return bench


@pytest.mark.parametrize(
    "statement",
    [
        "select setval('s_id_seq', 1, false)",
        "select pg_catalog.SETVAL('s_id_seq', 1)",
        "do $$ begin perform setval('s_id_seq', 1); end $$",
        "insert into s select setval('s_id_seq', 1) where false",
        "select hidden()",
        "alter sequence s_id_seq restart",
        "alter table s alter column id restart",
        "create role takeback_test_nobody",
        "do $$ begin create role takeback_test_nobody; end $$",
        "alter system set work_mem = '5MB'",
        "create database takeback_test_other",
    ],
)
def test_finding_23_a_statement_without_a_way_back_is_refused(counting, statement):
    with pytest.raises(TakebackError) as refused:
        counting.do(statement)
    assert refused.value.hint

    counting.run("insert into s default values")  # the number is free
    assert counting.rows("select count(*) from pg_roles where rolname = 'takeback_test_nobody'") == [(0,)]


def test_finding_23_a_text_that_only_mentions_setval_is_not_refused(counting):
    with counting.session() as session:
        assert session.read("select 'setval(' || id from s where id = 1", None).rows == (("setval(1",),)
    assert counting.do(
        "create function other() returns bigint language sql as $$ select setval('s_id_seq', 9) $$"
    )


def test_finding_23_a_program_cannot_restart_a_sequence(counting):
    with program(counting) as connection:
        with pytest.raises(
            psycopg.errors.FeatureNotSupported, match=r"sets the sequence public\.s_id_seq back"
        ):
            connection.execute("alter sequence s_id_seq restart")
        connection.execute("alter sequence s_id_seq cache 5")

    counting.run("insert into s default values")


def test_finding_23_a_sequence_that_a_program_set_back_is_told_and_goes_on_after_the_undo(counting):
    with program(counting) as connection:
        connection.execute("select setval('s_id_seq', 1, false)")

    assert counting.effect.receipt["schema"] == ["sequence public.s_id_seq was set back (it had reached 5)"]
    counting.undo(counting.effect)
    counting.run("insert into s default values")
    assert counting.rows("select max(id) from s") == [(6,)]


def test_finding_23_roles_and_databases_that_came_while_a_program_ran_are_told(users):
    name = f"takeback_test_{users.database.url.rpartition('/')[2]}"
    with program(users, application_name="of its own") as connection:
        connection.execute(f"create role {name}")
        connection.execute("delete from users where id = 1")
    users.run(f"drop role {name}")

    assert users.effect.receipt["notes"] == [
        f"The role {name} was created while the program ran. takeback cannot take that back."
    ]


# -- a database that an older takeback protected


def test_a_database_that_an_older_version_protected_must_be_protected_again(users):
    effect = users.do("delete from users where id = 1")
    users.run(
        "drop function takeback.version()",
        "drop event trigger if exists takeback_ddl_drop",
        "drop function takeback.schema_drops()",
        "alter table takeback.op drop column witness",
    )
    with pytest.raises(NoRemedy, match="older takeback"):
        users.do("delete from users where id = 2")
    assert any("older takeback" in one for one in users.adapter().cover(users.database).says)
    users.undo(effect)

    users.protect()

    assert not any("older takeback" in one for one in users.adapter().cover(users.database).says)
    with program(users) as connection:
        connection.execute("delete from users where id = 2")
    users.undo(users.effect)
    assert users.world() == {"public.users": ["(1,Ann,30)", "(2,Bob,40)", "(3,Cy,50)"]}
    assert users.rows("select count(*) from pg_event_trigger where evtname like 'takeback_%'") == [(3,)]
