"""One effect in the journal, fenced and chained: beside a single commit of SQLite by hand, as durable."""

import os
import sqlite3
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from takeback.api.store import now
from takeback.model.ids import new_id
from takeback.model.record import Draft, Kind, canonical
from takeback.model.run import Lease
from takeback.storage.owners import myself
from takeback.storage.sqlite.store import open_store
from tests.bench.measure import Line, Subject, Table, Wishes, in_turns, seconds_of

BATCH = 100
HOUR = 3600 * 1_000_000
# Until its write-ahead file has been folded in once a database makes that file longer, which syncs more slowly.
SETTLED = 1100


def measure(wishes: Wishes) -> Table:
    batch = 10 if wishes.quick else BATCH
    raw = _Raw(os.path.join(wishes.directory, "raw.db"))
    store = open_store(os.path.join(wishes.directory, "store"), now)
    lease = store.leases.acquire(new_id(), myself(), now(), HOUR)
    opening = {"name": "bench", "agent": "", "on_death": "undo"}
    store.journal.append(lease, [Draft(Kind.OPEN, lease.run, "", opening)])
    effects = Effects(lambda drafts: store.journal.append(lease, drafts), lease)
    for _ in range(0 if wishes.quick else SETTLED):
        raw.commit()
        effects.one()
    used: list[float] = []
    subjects: dict[str, Subject] = {
        "raw": lambda: seconds_of(raw.commit, batch),
        "one": lambda: timed(effects.one, batch, used),
        "known": lambda: seconds_of(lambda: effects.in_a_row(batch)) / batch,
    }
    taken = in_turns(subjects, wishes.rounds)
    processor = sorted(used)[len(used) // 2]
    lines = (
        Line("one effect: intent, then done", taken["one"], "s", "one raw commit", taken["raw"], 0.45),
        Line("  processor time of that", processor, "s", bar=0.001),
        Line("done and the next intent together", taken["known"], "s", "one raw commit", taken["raw"], 0.8),
        Line("journal.db for each effect", _growth(wishes), "B", bar=1500),
    )
    notes = (
        f"an intent of {effects.size} bytes and a done of {len(canonical(effects.done))}, in batches of {batch}, "
        "after the write-ahead files of both have been folded in once",
        "raw commit: BEGIN IMMEDIATE, one INSERT of 300 bytes, COMMIT (WAL, FULL) by the same module; two of them "
        "would be 0.50 x",
    )
    raw.close()
    store.close()
    return Table(
        "An effect in the journal (SQLite; ratio of speeds; higher is better)", tuple(lines), tuple(notes)
    )


def _growth(wishes: Wishes) -> float:
    """Once the write-ahead file is folded in, of the 10,000th effects rather than of the first."""
    store = open_store(os.path.join(wishes.directory, "growing"), now)
    path = os.path.join(store.path, "journal.db")
    lease = store.leases.acquire(new_id(), myself(), now(), HOUR)
    opening = {"name": "bench", "agent": "", "on_death": "undo"}
    store.journal.append(lease, [Draft(Kind.OPEN, lease.run, "", opening)])
    effects = Effects(lambda drafts: store.journal.append(lease, drafts), lease)
    sizes: list[int] = []
    steps = 200 if wishes.quick else 2000
    for _ in range(2):
        with store.database.write():  # one commit: what it takes in the file is the same
            for _ in range(steps):
                effects.one()
        store.journal.tally()
        store.database.read("PRAGMA wal_checkpoint(TRUNCATE)")
        sizes.append(os.path.getsize(path))
    store.close()
    return (sizes[1] - sizes[0]) / steps


class Effects:
    """Calls of an action, as the journal hears of them."""

    def __init__(self, append: Callable[[list[Draft]], object], lease: Lease) -> None:
        self._append = append
        self._run = lease.run
        self._numbers = count(1000)
        self.done = {"receipt": {"id": "ch_000000000001", "status": "ok"}}
        self.size = len(canonical(self._intent().body))

    def one(self) -> None:
        intent = self._intent()
        self._append([intent])
        self._append([Draft(Kind.DONE, self._run, intent.effect, self.done)])

    def in_a_row(self, many: int) -> None:
        """Each append but the first and the last ends one effect and begins the next."""
        ended: list[Draft] = []
        for _ in range(many):
            intent = self._intent()
            self._append([*ended, intent])
            ended = [Draft(Kind.DONE, self._run, intent.effect, self.done)]
        self._append(ended)

    def _intent(self) -> Draft:
        number = next(self._numbers)
        place = f"call:///bank/charge/{number}"
        body: dict[str, Any] = {
            "adapter": "call",
            "kind": "charge",
            "resource": place,
            "summary": f"bank.charge order {number}",
            "key": f"order-{number}",
            "args": {"arguments": f'{{"amount":500,"order":{number}}}', "timeout": 30},
            "remedy": {
                "adapter": "call",
                "version": 1,
                "strategy": "compensation",
                "targets": [[place, {}, {}]],
            },
        }
        return Draft(Kind.INTENT, self._run, new_id(), body)


class _Raw:
    """The same durability, and nothing else."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute("CREATE TABLE records (seq INTEGER PRIMARY KEY, kind TEXT, body TEXT)")

    def commit(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")
        self._database.execute("INSERT INTO records (kind, body) VALUES ('intent', ?)", ("x" * 300,))
        self._database.execute("COMMIT")

    def close(self) -> None:
        self._database.close()


def timed(act: Callable[[], object], times: int, used: list[float]) -> float:
    begun = time.process_time()
    seconds = seconds_of(act, times)
    used.append((time.process_time() - begun) / times)
    return seconds
