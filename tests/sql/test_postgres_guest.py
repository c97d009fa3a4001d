"""A program with a role that may write and owns nothing."""

import os
import sys
from contextlib import closing

import psycopg
import pytest

from takeback.errors import Refused
from takeback.model.database import to_json
from takeback.model.effect import State
from tests.e2e.conftest import CommandLine
from tests.sql.engines import intended
from tests.sql.pg_bench import PgBench
from tests.sql.pg_roles import guest_of, owner_of
from tests.world import World

WORK = (
    "insert into c values (3, 'c')",
    "update c set n = 'x' where id = 1",
    "delete from c where id = 2",
    "insert into inbox values ('hello')",
)
CHANGED = {
    "public.c": {"inserted": 1, "updated": 1, "deleted": 1},
    "public.inbox": {"inserted": 1, "updated": 0, "deleted": 0},
}


@pytest.fixture(params=["owner", "superuser"])
def owner(request, pg_database):
    bench = PgBench(owner_of(pg_database) if request.param == "owner" else pg_database.url)
    guest = guest_of(pg_database)
    bench.run(
        "create table c (id int primary key, n text)",
        "insert into c values (1, 'a'), (2, 'b')",
        "create table inbox (said text)",  # where it may write, and not read
        "create table secret (n int)",
        "grant select, insert, update, delete on c to tiers_guest",
        "grant insert on inbox to tiers_guest",
        "grant create on schema public to tiers_guest",
    )
    bench.protect()
    bench.guest = PgBench(guest)
    bench.guest.blobs = bench.blobs
    yield bench
    bench.guest.close()
    bench.close()


def did(guest, *statements):
    adapter = guest.adapter()
    effect = intended(adapter, guest.database, "a program")
    options = adapter.enter(effect)["PGOPTIONS"]
    with psycopg.connect(guest.url, options=options, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)
    return effect._replace(state=State.DONE, receipt=adapter.leave(effect))


def with_the_address_of(owner, effect):
    place = to_json(owner.database)
    return effect._replace(
        change=effect.change._replace(args=effect.change.args | {"database": place}),
        remedy=effect.remedy._replace(payload=effect.remedy.payload | {"database": place}),
    )


def test_what_a_guest_s_program_did_is_taken_back_with_the_owner_s_address(owner):
    before = owner.world()
    effect = did(owner.guest, *WORK)

    assert effect.receipt == {"tables": CHANGED, "schema": []}
    assert owner.guest.adapter().leave(effect) == effect.receipt
    shown = [(row.key, row.before, row.after) for row in owner.guest.adapter().rows(effect)]
    assert sorted(shown) == [
        ("id=1", {"id": "1", "n": "a"}, {"id": "1", "n": "x"}),
        ("id=2", {"id": "2", "n": "b"}, None),
        ("id=3", None, {"id": "3", "n": "c"}),
    ]
    assert len(list(owner.adapter().rows(with_the_address_of(owner, effect)))) == 4
    with pytest.raises(Refused, match="Role tiers_guest cannot put rows back"):
        owner.guest.undo(effect)
    owner.undo(with_the_address_of(owner, effect))
    assert owner.world() == before


def test_a_guest_s_program_that_changed_nothing_leaves_nothing(owner):
    assert did(owner.guest, "select 1").receipt is None
    assert owner.rows("select count(*) from takeback.op") == [(0,)]


def test_the_owner_ends_what_a_guest_began(owner):
    """`recover`, with another address than that of the program that was killed."""
    adapter = owner.guest.adapter()
    effect = intended(adapter, owner.guest.database, "a program")
    options = adapter.enter(effect)["PGOPTIONS"]
    with psycopg.connect(owner.guest.url, options=options, autocommit=True) as connection:
        connection.execute("delete from c")
    found = owner.adapter().found(with_the_address_of(owner, effect), ())
    assert found.receipt["tables"]["public.c"]["deleted"] == 2


def test_a_guest_gets_at_nothing_of_others(owner):
    owner.do("alter table c add column extra int")
    theirs = owner.do("delete from c where id = 1")
    running = intended(owner.adapter(), owner.database, "a program of the owner")
    watching = owner.adapter()
    watching.enter(running)
    (_, (number,), (program,)) = owner.rows("select no from takeback.op order by no")
    assert owner.rows("select op from takeback.ddl")
    before = owner.rows("select * from takeback.op order by no")
    ((log,),) = owner.rows("select log from takeback.captured where relation = 'c'::regclass")
    with closing(psycopg.connect(owner.guest.url, autocommit=True)) as guest:
        for table in ("op", "ddl", "counter"):
            assert guest.execute(f"select * from takeback.{table}").fetchall() == []
        assert guest.execute(f"select * from takeback.log_{log}").fetchall() == []
        for call in (
            f"takeback.begin_program({program})",
            f"takeback.end_program({program}, '{{}}')",
            f"takeback.end_program({program}, null)",
            f"takeback.end_program({number}, null)",
            f"takeback.close({program}, '{{}}', '{{}}', '[]')",
        ):
            guest.execute(f"select {call}")
        assert guest.execute(f"select * from takeback.images({number})").fetchall() == []
        for statement in (
            f"delete from takeback.log_{log}", "update takeback.op set closed = true", "delete from takeback.wide",
            "drop policy own on takeback.op", "delete from takeback.op", "delete from takeback.ddl",
        ):  # fmt: skip
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                guest.execute(statement)
    assert owner.rows("select * from takeback.op order by no") == before
    watching.leave(running)
    owner.undo(theirs)
    assert owner.rows("select n from c order by id") == [("a",), ("b",)]


def test_rows_that_a_guest_may_not_read_are_not_shown_to_it(owner):
    owner.run("revoke select on c from tiers_guest")
    effect = did(owner.guest, "insert into c values (3, 'c')")

    assert effect.receipt["tables"] == {"public.c": {"inserted": 1, "updated": 0, "deleted": 0}}
    assert list(owner.guest.adapter().rows(effect)) == []
    assert len(list(owner.adapter().rows(with_the_address_of(owner, effect)))) == 1


def test_what_a_guest_makes(owner):
    """Where each command is told of it is refused; else it is told that it stays."""
    superuser = "postgres:" in owner.url
    if superuser:
        with pytest.raises(
            psycopg.errors.FeatureNotSupported, match="of a program with the role tiers_guest"
        ):
            did(owner.guest, "create temp table x (n int)", "create table mine (n int)")
        return
    effect = did(owner.guest, "create table mine (n int)", "delete from c")
    assert effect.receipt["schema"] == [
        "public.mine was made by role tiers_guest, and stays when this is taken back"
    ]
    owner.undo(with_the_address_of(owner, effect))
    assert owner.rows("select count(*) from c") == [(2,)]
    owner.guest.run("insert into mine values (1)")
    again = did(owner.guest, "delete from c where id = 1")
    assert again.receipt["schema"] == []


def test_a_guest_at_the_command_line(owner, world: World):
    takeback = CommandLine(os.fspath(world.root))
    script = (
        "import os, psycopg, sys\nwith psycopg.connect(os.environ['APP']) as c:\n"
        " for one in sys.argv[1:]: c.execute(one)"
    )
    said = takeback.done(
        "run", "--sql", "env:APP", "--", sys.executable, "-c", script, *WORK, APP=owner.guest.url
    )
    assert "public.c: 1 deleted, 1 inserted, 1 updated; public.inbox: 1 inserted" in said.err
    assert "~ id=1 n a → x" in takeback.done("diff", "@", APP=owner.guest.url).out
    refused = takeback("undo", APP=owner.guest.url)
    assert refused.code == 3 and "a role that owns the tables" in refused.err
    takeback.done("undo", APP=owner.url)
    assert owner.rows("select * from c order by id") == [(1, "a"), (2, "b")]
