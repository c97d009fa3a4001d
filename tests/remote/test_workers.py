"""Workers on a store that they share: who submits, who works and who signals are different processes."""

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

import takeback
from takeback.model.run import RunState
from takeback.storage.owners import myself
from takeback.storage.postgres.store import PostgresStore, open_remote
from takeback.testing.fakes import closing, ending, intending, signalling, submitting, suspending
from tests.e2e.conftest import COMMAND, surroundings
from tests.servers.postgres import PgDatabase

FLOW = """
import os, signal, takeback

@takeback.workflow
def release(run, version):
    run.write("version.txt", version)
    if not os.path.exists("killed"):
        open("killed", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    run.write("CHANGELOG", f"notes of {version}")
    return {"released": version}
"""


@pytest.fixture
def place(tmp_path: Path, pg_database: PgDatabase, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", os.fspath(tmp_path / "state"))
    monkeypatch.setenv("TAKEBACK_STORE", pg_database.url)
    (tmp_path / "world").mkdir()
    (tmp_path / "world" / "flows.py").write_text(FLOW)
    return tmp_path / "world"


def command(place: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *words], cwd=place, env=surroundings(), capture_output=True, timeout=120, check=False
    )


def test_a_worker_that_was_killed_is_followed_by_another(place: Path, pg_database: PgDatabase) -> None:
    assert command(place, "submit", "flows:release", '"v1"', "--key", "one").returncode == 0
    assert command(place, "worker", "flows", "--until-idle").returncode == -signal.SIGKILL
    second = command(place, "worker", "flows", "--until-idle")
    assert second.returncode == 0, second.stderr
    assert (place / "CHANGELOG").read_text() == "notes of v1"
    with takeback.open(pg_database.url) as tb:
        (run,) = tb.runs()
        assert run.state is RunState.ACCEPTED
        assert [effect.change.kind for effect in tb.effects()] == ["write", "write"]
        assert tb.verify().sound


def test_who_waits_for_work_is_woken_by_a_submission_and_by_a_signal(store: PostgresStore) -> None:
    store.wait_for_work(0)  # has an ear from now on
    for act in (
        lambda: store.journal.append(None, [submitting("run", "deploy")]),
        lambda: _put_to_sleep(store),
        lambda: store.journal.append(None, [signalling("run", "paid")]),
    ):
        woken = threading.Event()

        def wait(woken: threading.Event = woken) -> None:
            store.wait_for_work(60)
            woken.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        act()
        assert woken.wait(30)
        waiting.join()


def test_what_was_told_between_two_waits_is_not_forgotten(store: PostgresStore) -> None:
    store.wait_for_work(0)
    store.journal.append(None, [submitting("run", "deploy")])
    waiting = threading.Thread(target=store.wait_for_work, args=(60,))
    waiting.start()
    waiting.join(30)
    assert not waiting.is_alive()


def _put_to_sleep(store: PostgresStore) -> None:
    lease = store.leases.claim(myself(), 1 << 60, 60_000_000, ("deploy",))
    assert lease is not None
    store.journal.append(lease, [suspending("run", due=1 << 61, awaits="paid")])
    store.leases.release(lease)


def test_of_four_that_claim_a_hundred_runs_none_is_lost_and_none_made_twice(
    place: Path, pg_database: PgDatabase, store: PostgresStore
) -> None:
    runs = [f"run-{number:03}" for number in range(100)]
    store.journal.append(None, [submitting(run, "deploy") for run in runs])
    taken: list[str] = []
    problems: list[BaseException] = []

    def work(own: PostgresStore) -> None:
        try:
            while lease := own.leases.claim(myself(), 1 << 60, 60_000_000, ("deploy",)):
                own.journal.append(
                    lease, [intending(f"effect of {lease.run}", lease.run, f"call:///{lease.run}")]
                )
                own.journal.append(lease, [ending(f"effect of {lease.run}", lease.run), closing(lease.run)])
                own.leases.release(lease)
                taken.append(lease.run)
        except BaseException as problem:  # noqa: BLE001
            problems.append(problem)

    stores = [open_remote(pg_database.url, os.fspath(place / "beside"), "") for _ in range(4)]
    threads = [threading.Thread(target=work, args=(own,)) for own in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for own in stores:
        own.close()
    assert not problems
    assert sorted(taken) == runs
    assert store.journal.tally() == {"done": 100, "accepted": 100, "records": 400}
    assert not list(store.journal.check())


def test_with_another_version_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pg_other_database: PgDatabase
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", os.fspath(tmp_path / "state"))
    (tmp_path / "file").write_bytes(b"old" * 100_000)
    with takeback.open(pg_other_database.url) as tb:
        with tb.run("work") as run:
            effect = run.write(tmp_path / "file", b"new")
        tb.undo(effect)
        assert (tmp_path / "file").read_bytes() == b"old" * 100_000
        assert tb.verify(read_data=True).sound
        assert tb.sweep(0) >= 0
