"""Each kind of schema change, as `postgres_schema_cases` says: rows and definitions come back, as pg_dump has them."""

import re
import subprocess

import pytest

from takeback.errors import Conflict, TakebackError
from tests.sql.pg_bench import PgBench
from tests.sql.postgres_cases import CONFLICT, REFUSED, Case
from tests.sql.postgres_schema_cases import SCHEMA_CASES
from tests.sql.test_postgres_matrix import bench

__all__ = ["bench"]
_OTHER = r"^(--|\\|SET |SELECT pg_catalog.set_config|.*zz_takeback|.*takeback_ddl|.*takeback.schema_).*\n"


def world(bench: PgBench) -> dict[str, list[str]]:
    """Every row of every table, whatever the order of its columns."""
    return {
        name: sorted(row[0] for row in bench.rows(f"select to_jsonb(t)::text from only {name} t"))
        for name in bench.world()
    }


def definitions(bench: PgBench) -> str:
    """The schema without takeback's own things, and whatever the order of columns: a column that was dropped comes back
    at the end."""
    done = subprocess.run(
        [bench.pg_dump, "-s", "-N", "takeback", "-N", "takeback_*", bench.url],
        capture_output=True,
        text=True,
        check=True,
    )
    text = re.sub(_OTHER, "", done.stdout, flags=re.M)
    return "\n\n".join(sorted(_sorted_columns(block) for block in re.split(r"\n\s*\n", text)))


def _sorted_columns(block: str) -> str:
    head, bracket, rest = block.partition(" (\n")
    if not head.strip().startswith(("CREATE TABLE", "CREATE UNLOGGED TABLE")):
        return block.strip()
    lines = [line.strip().rstrip(",") for line in rest.split("\n")]
    return "\n".join([head.strip(), bracket, *sorted(lines)])


# All of them take minutes: a few of each kind are enough to see that it still works.
QUICK = (
    "add a column, then fill it",
    "drop a column, rows since",
    "change a type with loss",
    "rename a table",
    "drop a table with what hangs on it",
    "add a column that is filled since",
    "operators",
)
PARAMS = [
    pytest.param(
        tier, case, id=f"{tier}-{case.name}", marks=[] if case.name in QUICK and tier == "full" else [later]
    )
    for tier, later in (
        ("full", pytest.mark.slow),
        ("owner", pytest.mark.long),
        ("other version", pytest.mark.long),
    )
    for case in SCHEMA_CASES
]


@pytest.mark.parametrize(("bench", "case"), PARAMS, indirect=["bench"])
def test_schema(bench, case: Case):
    expect = (case.owner if bench.tier == "owner" else "") or case.expect
    bench.run(*case.setup)
    bench.protect()
    before, schema = world(bench), definitions(bench)
    if expect == REFUSED:
        with pytest.raises(TakebackError) as caught:
            bench.do(*case.statements)
        assert caught.value.hint
        assert (world(bench), definitions(bench)) == (before, schema)
        return
    effect = bench.do(*case.statements)
    assert effect.receipt["schema"]
    bench.run(*case.since)
    after, later = world(bench), definitions(bench)
    if not case.since:
        assert (after, later) != (before, schema)
    if expect == CONFLICT:
        assert bench.outcomes(effect)
        with pytest.raises(Conflict):
            bench.undo(effect)
        assert (world(bench), definitions(bench)) == (after, later)
        return
    undo = bench.undo(effect)
    if not case.since:
        assert_same(definitions(bench), schema)
        assert world(bench) == before
    redo = bench.undo(undo)
    if not case.since:
        assert_same(definitions(bench), later)
        assert world(bench) == after
    bench.undo(redo)
    if not case.since:
        assert_same(definitions(bench), schema)
        assert world(bench) == before


def assert_same(one: str, other: str) -> None:
    lines, others = one.split("\n"), other.split("\n")
    assert [line for line in lines if line not in others] == [line for line in others if line not in lines]
    assert one == other
