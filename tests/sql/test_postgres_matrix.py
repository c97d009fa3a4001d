"""Each kind of statement, as `postgres_cases` says, for a role that may do everything and one that owns the tables, and
on another version of PostgreSQL."""

import pytest

from takeback.errors import Conflict, TakebackError
from tests.sql.pg_bench import PgBench
from tests.sql.postgres_cases import CASES, CONFLICT, EXACT, REFUSED, Case

OWNER = "matrix_owner"
OTHER = "other version"


TIERS = ("full", "owner", OTHER)
# The other version comes without these libraries.
WITHOUT = ("a key that ignores case", "json, xml and points, which have no equality")
PARAMS = [
    pytest.param(tier, case, id=f"{tier}-{case.name}", marks=[pytest.mark.slow] if tier == OTHER else [])
    for tier in TIERS
    for case in CASES
    if tier != OTHER or case.name not in WITHOUT
]


@pytest.fixture
def bench(request):
    other = request.param == OTHER
    pg_database = request.getfixturevalue("pg_other_database" if other else "pg_database")
    with pg_database.connect() as admin:
        url = pg_database.url
        if request.param == "owner":
            admin.execute(
                f"do $$ begin create role {OWNER} login password 'x'; exception when duplicate_object then null; end $$"
            )
            admin.execute(f'alter database "{pg_database.name}" owner to {OWNER}')
            admin.execute(f"alter schema public owner to {OWNER}")
            url = pg_database.server.url(pg_database.name, OWNER, "x")
    bench = PgBench(url, pg_database.server.programs)
    bench.tier = request.param
    yield bench
    bench.close()


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("bench", "case"), PARAMS, indirect=["bench"])
def test_matrix(bench, case: Case):
    if bench.by_hand.info.server_version // 10000 < case.version:
        return
    expect = (case.owner if bench.tier == "owner" else "") or case.expect
    bench.run(*case.setup)
    if case.name == "a table that is not protected":
        bench.protect()
        bench.run("create table new (id int)")
        case = case._replace(statements=("insert into new values (1)",))
    bench.protect()
    if case.name == "a table that is not protected":
        bench.adapter().unprotect(bench.database, ["new"])
    before = bench.world()
    if expect == REFUSED:
        with pytest.raises(TakebackError) as caught:
            bench.do(*case.statements)
        assert caught.value.hint
        assert bench.world() == before
        return
    effect = bench.do(*case.statements)
    if not case.since:
        assert bench.world() != before
    bench.run(*case.since)
    after = bench.world()
    if expect == CONFLICT:
        with pytest.raises(Conflict):
            bench.undo(effect)
        assert bench.world() == after
        return
    assert expect == EXACT
    undo = bench.undo(effect)
    if not case.since:
        assert bench.world() == before
    redo = bench.undo(undo)
    assert bench.world() == after
    bench.undo(redo)
    if not case.since:
        assert bench.world() == before
