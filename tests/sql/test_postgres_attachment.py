"""Triggers are attached while a run works, and at no other time: an idle database pays nothing for being protected."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import takeback
from takeback.adapters.database import Waiting
from takeback.adapters.postgres.adapter import PostgresAdapter
from takeback.errors import NoRemedy, Refused, RowsHeld
from takeback.model.change import OnConflict
from takeback.model.effect import State
from tests.servers.process import wait_until
from tests.sql.engines import intended
from tests.sql.pg_bench import PgBench
from tests.sql.pg_roles import guest_of, owner_of

_ATTACHED = (
    "select tgrelid::regclass::text, count(*) from pg_trigger where tgname like 'zz\\_takeback\\__' "
    "and tgenabled = 'A' group by 1 order by 1"
)
ALL = [("users", 4)]


@pytest.fixture
def users(pg_database: Any) -> Iterator[PgBench]:
    bench = PgBench(pg_database.url)
    bench.run(
        "create table users (id int primary key, name text, age int)",
        "insert into users values (1, 'Ann', 30), (2, 'Bob', 40), (3, 'Cy', 50)",
    )
    bench.protect()
    yield bench
    bench.close()


def attached(bench: PgBench) -> list[tuple[Any, ...]]:
    return bench.rows(_ATTACHED)


def says(bench: PgBench) -> str:
    return "\n".join(bench.adapter().cover(bench.database).says)


def in_a_hurry(bench: PgBench, said: list[str]) -> PostgresAdapter:
    """One that waits for others two seconds at most."""
    return PostgresAdapter(bench.blobs, bench.keyring, Waiting(2, said.append))


@contextmanager
def locked(bench: PgBench, statement: str) -> Iterator[psycopg.Connection[Any]]:
    """An application in the middle of a transaction."""
    with psycopg.connect(bench.url, application_name="the shop") as connection:
        connection.execute(statement.encode())
        yield connection


# -- attached while somebody works


def test_finding_r4_a_protected_table_has_no_triggers_while_no_run_works(users):
    assert attached(users) == []
    assert users.adapter().cover(users.database).protected == ("public.users",)

    effect = users.do("update users set age = 31 where id = 1")
    assert attached(users) == []
    users.undo(users.undo(effect))

    assert attached(users) == []
    assert users.rows("select age from users where id = 1") == [(31,)]
    assert "removed afterwards" in says(users)


def test_what_only_reads_attaches_nothing(users):
    with users.session() as session:
        assert session.read("select count(*) from users", ()).rows == ((3,),)
        assert attached(users) == []


def test_two_runs_share_what_is_attached(users):
    adapter = users.adapter()
    first, second = (adapter.connect(users.database) for _ in range(2))
    for session in (first, second):
        session.begin(intended(adapter, users.database, "delete"))
        session.rollback()
    assert attached(users) == ALL

    first.close()
    assert attached(users) == ALL
    effect = intended(adapter, users.database, "delete")
    second.begin(effect)
    second.execute("delete from users where id = 2", ())
    receipt = second.commit()
    second.close()

    assert attached(users) == []
    users.undo(effect._replace(state=State.DONE, receipt=receipt))
    assert users.rows("select count(*) from users") == [(3,)]


def test_a_program_has_the_triggers_from_its_first_statement_to_its_end(users):
    with users.program() as connection:
        assert attached(users) == ALL
        connection.execute("delete from users")
        users.undo(users.do("insert into users values (9, 'Zed', 1)"))
        assert attached(users) == ALL
    assert attached(users) == []
    users.undo(users.effect)
    assert users.rows("select count(*) from users") == [(3,)]


def test_others_are_compared_with_though_nothing_was_attached_when_they_wrote(users):
    effect = users.do("update users set age = age + 1")
    users.run("update users set age = 99 where id = 2")

    outcomes = users.outcomes(effect)
    assert [one.detail for one in outcomes if "id=2" in one.resource]
    users.undo(effect, OnConflict.SKIP)

    assert users.rows("select age from users order by id") == [(30,), (99,), (50,)]
    assert attached(users) == []


@pytest.mark.parametrize("how", [OnConflict.FORCE, OnConflict.SKIP])
def test_an_undo_that_must_be_captured_can_be_undone(users, how):
    effect = users.do("update users set age = age + 1")
    users.run("update users set age = 99 where id = 2")
    before = users.world()

    users.undo(users.undo(effect, how))

    assert users.world() == before
    assert attached(users) == []


def test_an_undo_of_a_schema_change_leaves_nothing_attached(users):
    effect = users.do("alter table users drop column age", "create table notes (id int primary key)")
    assert attached(users) == []
    users.undo(effect)
    assert users.rows("select age from users order by id") == [(30,), (40,), (50,)]
    users.undo(users.do("delete from users where id = 1"))
    assert attached(users) == []


def test_a_table_that_was_changed_while_nothing_was_attached_is_captured_as_it_is(users):
    users.run("alter table users add column mail text default 'x'", "alter table users drop column age")
    effect = users.do("update users set mail = 'y'")
    users.undo(effect)
    assert users.rows("select distinct mail from users") == [("x",)]


def test_partitions_and_new_tables_are_attached_and_detached_with_the_rest(users):
    users.run(
        "create table parts (id int primary key) partition by range (id)",
        "create table low partition of parts for values from (0) to (10)",
        "create table high partition of parts for values from (10) to (20)",
    )
    users.protect()
    with users.session() as session:
        effect = intended(users.adapter(), users.database, "some")
        session.begin(effect)
        session.execute("insert into parts values (1), (11)", ())
        session.execute("create table fresh (id int primary key)", ())
        session.execute("insert into fresh values (1)", ())
        assert attached(users) == [("high", 4), ("low", 4), ("parts", 4), ("users", 4)]
        receipt = session.commit()
        assert attached(users) == [("fresh", 4), ("high", 4), ("low", 4), ("parts", 4), ("users", 4)]
    assert attached(users) == []
    users.undo(effect._replace(state=State.DONE, receipt=receipt))
    assert users.rows("select count(*) from parts") == [(0,)]


def test_a_table_that_is_protected_while_a_run_works_is_captured_at_once(users):
    with users.program() as connection:
        users.run("create table more (id int)")
        users.protect("more")
        connection.execute("insert into more values (1)")
    assert users.effect.receipt["tables"] == {"public.more": {"inserted": 1, "updated": 0, "deleted": 0}}
    assert attached(users) == []


def test_one_that_waits_for_a_person_keeps_its_triggers(users):
    adapter = users.adapter()
    session = adapter.connect(users.database)
    session.begin(intended(adapter, users.database, "delete"))
    session.execute("delete from users", ())
    users.run("select 1")
    other = users.do("create table other (id int)")
    assert attached(users)[-1] == ("users", 4)
    session.rollback()
    session.close()
    assert attached(users) == []
    users.undo(other)


# -- others who have the table


def test_a_table_that_others_write_to_for_long_is_refused_and_they_are_named(users):
    said: list[str] = []
    with locked(users, "update users set age = 1 where id = 1") as shop:
        session = in_a_hurry(users, said).connect(users.database)
        with pytest.raises(RowsHeld, match=r"public\.users .*the shop of .*idle in transaction") as refused:
            session.begin(intended(users.adapter(), users.database, "delete"))
        session.close()
        assert refused.value.exit_code == 5 and "lock_seconds" in refused.value.hint
        assert said and "the shop" in said[0]
        assert users.rows("select count(*) from pg_locks where locktype = 'advisory'") == [(0,)]
        shop.rollback()
    assert attached(users) == []
    users.undo(users.do("delete from users where id = 1"))


def test_the_command_line_says_who_has_the_table_and_exits_with_5(users, tmp_path, monkeypatch):
    store = tmp_path / "store"
    with takeback.open(store):
        pass
    (store / "settings.json").write_text('{"lock_seconds": 1}')
    monkeypatch.setenv("TAKEBACK_STORE", os.fspath(store))
    monkeypatch.setenv("SHOP", users.url)
    command = [sys.executable, "-m", "takeback", "sql"]
    statement = "delete from users where id = 3"
    with locked(users, "update users set age = 1 where id = 1"):
        said = subprocess.run(
            [*command, "exec", "env:SHOP", statement], capture_output=True, text=True, check=False
        )
    assert said.returncode == 5
    assert (
        "the table is locked by the shop of postgres" in said.stderr and "Nothing was changed." in said.stderr
    )

    subprocess.run([*command, "protect", "env:SHOP", "--triggers", "always"], capture_output=True, check=True)
    with locked(users, "update users set age = 1 where id = 1"):
        subprocess.run([*command, "exec", "env:SHOP", statement], capture_output=True, check=True)
    told = subprocess.run([*command, "doctor", "env:SHOP", "--json"], capture_output=True, check=True).stdout
    assert json.loads(told)["triggers"]["always"] == ["public.users"]
    other = ["protect", f"sqlite:///{tmp_path / 'other.db'}", "--triggers", "always"]
    assert subprocess.run([*command, *other], capture_output=True, check=False).returncode == 2


def test_nobody_waits_long_behind_a_run_that_wants_to_begin(users):
    """Somebody has the table for long; others write to it, one after the other, while a run tries."""
    longest = 0.0
    with locked(users, "update users set age = 1 where id = 1") as shop:
        session = in_a_hurry(users, []).connect(users.database)
        failed: list[BaseException] = []

        def begin() -> None:
            try:
                session.begin(intended(users.adapter(), users.database, "delete"))
            except RowsHeld as error:
                failed.append(error)

        trying = threading.Thread(target=begin)
        trying.start()
        while trying.is_alive():
            start = time.monotonic()
            users.run("update users set age = 2 where id = 2")
            longest = max(longest, time.monotonic() - start)
        trying.join()
        session.close()
        shop.rollback()
    assert failed
    assert longest < 0.7, longest  # a tenth of a second, on a machine that has nothing else to do


def test_a_long_transaction_that_only_reads_keeps_no_run_from_beginning(users):
    with locked(users, "select * from users") as shop:
        effect = users.do("update users set age = 31 where id = 1")
        assert (
            attached(users) == ALL
        )  # to remove them the table is needed alone; that is left to the next command
        assert "The next change in this database removes them" in says(users)
        shop.rollback()
    users.undo(effect)
    assert attached(users) == []


def test_a_run_begins_and_ends_while_others_write_all_the_time(users):
    ended = threading.Event()
    errors: list[BaseException] = []

    def work() -> None:
        with psycopg.connect(users.url, autocommit=True) as connection:
            while not ended.is_set():
                try:
                    connection.execute("update users set age = age + 1 where id = 3")
                except psycopg.Error as error:
                    errors.append(error)

    others = [threading.Thread(target=work) for _ in range(2)]
    for one in others:
        one.start()
    try:
        for _ in range(3):
            users.undo(users.do("update users set age = 7 where id = 1"))
    finally:
        ended.set()
        for one in others:
            one.join()
    assert not errors
    users.protect()
    assert attached(users) == []
    assert users.rows("select age from users where id = 1") == [(30,)]


# -- killed

_DIES = """
import os, signal, sys
import takeback
store, url, when = sys.argv[1:]
tb = takeback.open(store)
run = tb.run("dies", agent="a").__enter__()
if when == "program":
    program = run.program(url)
    program.__enter__()
    os.kill(os.getpid(), signal.SIGKILL)
db = run.sql(url)
with db.transaction() as made:
    db.execute("delete from users where id = 1")
    if when == "within":
        os.kill(os.getpid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(bench: PgBench, store: Any, when: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _DIES, os.fspath(store), bench.url, when], timeout=120, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    asked = (
        "select count(*) from pg_stat_activity where application_name like 'takeback%' "
        "and datname = current_database()"
    )
    wait_until(lambda: bench.rows(asked) == [(0,)], "the server sees that it is gone")


@pytest.mark.parametrize("when", ["within", "after"])
def test_what_a_killed_run_left_attached_is_shown_and_removed_by_the_next_change(users, tmp_path, when):
    killed(users, tmp_path / "store", when)
    assert attached(users) == ALL
    assert "no session needs them" in says(users)
    assert users.adapter().cover(users.database).attachment.now == ("public.users",)
    assert attached(users) == ALL, "looking removes nothing"

    users.do("update users set age = 1 where id = 2")

    assert attached(users) == []
    assert "no session needs them" not in says(users)


def test_recover_removes_what_a_killed_run_left(users, tmp_path, monkeypatch):
    monkeypatch.setenv("TAKEBACK_SQL", users.url)
    killed(users, tmp_path / "store", "within")
    assert attached(users) == ALL

    with takeback.open(tmp_path / "store") as tb:
        tb.recover()

    assert attached(users) == []


def test_a_plain_undo_removes_what_a_killed_run_left(users, tmp_path):
    effect = users.do("update users set age = 31 where id = 2")
    killed(users, tmp_path / "store", "within")
    assert attached(users) == ALL
    users.undo(effect)
    assert attached(users) == []


def test_a_program_whose_takeback_was_killed_is_captured_until_it_is_settled(users, tmp_path, monkeypatch):
    monkeypatch.setenv("TAKEBACK_SQL", users.url)
    killed(users, tmp_path / "store", "program")
    ((number,),) = users.rows("select no from takeback.op where not closed")
    assert "a program of run" in says(users)
    users.undo(users.do("update users set age = 1 where id = 2"))
    assert attached(users) == ALL, "the program may go on"
    with psycopg.connect(users.url, options=f"-c takeback.op=p{number}", autocommit=True) as orphan:
        orphan.execute("delete from users where id = 3")

    with takeback.open(tmp_path / "store") as tb:
        tb.recover()
        assert attached(users) == []
        (effect,) = tb.effects()
        assert effect.receipt["tables"] == {"public.users": {"inserted": 0, "updated": 0, "deleted": 1}}


def test_a_session_that_outlives_its_run_is_still_refused(users):
    adapter = users.adapter()
    effect = intended(adapter, users.database, "a program")
    options = adapter.enter(effect)["PGOPTIONS"]
    with psycopg.connect(users.url, options=options, autocommit=True, application_name="daemon") as daemon:
        daemon.execute("delete from users where id = 1")
        assert adapter.leave(effect)
        assert attached(users) == ALL
        assert "for daemon of" in says(users)
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            daemon.execute("delete from users")
    users.undo(effect)
    assert users.rows("select count(*) from users") == [(3,)]
    users.protect()
    assert attached(users) == []


def test_a_program_that_nobody_ended_for_a_day_does_not_count(users, tmp_path):
    killed(users, tmp_path / "store", "program")
    users.run("update takeback.op set started = started - interval '25 hours'")
    users.do("update users set age = 1 where id = 2")
    assert attached(users) == []


def test_a_session_whose_connection_the_server_ended_attaches_again(users):
    adapter = users.adapter()
    with users.session() as session:
        session.begin(intended(adapter, users.database, "first"))
        session.rollback()
        users.run(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity "
            "where application_name = 'takeback' and datname = current_database()"
        )
        users.undo(users.do("delete from users where id = 3"))
        assert attached(users) == []
        session.begin(intended(adapter, users.database, "second"))
        session.execute("delete from users where id = 1", ())
        assert session.commit()
    assert attached(users) == []


def test_triggers_that_go_while_a_run_works_are_noticed_and_come_back(users):
    adapter = users.adapter()
    with users.session() as session:
        session.begin(intended(adapter, users.database, "first"))
        session.rollback()
        users.run("drop trigger zz_takeback_d on users")
        session.begin(intended(adapter, users.database, "second"))
        session.execute("delete from users where id = 1", ())
        with pytest.raises(NoRemedy, match="Not all that was written"):
            session.commit()
        session.begin(intended(adapter, users.database, "third"))
        session.execute("delete from users where id = 1", ())
        assert session.commit()


# -- roles


def test_a_guest_attaches_by_a_function_of_the_owner(pg_database):
    owner = PgBench(owner_of(pg_database))
    guest = PgBench(guest_of(pg_database))
    owner.run("create table c (id int primary key)", "grant select, insert on c to tiers_guest")
    owner.protect()
    with guest.session() as session:
        session.begin(intended(guest.adapter(), guest.database, "insert"))
        session.execute("insert into c values (1)", ())
        assert session.commit()
        assert attached(owner) == [("c", 4)]
        with psycopg.connect(guest.url, autocommit=True) as other:
            assert other.execute("select takeback.detach('c'::regclass, 0)").fetchall() == [(False,)]
    assert attached(owner) == []
    with guest.program() as connection:
        assert attached(owner) == [("c", 4)]
        connection.execute("insert into c values (2)")
    assert attached(owner) == []
    assert guest.effect.receipt["tables"]["public.c"]["inserted"] == 1
    owner.close()
    guest.close()


def test_tables_that_the_schema_s_owner_may_not_change_stay_attached_and_that_is_told(pg_database):
    owner = PgBench(owner_of(pg_database))
    guest_of(pg_database)
    owner.run("create table c (id int primary key)", "create table theirs (id int primary key)")
    owner.protect("c")
    admin = PgBench(pg_database.url)
    admin.run("alter table theirs owner to tiers_guest")
    admin.protect()
    assert attached(admin) == [("theirs", 4)]
    assert "Role tiers_owner, which owns the schema takeback, may not attach" in says(admin)
    assert admin.adapter().cover(admin.database).attachment.always == ("public.theirs",)
    admin.undo(admin.do("insert into theirs values (1)", "insert into c values (1)"))
    assert attached(admin) == [("theirs", 4)]
    owner.close()
    admin.close()


def test_a_table_that_has_another_owner_since_is_named_and_protected_again(pg_database):
    owner = PgBench(owner_of(pg_database))
    guest_of(pg_database)
    owner.run("create table c (id int primary key)", "create table sold (id int primary key)")
    owner.protect()
    admin = PgBench(pg_database.url)
    admin.run("alter table sold owner to tiers_guest")
    with pytest.raises(Refused, match=r"public\.sold cannot be attached: it has another owner"):
        owner.do("insert into c values (1)")
    assert attached(owner) == []

    admin.protect()

    assert attached(owner) == [("sold", 4)]
    owner.undo(owner.do("insert into c values (1)"))
    owner.close()
    admin.close()


# -- a choice, with its price


def test_triggers_stay_where_that_is_chosen_and_doctor_tells_the_price(users):
    adapter = users.adapter()
    cover = adapter.attach_when(users.database, (), always=True)
    assert attached(users) == ALL
    assert cover.attachment.always == ("public.users",)
    assert "attached always to all tables" in "\n".join(cover.says) and "a quarter more" in cover.says[0]

    users.undo(users.do("delete from users"))
    users.run("create table later (id int)")
    users.protect()
    assert attached(users) == [("later", 4), ("users", 4)]
    with locked(users, "update users set age = 30 where id = 1"):
        session = in_a_hurry(users, []).connect(users.database)
        session.begin(intended(users.adapter(), users.database, "no lock is needed"))
        session.rollback()
        session.close()

    adapter.attach_when(users.database, ("later",), always=False)
    assert attached(users) == ALL
    adapter.attach_when(users.database, (), always=False)
    assert attached(users) == []


# -- a database that an older takeback protected


def made_by_version_2(bench: PgBench) -> None:
    bench.adapter().attach_when(bench.database, (), always=True)
    bench.run(
        "create or replace function takeback.version() returns int language sql immutable as 'select 2'",
        "alter event trigger takeback_ddl_drop disable",
        "alter table takeback.log drop column always",
        "drop index takeback.op_at_work",
        *(
            f"drop function takeback.{one}"
            for one in (
                "attach", "detach(oid, int)", "make_triggers", "take", "at_work", "home(oid)",
            )
        ),
        "alter event trigger takeback_ddl_drop enable always",
    )  # fmt: skip


def test_the_owner_s_next_change_brings_an_older_database_up_to_date(users):
    earlier = users.do("delete from users where id = 3")
    made_by_version_2(users)
    assert attached(users) == ALL
    assert "An older takeback" in says(users)
    users.undo(earlier)
    assert attached(users) == ALL, "an undo that needs nothing changes nothing"

    effect = users.do("delete from users where id = 1")

    assert attached(users) == []
    assert "An older takeback" not in says(users)
    users.undo(effect)
    assert users.rows("select count(*) from users") == [(3,)]


def test_nobody_waits_for_an_upgrade(users):
    made_by_version_2(users)
    with locked(users, "update users set age = 30 where id = 1"):
        users.protect()
        assert attached(users) == ALL
    users.protect()
    assert attached(users) == []
