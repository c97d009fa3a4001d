"""Transactions of PostgreSQL that wait for a person: prepared, so that they outlive everybody, or open in a session."""

import pytest

from takeback.adapters.database import OPEN, PREPARED
from takeback.errors import Refused, StoreBusy
from takeback.model.change import Phase, Review
from takeback.model.effect import Effect, State
from takeback.model.plan import Standing
from tests.servers.process import wait_until
from tests.sql.engines import intended
from tests.sql.pg_bench import PgBench


def made(url: str) -> PgBench:
    bench = PgBench(url)
    bench.run("create table t (id int primary key, a text)", "insert into t values (1, 'x'), (2, 'y')")
    bench.protect()
    return bench


@pytest.fixture
def bench(pg_database):
    """As servers are by default: nothing can be prepared."""
    bench = made(pg_database.url)
    yield bench
    bench.close()


@pytest.fixture
def prepared(postgres_prepared):
    database = postgres_prepared.fresh()
    bench = made(database.url)
    yield bench
    bench.close()
    database.drop()


def held(bench: PgBench, session, adapter, statement: str, seconds: float = 600) -> Effect:
    effect = intended(adapter, session.database, statement)
    session.begin(effect)
    session.execute(statement, ())
    shown = session.review()
    change = effect.change._replace(phase=Phase(reviewed=Review(shown.how, shown.receipt, "")))
    effect = effect._replace(change=change, state=State.PROPOSED)
    session.hold(effect, seconds)
    return effect


def standing(bench: PgBench, effect: Effect) -> Standing:
    return bench.adapter().verify(effect).standing


def test_what_is_prepared_outlives_its_session_and_is_kept_by_anybody(prepared):
    before = prepared.world()
    adapter = prepared.adapter()
    session = adapter.connect(prepared.database)
    effect = held(prepared, session, adapter, "update t set a = 'z' where id = 1")
    assert effect.phase.reviewed.how == PREPARED
    session.close()
    assert standing(prepared, effect) is Standing.BETWEEN
    assert prepared.world() == before

    receipt = prepared.adapter().apply(effect)

    assert receipt.data["tables"]["public.t"]["updated"] == 1
    assert standing(prepared, effect) is Standing.AFTER
    assert prepared.adapter().apply(effect) == receipt
    prepared.adapter().tidy(effect._replace(state=State.DONE))
    assert prepared.rows("select a from t order by id") == [("z",), ("y",)]
    prepared.undo(effect._replace(state=State.DONE))
    assert prepared.world() == before


@pytest.mark.parametrize("way", ["tidy", "undo"])
def test_what_is_prepared_and_dropped_never_happened(prepared, way):
    before = prepared.world()
    adapter = prepared.adapter()
    session = adapter.connect(prepared.database)
    effect = held(prepared, session, adapter, "delete from t")
    session.close()

    getattr(prepared.adapter(), way)(effect)

    assert standing(prepared, effect) is Standing.BEFORE
    assert prepared.world() == before
    prepared.run("set lock_timeout = '60s'", "update t set a = a")  # nobody holds them any more
    with pytest.raises(Refused, match="not held any more"):
        prepared.adapter().apply(effect)


def test_a_session_that_prepared_one_makes_the_next(prepared):
    adapter = prepared.adapter()
    session = adapter.connect(prepared.database)
    first = held(prepared, session, adapter, "update t set a = 'z' where id = 1")
    second = held(prepared, session, adapter, "update t set a = 'z' where id = 2")
    session.close()
    prepared.adapter().apply(second)
    prepared.adapter().undo(first)
    assert prepared.rows("select a from t order by id") == [("x",), ("z",)]


def test_what_is_prepared_survives_the_server(prepared, postgres_prepared):
    adapter = prepared.adapter()
    session = adapter.connect(prepared.database)
    effect = held(prepared, session, adapter, "insert into t values (3, 'new')")
    postgres_prepared.kill()
    session.close()
    postgres_prepared.start()
    with PgBenchOf(prepared) as again:
        assert standing(again, effect) is Standing.BETWEEN
        again.adapter().apply(effect)
        assert again.rows("select count(*) from t") == [(3,)]
        again.undo(effect._replace(state=State.DONE))
        assert again.rows("select count(*) from t") == [(2,)]


class PgBenchOf:
    """The same database, after its server was started again."""

    def __init__(self, bench: PgBench) -> None:
        self._bench = bench

    def __enter__(self) -> PgBench:
        self._bench.close()
        self._new = PgBench(self._bench.url)
        return self._new

    def __exit__(self, *_: object) -> None:
        self._new.close()


def test_what_made_a_temporary_table_is_held_open(prepared):
    adapter = prepared.adapter()
    session = adapter.connect(prepared.database)
    effect = intended(adapter, session.database, "two")
    session._connection.execute("create temp table scratch (a text)")  # a function may have made it
    session.begin(effect)
    session.execute("insert into scratch select a from t", ())
    session.execute("update t set a = 'z'", ())
    assert session.review().how == OPEN
    session.close()


def test_an_open_one_is_kept_by_its_own_adapter(bench):
    before = bench.world()
    adapter = bench.adapter()
    session = adapter.connect(bench.database)
    effect = held(bench, session, adapter, "update t set a = 'z' where id = 1")
    assert effect.phase.reviewed.how == OPEN
    assert adapter.verify(effect).standing is Standing.BETWEEN
    assert bench.world() == before
    adapter.apply(effect)
    assert adapter.verify(effect).standing is Standing.AFTER
    assert adapter.apply(effect).data["tables"]
    bench.undo(effect._replace(state=State.DONE))
    assert bench.world() == before
    again = held(bench, session, adapter, "delete from t")
    adapter.tidy(again)
    assert adapter.verify(again).standing is Standing.BEFORE
    session.close()
    assert bench.world() == before


def test_an_open_one_has_a_limit(bench):
    before = bench.world()
    adapter = bench.adapter()
    session = adapter.connect(bench.database)
    effect = held(bench, session, adapter, "update t set a = 'z' where id = 1", seconds=0.05)
    wait_until(lambda: adapter.verify(effect).standing is Standing.BEFORE, "the server gave it up")
    with pytest.raises(Refused, match="not held any more"):
        adapter.apply(effect)
    assert bench.world() == before
    bench.run("set lock_timeout = '60s'", "update t set a = a")
    session.close()


def test_an_open_one_of_another_process_is_ended_before_it_is_called_gone(bench):
    adapter = bench.adapter()
    session = adapter.connect(bench.database)
    effect = held(bench, session, adapter, "update t set a = 'z' where id = 1")
    assert standing(bench, effect) is Standing.BEFORE
    with pytest.raises(Refused, match="not held any more"):
        adapter.apply(effect)
    session.close()


def test_others_wait_for_the_rows_and_undo_says_so(prepared):
    earlier = prepared.do("update t set a = 'e' where id = 1")
    adapter = prepared.adapter()
    session = adapter.connect(prepared.database)
    effect = held(prepared, session, adapter, "update t set a = 'z' where id = 1")
    session.close()
    with pytest.raises(StoreBusy):
        prepared.undo(earlier)
    prepared.adapter().undo(effect)
    prepared.undo(earlier)
    assert prepared.rows("select a from t order by id") == [("x",), ("y",)]
