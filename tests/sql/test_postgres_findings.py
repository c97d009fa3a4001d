"""Defects of PostgreSQL that were found by trying to break it, by their numbers; each failed before it was mended."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from takeback.errors import NoRemedy
from tests.sql.engines import intended
from tests.sql.pg_bench import PgBench
from tests.sql.test_postgres_schema import definitions, world


@contextmanager
def program(bench: PgBench, **options: str) -> "Iterator[psycopg.Connection]":
    """A program's own session. `bench.effect` is what it did, when it has ended."""
    adapter = bench.adapter()
    effect = intended(adapter, bench.database, "a program")
    given = {"options": adapter.enter(effect)["PGOPTIONS"]} | options
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
    before = world(users), definitions(users)

    effect = users.do("alter table users alter column age type text", "alter table users add column note text")
    users.undo(effect)

    assert (world(users), definitions(users)) == before
    assert effect.receipt["schema"] == [
        "column public.users.age was changed (type)",
        "column public.users.note was created",
    ]


def test_finding_38_advice_that_differs_is_named_and_the_way_back_stays(users):
    before = world(users)
    effect = users.do("alter table users alter column age type text")
    users.run("alter table users alter column age set (n_distinct = 3)")
    claims(users, "future")

    undo = users.undo(effect)

    assert world(users) == before
    differs = [one for one in undo.receipt["schema"] if "differs from before" in one]
    assert len(differs) == 1 and differs[0].startswith("column public.users.age differs from before (options: ")
    assert "future=" in differs[0]


# -- 7: the usual rebuild of a table

_REBUILT = (
    "create table n (id int primary key, name text, age int)",
    "insert into n select id, name || 'x', age from users",
    "drop table users",
    "alter table n rename to users",
)


def test_finding_7_a_table_that_was_rebuilt_in_one_transaction_comes_back(users):
    before = world(users), definitions(users)
    effect = users.do(*_REBUILT)
    after = world(users), definitions(users)

    undo = users.undo(effect)
    assert (world(users), definitions(users)) == before
    redo = users.undo(undo)
    assert (world(users), definitions(users)) == after
    users.undo(redo)
    assert (world(users), definitions(users)) == before


def test_finding_7_a_table_that_a_program_rebuilt_comes_back(users):
    before = world(users), definitions(users)
    with program(users) as connection, connection.transaction():
        for statement in _REBUILT:
            connection.execute(statement)
    assert "one_way" not in users.effect.receipt

    users.undo(users.effect)

    assert (world(users), definitions(users)) == before


def test_finding_7_changes_that_have_no_way_back_together_are_refused_before(users):
    users.run("create table other (id int primary key)")
    before = world(users), definitions(users)

    with pytest.raises(NoRemedy, match="Together these statements cannot be taken back"):
        users.do(
            "create table n (id int primary key)",
            "alter table other add column n int references n",
            "drop table users",
            "alter table n rename to users",
        )

    assert (world(users), definitions(users)) == before
