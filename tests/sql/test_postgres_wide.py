"""Statements that change many rows: their images are found in another way than those of few, and none is lost."""

import os
import subprocess
import sys

import pytest

from takeback.adapters.postgres.logs import MANY
from tests.sql.engines import intended
from tests.sql.pg_bench import PgBench

ROWS = 2 * MANY


@pytest.fixture
def bench(pg_database):
    bench = PgBench(pg_database.url)
    bench.run(
        "create table t (id int primary key, a int)",
        f"insert into t select i, i from generate_series(1, {ROWS}) i",
        "create table loose (a int)",
    )
    bench.protect()
    yield bench
    bench.close()


def wide(bench: PgBench) -> set[int]:
    return {row[0] for row in bench.rows("select op from takeback.wide")}


@pytest.mark.parametrize(
    "statements",
    [
        ("update t set a = a + 1",),
        (f"update t set a = -a where id < {MANY}",),
        (f"update t set a = -a where id <= {MANY}",),
        (f"insert into t select i, 0 from generate_series({ROWS + 1}, {2 * ROWS}) i",),
        ("delete from t",),
        ("truncate t",),
        ("update t set a = -1 where id = 5", "update t set a = a + 1", "delete from t where id = 7"),
        ("update t set a = a + 1", "update t set a = a - 1 where id > 3"),
        ("insert into loose select 1 from t", "delete from loose where ctid = '(0,1)'"),
        ("savepoint s", "update t set a = 0", "rollback to savepoint s", "update t set a = 0 where id = 1"),
    ],
)
def test_there_and_back_and_there(bench, statements):
    before = bench.world()
    small = bench.do("update t set a = 17 where id = 9")
    between = bench.world()
    effect = bench.do(*statements)
    after = bench.world()
    undo = bench.undo(effect)
    assert bench.world() == between
    redo = bench.undo(undo)
    assert bench.world() == after
    bench.undo(redo)
    bench.undo(small)
    assert bench.world() == before


def test_the_images_of_few_rows_are_in_an_index(bench):
    bench.do("update t set a = a + 1")
    bench.do("update t set a = a + 1 where id = 1")
    log = bench.rows("select no from takeback.log where name = 'public.t'")[0][0]
    bench.run("analyze", "set enable_seqscan = off")
    plan = bench.rows(f"explain select * from takeback.log_{log} where op = 2 and not wide")
    assert f"log_{log}_op_idx" in str(plan)
    assert bench.rows(f"select wide, count(*) from takeback.log_{log} group by 1 order by 1") == [
        (False, 2),
        (True, 2 * ROWS),
    ]
    assert len(wide(bench)) == 1


def test_an_undo_of_many_rows_outlives_the_forgetting_of_the_effect(bench):
    before = bench.world()
    effect = bench.do("update t set a = a + 1")
    after = bench.world()
    undo = bench.undo(effect)
    assert bench.world() == before
    bench.adapter().release(effect)
    redo = bench.undo(undo)
    assert bench.world() == after
    bench.adapter().release(undo)
    bench.adapter().release(redo)
    assert bench.rows("select count(*) from takeback.wide") == [(0,)]


def test_a_program_that_changes_many_rows(bench):
    before = bench.world()
    adapter = bench.adapter()
    effect = intended(adapter, bench.database, "a program")
    given = adapter.enter(effect)
    code = (
        "import psycopg, sys\n"
        "with psycopg.connect(sys.argv[1], autocommit=True) as c:\n"
        "    c.execute('update t set a = a + 1')\n"
        "    c.execute('update t set a = a + 1 where id = 1')\n"
    )
    subprocess.run([sys.executable, "-c", code, bench.url], check=True, env={**os.environ, **given})
    receipt = adapter.leave(effect)
    assert receipt and receipt["tables"]["public.t"]["updated"] == ROWS  # one of them twice
    bench.undo(effect._replace(receipt=receipt))
    assert bench.world() == before
