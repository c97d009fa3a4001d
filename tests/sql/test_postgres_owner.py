"""A program with a role that owns its tables and is no superuser: no event tells of its changes of the schema."""

import os
import sys
from contextlib import closing

import psycopg
import pytest

from takeback.errors import Refused
from takeback.model.change import OnConflict
from takeback.model.effect import State
from tests.e2e.conftest import CommandLine
from tests.sql.engines import intended
from tests.sql.pg_bench import PgBench
from tests.sql.pg_roles import owner_of
from tests.world import World

PROGRAM = """
import os, psycopg, sys
connection = psycopg.connect(os.environ["OWN"], autocommit=True)
try:
    for statement in sys.argv[2:]:
        connection.execute(statement)
except psycopg.Error:
    sys.exit(1)
sys.exit(int(sys.argv[1]))
"""
SET_UP = (
    "create table c (id int primary key, n text)",
    "insert into c values (1, 'a'), (2, 'b')",
    "create sequence drawn",
    "create table parts (id int, at int) partition by range (at)",
    "create table parts_1 partition of parts for values from (0) to (10)",
    "insert into parts values (1, 1)",
)
TWO = [(1, "a"), (2, "b")]
GUARDS = (
    "select pg_terminate_backend(pid) from pg_stat_activity "
    "where application_name = 'takeback guard' and datname = current_database()"
)


@pytest.fixture
def owner(pg_database):
    bench = PgBench(owner_of(pg_database))
    bench.run(*SET_UP)
    bench.protect()
    yield bench
    bench.close()


class Unguarded:
    """A program whose guard was killed."""

    def __init__(self, bench):
        self.bench = bench
        self.adapter = bench.adapter()
        self.effect = intended(self.adapter, bench.database, "a program")
        self.options = self.adapter.enter(self.effect)["PGOPTIONS"]
        with closing(psycopg.connect(bench.url, autocommit=True)) as killer:
            while killer.execute(GUARDS).fetchall():
                pass

    def did(self, *statements):
        with psycopg.connect(self.bench.url, options=self.options, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)
        return self.effect._replace(state=State.DONE, receipt=self.bench.adapter().leave(self.effect))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("statements", "lost"),
    [
        (["drop table c"], "the rows of table public.c, which was dropped"),
        (["delete from c where id = 2", "drop table c"], "the rows of table public.c, which was dropped"),
        (["drop table c", "create table c (id int primary key, n text)"], "the rows of table public.c"),
        (["alter table c drop column n"], "what was in column n of table public.c, which was dropped"),
        (["alter table c alter n type int using 5"], "column n of table public.c, which has another type"),
        (["alter table c drop column n", "alter table c add column n text"], "what was in column n"),
        (["drop sequence drawn"], "the number that sequence public.drawn had reached"),
        (["drop table parts_1"], "the rows of table public.parts_1"),
        (["drop table parts"], "the rows of table public.parts"),
        (["drop schema public cascade", "create schema public"], "the rows of table public.c"),
        (
            ["alter table c disable trigger all", "delete from c", "alter table c enable trigger all"],
            "what was changed in table public.c, whose capture was switched off",
        ),
        (["drop trigger zz_takeback_d on c", "delete from c"], "whose capture was switched off"),
    ],
)
def test_what_was_lost_unsaved_is_told_and_never_taken_back_in_part(owner, statements, lost):
    effect = Unguarded(owner).did(*statements)

    assert any(lost in one for one in effect.receipt["lost"])
    after = owner.world()
    for policy in (OnConflict.REFUSE, OnConflict.FORCE):
        with pytest.raises(Refused, match="cannot be taken back, because this is lost") as refused:
            owner.undo(effect, policy)
        assert lost in str(refused.value) and "backup" in refused.value.hint
    with pytest.raises(Refused):
        owner.adapter().undo(effect)
    assert owner.world() == after
    assert owner.adapter().leave(effect) == effect.receipt


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "statements",
    [
        ["create table made (id int)", "insert into made values (1)"],
        ["create table made (id int)", "drop table made", "delete from c"],
        ["alter table c rename column n to m", "update c set m = 'x'"],
        ["alter table c rename to d", "delete from d"],
        ["alter table c add column more int default 7", "update c set more = 8 where id = 1"],
        ["create index on c (n)"],
        ["create view v as select * from c"],
        ["truncate c"],
    ],
)
def test_what_was_not_lost_is_taken_back(owner, statements):
    before = owner.world()
    effect = Unguarded(owner).did(*statements)

    assert effect.receipt.keys() == {"tables", "schema"}
    owner.undo(effect)
    assert owner.world() == before


def test_rows_are_counted_once_whatever_happened_to_them(owner):
    statements = (
        "insert into c values (3, 'c'), (4, 'd')",
        "update c set n = 'x' where id in (1, 3)",
        "update c set n = 'y' where id = 1",
        "delete from c where id in (2, 4)",
    )
    effect = Unguarded(owner).did(*statements)

    assert effect.receipt["tables"] == {"public.c": {"inserted": 1, "updated": 1, "deleted": 1}}
    assert len(list(owner.adapter().rows(effect))) == 3


class Program:
    """Sessions of a program that is guarded, and what is told meanwhile."""

    def __init__(self, bench):
        self.bench, self.told = bench, []
        self.adapter = bench.adapter()
        self.effect = intended(self.adapter, bench.database, "a program")
        self.options = self.adapter.enter(self.effect, lambda sentence, hint: self.told.append(sentence))[
            "PGOPTIONS"
        ]

    def session(self):
        return psycopg.connect(self.bench.url, options=self.options, autocommit=True)

    def ended(self):
        return self.adapter.leave(self.effect)


@pytest.fixture
def program(owner):
    program = Program(owner)
    yield program
    program.ended()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "statement",
    [
        "drop table c",
        "alter table c drop column n",
        "alter table c alter n type int using 5",
        "alter table c add column more int",
        "drop sequence drawn",
        "drop table parts",
        "drop table parts_1",
        "drop schema takeback cascade",
        "do $$ begin truncate c; drop table c; end $$",
        "truncate c; drop table c",
    ],
)
def test_a_program_is_stopped_before_it_loses_anything(owner, program, statement):
    before = owner.world()
    with program.session() as session:
        session.execute("update c set n = 'x' where id = 1")
        with pytest.raises(psycopg.errors.QueryCanceled):
            session.execute(statement)
        session.execute("update c set n = 'y' where id = 1")
    receipt = program.ended()

    assert receipt == {"tables": {"public.c": {"inserted": 0, "updated": 1, "deleted": 0}}, "schema": []}
    (told,) = program.told
    assert "tried to change the schema of " in told and "role tiers_owner cannot" in told
    owner.undo(program.effect)
    assert owner.world() == before


@pytest.mark.parametrize("statement", ["truncate c", "TRUNCATE TABLE c, parts", "lock table c; truncate c"])
def test_what_is_captured_goes_through_the_guard(owner, program, statement):
    before = owner.world()
    with program.session() as session, session.transaction():
        for one in statement.split(";"):
            session.execute(one)
        session.execute("insert into c values (7, 'g')")
    with program.session() as session, pytest.raises(psycopg.errors.QueryCanceled):
        while True:  # until the guard is back
            session.execute("alter table c add column more int")
            session.execute("alter table c drop column more")
    program.ended()
    owner.undo(program.effect)
    assert owner.world() == before


def test_others_change_the_schema_meanwhile(owner, program):
    """Of the same role, since before; through takeback; and somebody else."""
    owner.run("alter table c add column by_hand int")
    effect = owner.do("drop table parts")
    owner.undo(effect)
    with program.session() as session:
        session.execute("delete from c")
    assert not program.told
    assert program.ended()["tables"]["public.c"]["deleted"] == 2


def test_a_role_that_owns_nothing_needs_no_guard_and_the_dead_keep_nobody_waiting(owner, program):
    assert owner.rows("select count(*) from pg_stat_activity where application_name = 'takeback guard'") == [
        (1,)
    ]
    program.ended()
    assert owner.rows(
        "select count(*) from pg_locks where locktype = 'relation' and relation = 'c'::regclass"
    ) == [(0,)]


@pytest.fixture
def takeback(world: World):
    return CommandLine(os.fspath(world.root))


def ran(takeback, owner, *words, code=0, first=""):
    script = first + PROGRAM
    return takeback(
        "run", "--sql", "env:OWN", "--", sys.executable, "-c", script, str(code), *words, OWN=owner.url
    )


def test_a_program_that_is_stopped_says_so_at_once(takeback, owner):
    said = ran(takeback, owner, "delete from c where id = 2", "drop table c")

    assert said.code == 1
    assert "takeback: The program tried to change the schema of public.c; role tiers_owner" in said.err
    assert "hint: Send it through `takeback sql exec`" in said.err
    assert ": taken back: public.c: 1 deleted\n" in said.err
    assert owner.rows("select * from c order by id") == TWO


# The guard is killed by the program itself.
_UNGUARDED = f"""
import os, psycopg
with psycopg.connect(os.environ["OWN"], autocommit=True) as killer:
    while killer.execute({GUARDS!r}).fetchall(): pass
"""


@pytest.mark.parametrize("code", [0, 3])
def test_the_command_line_claims_nothing_of_what_is_lost(takeback, owner, code):
    said = ran(takeback, owner, "drop table c", code=code, first=_UNGUARDED)

    lost = "the rows of table public.c, which was dropped"
    assert said.code == 125
    assert f"This cannot be taken back, because it is lost: {lost}." in said.err
    assert "was taken back" not in said.err and "nothing was changed" not in said.err
    assert ("what it changed stays" in said.err) is bool(code)
    undo = takeback("undo", OWN=owner.url)
    assert undo.code == 3 and lost in undo.err and "backup" in undo.err
    skip = takeback("undo", "--skip-conflicts", OWN=owner.url)
    assert skip.code == 3 and lost in skip.err
    assert lost in takeback.done("diff", "@", OWN=owner.url).out
    assert lost in takeback.done("show", "@", OWN=owner.url).out
    assert "no way back" in takeback.done("log", OWN=owner.url).out
    assert takeback.effect()["exact"] is False
    assert owner.rows("select to_regclass('c')") == [(None,)]
