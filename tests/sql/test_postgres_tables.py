"""Tables that are made, dropped and no longer protected, in PostgreSQL."""

import psycopg
import pytest

from takeback.errors import Conflict, NoRemedy, StatementFailed
from takeback.model.plan import Standing
from tests.sql.engines import intended


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


def test_what_was_kept_of_a_table_that_others_dropped_is_still_shown(users):
    effect = users.do("delete from users where id = 1", "update users set age = 41 where id = 2")
    users.run("drop table users", "create table users (id int primary key)")
    users.protect()
    rows = [(row.table, row.before, row.after) for row in users.adapter().rows(effect)]
    ann, bob = (
        {"id": str(id), "name": name, "age": age} for id, name, age in ((1, "Ann", "30"), (2, "Bob", "40"))
    )
    assert sorted(rows, key=str) == sorted(
        [
            ("public.users", ann, None),
            ("public.users", bob, None),
            ("public.users", None, bob | {"age": "41"}),
        ],
        key=str,
    )
    with pytest.raises(Conflict, match="dropped since"):
        users.undo(effect)


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


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "statement",
    [
        "alter table users disable trigger all",
        "alter table users disable trigger user",
        "alter table users enable trigger all",
        "drop trigger zz_takeback_u on users",
        "alter trigger zz_takeback_u on users rename to other",
        "do 'begin alter table users disable trigger all; end'",
    ],
)
def test_the_capture_is_not_switched_off_along_with_other_triggers(users, statement):
    users.run(
        "create function f() returns trigger language plpgsql as 'begin return new; end'",
        "create trigger own before update on users for each row execute function f()",
    )
    states = "select tgname, tgenabled from pg_trigger where tgrelid = 'users'::regclass order by 1"
    before = users.rows(states)
    with pytest.raises(NoRemedy, match="would no longer be captured"):
        users.do(statement)
    assert users.rows(states) == before

    adapter = users.adapter()
    program = intended(adapter, users.database, "a program")
    with psycopg.connect(users.url, options=adapter.enter(program)["PGOPTIONS"], autocommit=True) as theirs:
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="would not be captured"):
            theirs.execute(statement)
        theirs.execute("alter table users disable trigger own")
    assert users.adapter().leave(program)["schema"]
    users.undo(program)
    assert users.rows(states) == before
    users.undo(users.do("alter table users disable trigger own"))
    assert users.rows(states) == before
