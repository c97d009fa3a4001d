"""A connection that is cut, a server that is restarted: no record twice, and none that was told and is not there."""

import os
import signal
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.errors import InDoubt, LeaseLost, Unavailable
from takeback.model.record import Kind
from takeback.model.run import Lease
from takeback.storage.owners import myself
from takeback.storage.postgres.store import PostgresStore, open_remote
from takeback.storage.protocols import Query
from takeback.testing.fakes import closing as closing_run
from takeback.testing.fakes import ending, intending, opening, submitting
from tests.servers.postgres import PgDatabase, Postgres
from tests.servers.process import children, wait_until
from tests.servers.wire import Wire

LASTS = 60_000_000


def open_run(store: PostgresStore, run: str = "run") -> Lease:
    lease = store.leases.acquire(run, myself(), 0, LASTS)
    store.journal.append(lease, [opening(run)])
    return lease


def kinds(store: PostgresStore) -> list[Kind]:
    assert not list(store.journal.check())
    return [record.kind for record in store.journal.records()]


def test_an_append_that_never_arrived_is_made_once(store: PostgresStore, wire: Wire) -> None:
    lease = open_run(store)
    wire.lose(b"the-effect")
    (record,) = store.journal.append(lease, [intending("the-effect", "run")])
    assert (record.seq, kinds(store)) == (2, [Kind.OPEN, Kind.INTENT])


def test_an_append_whose_answer_was_lost_is_found_not_made_again(store: PostgresStore, wire: Wire) -> None:
    lease = open_run(store)
    wire.deafen(b"the-effect")
    made = store.journal.append(lease, [intending("the-effect", "run"), ending("the-effect", "run")])
    assert list(store.journal.records(after=1)) == list(made)
    assert kinds(store) == [Kind.OPEN, Kind.INTENT, Kind.DONE]


def test_an_append_with_blobs_whose_commit_was_not_answered_is_found(
    store: PostgresStore, wire: Wire
) -> None:
    lease = open_run(store)
    digest = store.blobs.put(b"content" * 100)
    wire.deafen()
    store.journal.append(lease, [intending("e", "run")])
    assert kinds(store) == [Kind.OPEN, Kind.INTENT]
    assert b"".join(store.blobs.read(digest)) == b"content" * 100
    assert not list(store.blobs.check(True))


def test_a_commit_that_never_arrived_leaves_nothing_and_says_so(store: PostgresStore, wire: Wire) -> None:
    lease = open_run(store)
    digest = store.blobs.put(b"content" * 100)
    wire.lose(b"commit\x00")
    with pytest.raises(Unavailable) as lost:
        store.journal.append(lease, [intending("e", "run")])
    assert not isinstance(lost.value, InDoubt)
    assert kinds(store) == [Kind.OPEN]
    # What was put is not lost with it.
    store.journal.append(lease, [intending("e", "run")])
    assert b"".join(store.blobs.read(digest)) == b"content" * 100


def test_a_lease_whose_answer_was_lost_is_the_same_lease(store: PostgresStore, wire: Wire) -> None:
    wire.deafen(b"the-run")
    lease = store.leases.acquire("the-run", myself(), 0, LASTS)
    assert lease.generation == 1
    assert store.leases.holder("the-run") == lease
    wire.deafen(b"the-run")
    store.leases.renew(lease, 0, LASTS)
    wire.deafen(b"the-run")
    store.leases.release(lease)
    assert store.leases.free("the-run", 0)


def test_a_claim_whose_answer_was_lost_is_the_same_claim(store: PostgresStore, wire: Wire) -> None:
    store.journal.append(None, [submitting("one", "deploy"), submitting("two", "deploy")])
    wire.deafen(b"deploy")
    lease = store.leases.claim(myself(), 1 << 60, LASTS, ("deploy",))
    assert lease is not None
    assert (lease.run, lease.generation) == ("one", 1)
    again = store.leases.claim(myself(), 1 << 60, LASTS, ("deploy",))
    assert again is not None
    assert again.run == "two"


def test_who_was_away_and_was_taken_over_is_refused_when_it_is_back(
    store: PostgresStore, wire: Wire, pg_database: PgDatabase, tmp_path: Path
) -> None:
    lease = open_run(store)
    other = open_remote(pg_database.url, os.fspath(tmp_path / "beside"), "")
    try:
        other.server.read("UPDATE leases SET expires_at = 1")
        taken = other.leases.acquire("run", myself(), 0, LASTS, expired=True)
        wire.cut()
        with pytest.raises(LeaseLost):
            store.journal.append(lease, [intending("e", "run")])
        other.journal.append(taken, [intending("e", "run")])
    finally:
        other.close()
    assert kinds(store) == [Kind.OPEN, Kind.INTENT]


def test_reading_goes_on_after_a_cut(store: PostgresStore, wire: Wire) -> None:
    open_run(store)
    wire.cut()
    assert [info.id for info in store.journal.runs()] == ["run"]
    wire.cut()
    assert not list(store.journal.effects(Query()))


def test_a_server_that_is_restarted_in_mid_run_is_waited_for(
    postgres: Postgres, pg_database: PgDatabase, tmp_path: Path
) -> None:
    store = open_remote(pg_database.url, os.fspath(tmp_path / "beside"), "")
    try:
        lease = open_run(store)
        for number in range(3):
            postgres.stop()
            # The server is started by this thread: it ends with whoever started it.
            waiting = threading.Thread(
                target=store.journal.append, args=(lease, [intending(f"e{number}", "run")])
            )
            waiting.start()
            postgres.start()
            waiting.join()
            postgres.kill()
            postgres.start()
            store.journal.append(lease, [ending(f"e{number}", "run")])
            store.leases.renew(lease, 0, LASTS)
        assert kinds(store) == [Kind.OPEN, *[Kind.INTENT, Kind.DONE] * 3]
    finally:
        store.close()


def test_a_server_that_does_not_come_back_is_told(
    store: PostgresStore, wire: Wire, pg_database: PgDatabase
) -> None:
    lease = open_run(store)
    store.server.patience = 0.3
    pg_database.server.stop()
    try:
        with pytest.raises(InDoubt):
            store.journal.append(lease, [intending("e", "run")])
        with pytest.raises(Unavailable):
            list(store.journal.runs())
    finally:
        pg_database.server.start()


SERVERS: list[Postgres] = []


@takeback.action(name="tests.stop_the_server")
def stop_the_server(name: str) -> str:
    SERVERS[0].stop()
    return name


@stop_the_server.undo
def nothing(receipt: str) -> None:
    """There is nothing to take back."""


@pytest.mark.parametrize("at_once", [True, False], ids=["call", "call_all"])
def test_a_call_during_which_the_server_goes_away_is_in_doubt_also_after_its_run(
    pg_database: PgDatabase, at_once: bool
) -> None:
    SERVERS[:] = [pg_database.server]
    with takeback.open(pg_database.url) as tb:
        assert isinstance(tb.store, PostgresStore)
        tb.store.server.patience = 0.3
        try:
            with (
                pytest.raises(InDoubt, match=r"was called, but the outcome could not be recorded") as told,
                tb.run("away", on_death="accept") as run,
            ):
                if at_once:
                    run.call(stop_the_server, "one")
                else:
                    run.call_all(stop_the_server, [{"name": "one"}, {"name": "two"}])
        finally:
            pg_database.server.start()
        assert "could not be ended" in told.value.__notes__[0]
        (effect,) = tb.effects(state="intended")
        assert told.value.effect == effect.id
        assert "one" in effect.change.summary


def test_what_was_sent_and_cannot_be_asked_for_is_in_doubt(store: PostgresStore, wire: Wire) -> None:
    lease = open_run(store)
    store.server.patience = 0.3
    wire.deafen(b"the-effect")
    wire.close_after = True
    with pytest.raises(InDoubt):
        store.journal.append(lease, [intending("the-effect", "run")])


@pytest.fixture
def impatient(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> PostgresStore:
    monkeypatch.setattr("takeback.storage.postgres.connection.SILENCE", 1)
    return store


def test_a_process_of_the_server_that_is_stopped_appends_nothing_when_it_goes_on(
    impatient: PostgresStore, pg_database: PgDatabase
) -> None:
    """It has got what it was sent; it was not waited for, and has then been asked again by another way."""
    store, lease = impatient, open_run(impatient)
    asked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'takeback store' AND datname = %s"
    with closing(pg_database.connect()) as witness:
        for draft in (intending("e", "run"), ending("e", "run"), closing_run("run")):
            stopped = [pid for (pid,) in witness.execute(asked, (pg_database.name,))]
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            (record,) = store.journal.append(lease, [draft])
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            wait_until(lambda: not _all_there(witness, stopped), "it has read all it was sent")  # noqa: B023
            assert list(store.journal.records(after=record.seq - 1)) == [record]
    assert kinds(store) == [Kind.OPEN, Kind.INTENT, Kind.DONE, Kind.CLOSE]


def _all_there(witness: Any, pids: list[int]) -> bool:
    """Whoever serves a connection that was given up ends when it finds that out, after all that it was sent before."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(%s)"
    return witness.execute(asked, (pids,)).fetchone()[0] == len(pids)


def test_a_server_that_hears_and_says_nothing_is_not_waited_for_for_ever(
    pg_database: PgDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("takeback.storage.postgres.connection.SILENCE", 1)
    store = open_remote(f"{pg_database.url}?connect_timeout=2", os.fspath(tmp_path / "beside"), "")
    lease = open_run(store)
    store.server.patience = 0.3
    family = [pg_database.server.pid, *children(pg_database.server.pid)]
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(InDoubt):
            store.journal.append(lease, [intending("e", "run")])
        with pytest.raises(Unavailable):
            list(store.journal.runs())
        with pytest.raises(Unavailable):
            store.leases.renew(lease, 0, LASTS)
    finally:
        for pid in family:
            os.kill(pid, signal.SIGCONT)
    store.server.patience = 30
    store.leases.renew(lease, 0, LASTS)
    store.close()


def test_threads_share_a_store(store: PostgresStore) -> None:
    leases = [open_run(store, f"run-{number}") for number in range(6)]
    problems: list[BaseException] = []

    def work(lease: Lease) -> None:
        try:
            for number in range(10):
                effect = f"{lease.run}-{number}"
                digest = store.blobs.put(effect.encode() * 50)
                store.journal.append(lease, [intending(effect, lease.run, f"file:///{lease.run}")])
                assert b"".join(store.blobs.read(digest)) == effect.encode() * 50
                store.journal.append(lease, [ending(effect, lease.run)])
                store.leases.renew(lease, 0, LASTS)
        except BaseException as problem:  # noqa: BLE001
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(lease,)) for lease in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert store.journal.count(Query()) == 60
    assert not list(store.journal.check())
