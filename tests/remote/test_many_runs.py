"""Four workers, many short runs, some workers killed meanwhile: each run was made once, by what the books say."""

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.storage.postgres.store import PostgresStore
from tests.remote import booking
from tests.remote.working import worker
from tests.servers.postgres import PgDatabase
from tests.servers.process import wait_until

WORKERS = 4
LONGEST = 1500  # seconds


class Office:
    """Who submits, who works, and who kills."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._at_work: list[subprocess.Popen[str]] = []
        self._killed: list[subprocess.Popen[str]] = []

    def start(self) -> None:
        self._at_work.append(worker(self._store))

    def kill_one(self) -> None:
        """The oldest, once it has made a run: it is in the middle of another one. A new one comes in its place."""
        oldest = self._at_work.pop(0)
        self._killed.append(oldest)
        made = "SELECT count(*) FROM entries WHERE pid = ?"
        wait_until(lambda: booking.asked(made, oldest.pid) > 0, "it works")
        oldest.kill()
        oldest.communicate()
        self.start()

    def stop(self) -> None:
        for one in self._at_work:
            one.send_signal(signal.SIGTERM)
        while self._at_work:
            one = self._at_work.pop()
            _, err = one.communicate(timeout=120)
            assert one.returncode == 0, err
            assert "Traceback" not in err

    def end(self) -> None:
        for one in self._at_work:
            one.kill()
            one.communicate()


@pytest.fixture
def office(pg_database: PgDatabase, swift_path: Path) -> Iterator[Office]:
    booking.begin(swift_path / "ledger.db")
    office = Office(pg_database.url)
    yield office
    office.end()


def _until_so_many_are_made(count: int) -> None:
    made = "SELECT count(*) FROM entries"
    wait_until(lambda: booking.asked(made) >= count, f"{count} are made", LONGEST)


def all_made_once(
    office: Office, tb: takeback.Takeback, count: int, kills: int, kill: Callable[[], Any] | None = None
) -> dict[str, Any]:
    """Killed is a worker, unless it is said otherwise."""
    assert isinstance(tb.store, PostgresStore)
    journal = tb.store.journal
    runs: list[takeback.RunInfo] = []

    def submit() -> None:
        runs.extend(tb.submit(booking.book, f"entry-{n}", key=f"run-{n}") for n in range(count))

    submitting = threading.Thread(target=submit)
    begun = time.monotonic()
    submitting.start()
    for _ in range(WORKERS):
        office.start()
    for nth in range(1, kills + 1):
        _until_so_many_are_made(count * nth // (kills + 1))
        (kill or office.kill_one)()
    # Of a run that has ended, the one effect is kept.
    wait_until(lambda: journal.tally().get("accepted", 0) >= count, "all of them have ended", LONGEST)
    over = time.monotonic()
    submitting.join()
    office.stop()

    assert booking.asked("SELECT count(DISTINCT key) FROM entries") == count, "none is lost"
    assert booking.asked("SELECT count(*) FROM entries") == count, "none is there twice"
    tally = journal.tally()
    # Whoever was killed before it acted left an intent, which came to nothing.
    nothing = tally.pop("aborted", 0)
    assert nothing <= kills
    assert tally == {"done": count, "accepted": count, "records": 4 * count + 2 * nothing}
    assert {booking.find(f"entry-{n}")["number"]: None for n in range(0, count, 97)} == dict.fromkeys(
        tb.result(run, 0) for run in runs[::97]
    )
    assert tb.verify().sound
    ((taken_over,),) = tb.store.server.read("SELECT count(*) FROM leases WHERE generation > 1")
    return {
        "runs": count,
        "workers killed": kills,
        "runs taken over": taken_over,
        "intents that came to nothing": nothing,
        "runs a second": round(count / (over - begun), 1),
        "seconds": round(over - begun, 1),
    }


def test_a_server_that_is_killed_and_started_again_loses_none_of_them(
    office: Office, pg_database: PgDatabase
) -> None:
    server = pg_database.server
    with takeback.open(pg_database.url) as tb:
        all_made_once(office, tb, 100, kills=3, kill=lambda: (server.kill(), server.start()))


def test_of_a_hundred_runs_none_is_lost_and_none_made_twice(office: Office, pg_database: PgDatabase) -> None:
    with takeback.open(pg_database.url) as tb:
        all_made_once(office, tb, 100, kills=2)


@pytest.mark.slow
@pytest.mark.timeout(2 * LONGEST)
def test_of_ten_thousand_runs_none_is_lost_and_none_made_twice(
    office: Office, pg_database: PgDatabase, record_property: Callable[[str, object], None]
) -> None:
    with takeback.open(pg_database.url) as tb:
        for what, number in all_made_once(office, tb, 10_000, kills=20).items():
            record_property(what, number)
