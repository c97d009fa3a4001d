"""The same on a store in PostgreSQL: beside a single commit over such a connection; and what a claim costs."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from takeback.api.store import now
from takeback.model.ids import new_id
from takeback.model.record import Draft, Kind
from takeback.storage.owners import myself
from takeback.storage.postgres.store import PostgresStore, open_remote
from takeback.testing.fakes import closing, submitting
from tests.bench.effects import HOUR, Effects, timed
from tests.bench.measure import Line, Subject, Table, Wishes, in_turns, seconds_of
from tests.servers import postgres as servers
from tests.servers.fixtures import running

BATCH = 50
FEW, MANY = 1_000, 1_000_000


def measure(wishes: Wishes) -> Table:
    batch = 5 if wishes.quick else BATCH
    with server(wishes) as database:
        store = open_remote(database.url, os.path.join(wishes.directory, "beside"), "")
        raw = psycopg.connect(database.url, autocommit=True)
        raw.execute(
            "create table raw (seq bigint generated always as identity primary key, kind text, body text)"
        )
        lease = store.leases.acquire(new_id(), myself(), now(), HOUR)
        opening = {"name": "bench", "agent": "", "on_death": "undo"}
        store.journal.append(lease, [Draft(Kind.OPEN, lease.run, "", opening)])
        effects = Effects(lambda drafts: store.journal.append(lease, drafts), lease)

        def commit() -> None:
            raw.execute("insert into raw (kind, body) values ('intent', %s)", ("x" * 300,), prepare=True)

        for _ in range(5 if wishes.quick else 200):
            commit()
            effects.one()
        used: list[float] = []
        subjects: dict[str, Subject] = {
            "raw": lambda: seconds_of(commit, batch),
            "one": lambda: timed(effects.one, batch, used),
            "known": lambda: seconds_of(lambda: effects.in_a_row(batch)) / batch,
        }
        taken = in_turns(subjects, wishes.rounds)
        processor = sorted(used)[len(used) // 2]
        lines = [
            Line("one effect: intent, then done", taken["one"], "s", "one raw commit", taken["raw"], 0.45),
            Line("  processor time of that, here", processor, "s", bar=0.001),
            Line(
                "done and the next intent together", taken["known"], "s", "one raw commit", taken["raw"], 0.8
            ),
            Line("bytes in the database for each effect", _growth(store, effects, wishes), "B", bar=1500),
            _claims(store, wishes),
        ]
        raw.close()
        store.close()
    notes = (
        f"in batches of {batch}; raw commit: one INSERT of 300 bytes, prepared, its own transaction, default "
        "durability; two of them would be 0.50 x",
        "claim: the whole call, with its commit, in one and the same store",
    )
    return Table(
        "An effect in the journal (PostgreSQL; ratio of speeds; higher is better)", tuple(lines), notes
    )


def _growth(store: PostgresStore, effects: Effects, wishes: Wishes) -> float:
    steps = 100 if wishes.quick else 3000

    def size() -> int:
        with psycopg.connect(store.server.address.url, autocommit=True) as connection:
            connection.execute("vacuum")
        return store.bytes_on_disk()

    with store.together():
        for _ in range(steps):
            effects.one()
    before = size()
    with store.together():
        for _ in range(steps):
            effects.one()
    return (size() - before) / steps


def _claims(store: PostgresStore, wishes: Wishes) -> Line:
    few, many = (100, 2_000) if wishes.quick else (FEW, MANY)
    _ended(store, 0, few)
    first = _claim(store, wishes)
    _ended(store, few, many)
    return Line(
        f"a claim with {many:,} ended runs", _claim(store, wishes), "s", f"with {few:,}", first, 1.5, "cost"
    )


def _ended(store: PostgresStore, start: int, end: int) -> None:
    """As they stand when they have ended; their records are not what a claim looks at."""
    with psycopg.connect(store.server.address.url, autocommit=True) as connection:
        connection.execute("set search_path = takeback_store")
        connection.execute(
            "insert into runs (id, name, agent, state, on_death, opened_at, closed_at, workflow)"
            " select 'ended-' || n, 'deploy', '', 'kept', 'resume', n, n, 'deploy'"
            " from generate_series(%s::bigint, %s::bigint) n",
            (start, end - 1),
        )
        connection.execute(
            "insert into leases (run, generation, expires_at, pid, boot, space, started)"
            " select 'ended-' || n, 1, 0, 0, 'b', 's', '1' from generate_series(%s::bigint, %s::bigint) n",
            (start, end - 1),
        )
        connection.execute("vacuum analyze runs")
        connection.execute("vacuum analyze leases")


def _claim(store: PostgresStore, wishes: Wishes) -> float:
    """The median of many, each of a run that is submitted before and ended after."""
    taken: list[float] = []
    for _ in range(5 if wishes.quick else 101):
        run = new_id()
        store.journal.append(None, [submitting(run, "deploy")])
        begun = time.perf_counter()
        lease = store.leases.claim(myself(), now(), HOUR, ("deploy",))
        taken.append(time.perf_counter() - begun)
        assert lease is not None
        assert lease.run == run
        store.journal.append(lease, [closing(run)])
        store.leases.release(lease)
    return sorted(taken)[len(taken) // 2]


@contextmanager
def server(wishes: Wishes) -> Iterator[servers.PgDatabase]:
    programs = servers.of_the_system()
    if programs is None:
        raise SystemExit("The numbers of PostgreSQL need postgresql-15: tools/set-up installs it.")
    # The server is another user where we are root, so that it must get there.
    with tempfile.TemporaryDirectory(
        prefix="takeback-bench-", dir=Path(wishes.directory).parent.parent
    ) as own:
        os.chmod(own, 0o755)
        template = servers.made(programs, Path(own), "15")
        with running(servers.Postgres(programs, Path(own) / "server", template)) as server:
            yield server.fresh()
