"""What people may rely on with PostgreSQL."""

from contextlib import closing

import pytest

from takeback.adapters.database import Keyring
from takeback.adapters.postgres.adapter import PostgresAdapter
from takeback.errors import Conflict, Corrupt, Misuse, NoRemedy, Refused, ResourceUnreachable, StatementFailed
from takeback.model.change import OnConflict
from takeback.model.plan import Outcome, Standing
from tests.memory import MemoryBlobs
from tests.sql.engines import intended


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


def test_triggers_that_were_switched_off_before_are_switched_on(users):
    users.adapter().attach_when(users.database, (), always=True)
    users.run("alter table users disable trigger all")
    assert users.adapter().cover(users.database).protected == ()

    users.undo(users.do("delete from users where id = 1"))

    assert users.rows("select count(*) from users") == [(3,)]


def test_triggers_that_are_switched_off_while_a_run_works_are_noticed(users):
    with users.session() as session:
        session.begin(intended(users.adapter(), users.database, "first"))
        session.rollback()
        users.run("alter table users disable trigger all")
        session.begin(intended(users.adapter(), users.database, "second"))
        session.execute("delete from users where id = 1", ())
        with pytest.raises(NoRemedy, match="was captured"):
            session.commit()
    assert users.rows("select count(*) from users") == [(3,)]


def test_replica_mode_does_not_get_round_the_capture(users):
    effect = users.do("select set_config('session_replication_role', 'replica', true)", "delete from users")
    users.undo(effect)
    assert users.rows("select count(*) from users") == [(3,)]


@pytest.mark.sampled(3)
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


@pytest.mark.parametrize(
    "removed", ["delete from takeback.log_1", "delete from takeback.log_1 where ctid = '(0,1)'"]
)
@pytest.mark.parametrize(
    "statements",
    [("update users set age = 0",), ("update users set age = 0", "alter table users add column x int")],
)
def test_what_was_kept_and_is_gone_is_not_passed_over(users, statements, removed):
    effect = users.do(*statements)
    undone = users.do("update users set name = 'x'")
    redo = users.undo(users.undo(undone))
    after = users.world()
    users.run(removed)
    for one in (effect, redo) if "where" not in removed else (effect,):
        with pytest.raises(Corrupt, match="images of rows"):
            users.outcomes(one)
        with pytest.raises(Corrupt, match="images of rows"):
            users.undo(one)
        with pytest.raises(Corrupt, match="images of rows"):
            list(users.adapter().rows(one))
    assert users.world() == after


def test_two_undos_one_wins(users):
    effect = users.do("delete from users")
    users.undo(effect)

    with pytest.raises(Conflict):
        users.undo(effect)


def test_what_recovery_takes_back_twice_is_taken_back_once(users):
    adapter = users.adapter()
    effect = users.do("update users set age = age + 1")
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


def test_a_table_with_very_many_columns(users):
    names = [f"c{number}" for number in range(539)]
    users.run(
        f"create table wide (id int primary key, {', '.join(f'{one} int default 1' for one in names)})",
        f"create table wider (id int primary key, x int, {', '.join(f'{one} int' for one in names)})",
        "insert into wide select n from generate_series(1, 3) n",
    )
    users.protect()
    assert dict(users.adapter().cover(users.database).unprotected) == {
        "public.wider": "it has too many columns"
    }
    before = users.world()
    effect = users.do(f"update wide set {', '.join(f'{one} = 2' for one in names)}")
    users.undo(users.undo(users.undo(effect)))
    assert users.world() == before
    effect = users.do(f"update wide set {', '.join(f'{one} = 2' for one in names)}")
    users.run("update wide set c7 = 9 where id = 2", "delete from wide where id = 3")
    with pytest.raises(Conflict, match=r"wide id=2 was changed since .c7: expected .2., is .9."):
        users.undo(effect)
    users.undo(effect, OnConflict.FORCE)
    assert users.world() == before
    first = users.do(f"update wide set {', '.join(f'{one} = 2' for one in names)}")
    later = users.do("update wide set c7 = 9 where id = 2")
    users.undo(first, OnConflict.SKIP)
    users.undo(later)
    assert users.world() == before
    with pytest.raises(NoRemedy, match="wider, which takeback does not protect"):
        users.do("insert into wider (id) values (1)")


def test_after_the_protection_was_taken_away_it_is_said_what_is_gone(users):
    effect = users.do("update users set age = 1")
    users.adapter().unprotect(users.database, ())
    for asked in (users.outcomes, users.undo, lambda effect: list(users.adapter().rows(effect))):
        with pytest.raises(ResourceUnreachable, match="no longer protected"):
            asked(effect)


def test_too_many_parameters_are_no_lost_connection(users):
    with closing(users.adapter().connect(users.database)) as session:
        session.begin(intended(users.adapter(), users.database, "…"))
        marks = ", ".join(["%s"] * 70_000)
        with pytest.raises(StatementFailed, match="number of parameters"):
            session.execute(f"delete from users where id in ({marks})", list(range(70_000)))
