"""Defects of PostgreSQL that were found by trying to break it, by their numbers; each failed before it was mended.
What no trigger sees is in `test_postgres_unseen`."""

import os
import sys

import psycopg
import pytest

from takeback.errors import NoRemedy, TakebackError
from tests.e2e.conftest import CommandLine
from tests.sql.pg_bench import PgBench
from tests.sql.test_postgres_schema import definitions
from tests.sql.test_postgres_schema import world as rows_of
from tests.world import World


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
    with users.program() as connection, connection.transaction():
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
    with moods.program() as connection:
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


# -- R3: lines and messages


@pytest.fixture
def takeback(world: World) -> CommandLine:
    return CommandLine(os.fspath(world.root))


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


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("refresh materialized view seen", "REFRESH replaces the rows of a materialized view"),
        ("reindex table users", "REINDEX rewrites indexes and changes no row"),
        ("cluster users", "CLUSTER rewrites tables in another order and changes no row"),
        ("truncate fresh", "Rows were written to public.fresh, which takeback does not protect"),
        ("create role takeback_test_nobody", "CREATE ROLE changes the server and not only this database"),
        ("vacuum users", "VACUUM does not run in a transaction"),
        ("drop schema takeback cascade", "The statement drops the schema takeback"),
    ],
)
def test_finding_r3_a_refusal_names_its_own_reason(users, statement, reason):
    users.run("create materialized view seen as select * from users")
    users.run("create table fresh (id int)")  # since it was protected

    with pytest.raises(TakebackError) as refused:
        users.do(statement)

    assert str(refused.value).startswith(reason) and "othing was changed" in refused.value.hint


def test_finding_r3_a_conflict_names_the_columns_that_others_changed_and_no_other(users):
    effect = users.do("update users set age = 31, name = 'Anna' where id = 1")
    users.run("update users set name = 'ANN' where id = 1")

    (outcome,) = users.outcomes(effect)

    assert "name: expected 'Anna', is 'ANN', undo would put back 'Ann'" in outcome.detail
    assert "age" not in outcome.detail


# -- a database that an older takeback protected


def test_a_database_that_an_older_version_protected_is_brought_up_to_date(users):
    effect = users.do("delete from users where id = 1")
    users.run(
        "drop function takeback.version()",
        "drop event trigger if exists takeback_ddl_drop",
        "drop function takeback.schema_drops()",
        "alter table takeback.op drop column witness",
    )
    assert any("older takeback" in one for one in users.adapter().cover(users.database).says)
    users.undo(effect)

    users.undo(users.do("delete from users where id = 2"))

    assert not any("older takeback" in one for one in users.adapter().cover(users.database).says)
    with users.program() as connection:
        connection.execute("delete from users where id = 2")
    users.undo(users.effect)
    assert users.world() == {"public.users": ["(1,Ann,30)", "(2,Bob,40)", "(3,Cy,50)"]}
    assert users.rows("select count(*) from pg_event_trigger where evtname like 'takeback_%'") == [(3,)]


# -- fresh eyes 1: a row that pointed nowhere before


@pytest.mark.parametrize(
    "statement", ["delete from o", "update o set who = 1", "drop table o", "alter table o drop column who"]
)
def test_fresh_eyes_1_a_row_that_a_key_not_valid_let_point_nowhere_comes_back(users, statement):
    users.run("create table o (id int primary key, who int)", "insert into o values (1, 99), (2, 1)")
    users.run("alter table o add foreign key (who) references users (id) not valid")
    users.adapter().protect(users.database, ())
    before = rows_of(users), definitions(users)

    effect = users.do(statement)
    undo = users.undo(effect)
    there_again = rows_of(users)
    users.undo(users.undo(undo))

    assert there_again == before[0]
    assert (rows_of(users), definitions(users)) == before
