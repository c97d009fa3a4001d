"""What no trigger of PostgreSQL sees: large objects, sequences, roles, and sessions that are not recognised. Found by
trying to break it (findings 5, 6 and 23)."""

import os
import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest

import takeback as api
from takeback.errors import NoRemedy, TakebackError
from takeback.model.database import to_json
from takeback.model.effect import Effect
from tests.e2e.conftest import CommandLine
from tests.sql.engines import intended
from tests.sql.pg_bench import PgBench
from tests.sql.pg_roles import guest_of, owner_of
from tests.world import World

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
    with objects.program() as connection:
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
    with objects.program() as connection:
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
    with users.program(application_name="of its own") as connection:
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


_DIES = """
import os, psycopg, sys, takeback
run = takeback.open(sys.argv[1]).run("dies")
program = run.__enter__().program("env:APP_DB")
program.__enter__()
with psycopg.connect(os.environ["APP_DB"], autocommit=True) as connection:
    connection.execute("delete from users where id = 1")
os._exit(9)
"""


def test_finding_6_recovery_does_not_say_that_nothing_was_changed(users, tmp_path, monkeypatch):
    monkeypatch.setenv("APP_DB", users.url)
    store = os.fspath(tmp_path / "store")
    died = subprocess.run([sys.executable, "-c", _DIES, store], check=False, timeout=120)
    assert died.returncode == 9

    with api.open(store) as tb:
        settled = tb.recover()

    assert [one.detail for one in settled] == ["No change of it was seen."]
    assert len(users.rows("select from users")) == 2


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
    with counting.program() as connection:
        with pytest.raises(
            psycopg.errors.FeatureNotSupported, match=r"sets the sequence public\.s_id_seq back"
        ):
            connection.execute("alter sequence s_id_seq restart")
        connection.execute("alter sequence s_id_seq cache 5")

    counting.run("insert into s default values")


def test_finding_23_a_sequence_that_a_program_set_back_is_told_and_goes_on_after_the_undo(counting):
    with counting.program() as connection:
        connection.execute("select setval('s_id_seq', 1, false)")

    assert counting.effect.receipt["schema"] == ["sequence public.s_id_seq was set back (it had reached 5)"]
    counting.undo(counting.effect)
    counting.run("insert into s default values")
    assert counting.rows("select max(id) from s") == [(6,)]


def test_finding_23_roles_and_databases_that_came_while_a_program_ran_are_told(users):
    name = f"takeback_test_{users.database.url.rpartition('/')[2]}"
    with users.program(application_name="of its own") as connection:
        connection.execute(f"create role {name}")
        connection.execute("delete from users where id = 1")
    users.run(f"drop role {name}")

    assert users.effect.receipt["notes"] == [
        f"The role {name} was created while the program ran. takeback cannot take that back."
    ]


# -- roles that are no superusers


@pytest.fixture(params=["owner", "guest"])
def lesser(request: pytest.FixtureRequest, pg_each_database) -> Iterator[PgBench]:
    """Its `owner` protected the database and can undo."""
    programs = pg_each_database.server.programs
    owner = PgBench(owner_of(pg_each_database), programs)
    owner.run(
        "create type mood as enum ('a', 'b')",
        "create table s (id serial primary key, m mood)",
        "insert into s select from generate_series(1, 5)",
    )
    guest = PgBench(guest_of(pg_each_database), programs)
    owner.run("grant all on s to tiers_guest", "grant all on sequence s_id_seq to tiers_guest")
    owner.protect()
    bench = owner if request.param == "owner" else guest
    bench.owner, bench.tier = owner, request.param
    guest.blobs = owner.blobs
    yield bench
    owner.close()
    guest.close()


def by(owner: PgBench, effect: Effect) -> Effect:
    """With the address of the role that can undo it."""
    args = effect.change.args | {"database": to_json(owner.database)}
    return effect._replace(change=effect.change._replace(args=args), remedy=None)


def test_finding_5_what_another_role_writes_unseen_is_told_at_the_end(lesser):
    with lesser.program() as connection:
        connection.execute("select lo_create(0)")
        connection.execute("delete from s where id = 1")

    (note,) = lesser.effect.receipt["notes"]
    assert note.startswith("Large objects were written while the program ran, or just before.")
    lesser.owner.undo(by(lesser.owner, lesser.effect))
    assert lesser.rows("select count(*) from s") == [(5,)]


def test_finding_6_another_role_is_recognised_by_its_name_too(lesser):
    with lesser.program(options="-c statement_timeout=9000") as connection:
        connection.execute("delete from s where id = 1")

    assert lesser.effect.receipt["tables"] == {"public.s": {"inserted": 0, "updated": 0, "deleted": 1}}


def test_finding_8_another_role_cannot_drop_a_type_that_only_the_images_are_of(lesser):
    effect = lesser.owner.do("update s set m = 'b'")
    with lesser.program() as connection, pytest.raises(psycopg.Error):
        connection.execute("drop type mood cascade")

    lesser.owner.undo(effect)
    assert lesser.rows("select count(*) from s where m is null") == [(5,)]


def test_finding_23_a_sequence_that_another_role_sets_back_goes_on_after_the_undo(lesser):
    with lesser.program() as connection:
        connection.execute("select setval('s_id_seq', 1, false)")
        connection.execute("delete from s where id = 5")

    assert "sequence public.s_id_seq was set back (it had reached 5)" in lesser.effect.receipt["schema"]
    lesser.owner.undo(by(lesser.owner, lesser.effect))
    lesser.run("insert into s default values")
    assert lesser.rows("select max(id) from s") == [(6,)]
