"""Real processes that want one run: one has it at a time, and who was paused too long cannot write any more."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from takeback.api.store import now
from takeback.errors import LeaseLost
from takeback.model.boot_clock import since_boot
from takeback.model.run import Lease, RunState
from takeback.runs.lease import Heartbeat
from takeback.storage.owners import myself
from takeback.storage.sqlite.store import Store, open_store
from takeback.testing.fakes import SECOND, ending, intending, submitting

RACERS = 8
processes = multiprocessing.get_context("fork")


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A store with one run that waits for a worker."""
    path = str(tmp_path / "store")
    with opened(path) as store:
        store.journal.append(None, [submitting("run", "deploy")])
    return path


@contextmanager
def opened(place: str) -> Iterator[Store]:
    store = open_store(place, now)
    try:
        yield store
    finally:
        store.close()


def claim(store: Store, lasts: int) -> Lease | None:
    return store.leases.claim(myself(), now(), lasts, ("deploy",))


def claimed(store: Store, lasts: int = 60 * SECOND) -> Lease:
    """Ask until it is given."""
    never = Event()
    for _ in range(3000):
        lease = claim(store, lasts)
        if lease:
            return lease
        never.wait(0.01)
    raise AssertionError("nobody got it")


@pytest.mark.parametrize(
    "rounds", [30, pytest.param(500, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_of_eight_processes_that_race_for_it_one_gets_it_each_time(place: str, rounds: int) -> None:
    start, end = processes.Barrier(RACERS), processes.Barrier(RACERS)
    won: Any = processes.Queue()
    racers = [
        processes.Process(target=_race, args=(place, rounds, start, end, won), daemon=True)
        for _ in range(RACERS)
    ]
    for racer in racers:
        racer.start()
    found = [won.get(timeout=120) for _ in range(RACERS)]
    for racer in racers:
        racer.join(timeout=30)
        assert racer.exitcode == 0
    assert sorted(generation for mine in found for generation in mine) == list(range(1, rounds + 1))
    with opened(place) as store:
        assert not list(store.journal.check())


def _race(place: str, rounds: int, start: Any, end: Any, won: Any) -> None:
    mine: list[int] = []
    with opened(place) as store:
        for round in range(rounds):
            start.wait(timeout=60)
            lease = claim(store, 60 * SECOND)
            end.wait(timeout=60)
            if lease is None:
                continue
            mine.append(lease.generation)
            # With the lease in hand it can write, whoever else has tried meanwhile.
            effect = f"e{round}"
            store.journal.append(lease, [intending(effect, "run"), ending(effect, "run")])
            store.leases.release(lease)
    won.put(mine)


@contextmanager
def worker(place: str, lasts: int) -> Iterator[tuple[int, Connection, Lease]]:
    """A process that has claimed the run, keeps it by its heartbeat, and appends when it is told to."""
    ours, theirs = processes.Pipe()
    process = processes.Process(target=_work, args=(place, lasts, theirs), daemon=True)
    process.start()
    try:
        assert ours.poll(30)
        yield process.pid or 0, ours, Lease(*ours.recv())
    finally:
        process.kill()
        process.join(30)


def _work(place: str, lasts: int, told: Connection) -> None:
    with opened(place) as store:
        begun = since_boot()
        lease = claimed(store, lasts)
        beat = Heartbeat(store.leases, lease, now, lasts, begun=begun)
        store.journal.append(lease, [intending("mine", "run")])
        told.send(tuple(lease))
        told.recv()
        refused = 0
        for draft in (ending("mine", "run"), intending("next", "run", "file:///b")):
            try:
                store.journal.append(lease, [draft])
            except LeaseLost:
                refused += 1
        try:
            beat.outlast(1)
        except LeaseLost:
            refused += 1
        told.send((refused, beat.lost.is_set()))


def test_a_worker_that_was_stopped_past_its_lease_cannot_write_when_it_wakes(place: str) -> None:
    with opened(place) as store, worker(place, SECOND // 5) as (pid, pipe, first):
        os.kill(pid, signal.SIGSTOP)
        second = claimed(store)
        before = list(store.journal.records())
        os.kill(pid, signal.SIGCONT)
        pipe.send("go on")
        assert pipe.poll(30)
        assert pipe.recv() == (3, True)
        assert second.generation == first.generation + 1
        assert list(store.journal.records()) == before
        assert store.leases.holder("run") == second


def test_a_worker_that_was_killed_loses_its_run_at_once(place: str) -> None:
    with opened(place) as store, worker(place, 3600 * SECOND) as (pid, _, first):
        assert claim(store, SECOND) is None
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet buried
        second = claim(store, SECOND)
        assert second is not None
        assert second.generation == first.generation + 1
        (info,) = store.journal.runs(("run",))
        assert info.state is RunState.OPEN
