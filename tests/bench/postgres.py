"""PostgreSQL: what capture costs the server for each row and each small transaction, how fast an effect is taken back,
and how much memory that takes. Processor time is that of the server's own process: other work of the machine is not in
it."""

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from takeback.adapters.postgres.adapter import PostgresAdapter
from takeback.adapters.postgres.session import PostgresSession
from takeback.model.effect import Effect
from takeback.model.plan import Standing
from tests.bench.measure import Line, Table, Wishes, in_turns
from tests.servers import postgres as servers
from tests.servers.fixtures import running
from tests.sql.engines import intended
from tests.sql.pg_bench import PgBench

_COLUMNS = "id int primary key, name text, number int, price numeric(10, 2), text text, at timestamptz"
_FILL = (
    "insert into {} select i, 'name ' || i, i % 1000, i * 1.5, 'some text that is a bit longer ' || i, "
    "'2026-01-01'::timestamptz + i * interval '1 second' from generate_series(1, {}) i"
)
_UPDATE = "update {} set number = number + 1, text = text || 'x'"
_DELETE = "delete from {}"
# What an audit trigger does: every row as jsonb, before and after.
_BY_ROW = """
create table audit (table_name text, at timestamptz default now(), before jsonb, after jsonb);
create function audited() returns trigger language plpgsql as $$
begin
  insert into audit (table_name, before, after) values (tg_table_name,
    case when tg_op <> 'INSERT' then to_jsonb(old) end, case when tg_op <> 'DELETE' then to_jsonb(new) end);
  return null;
end $$;
create trigger audited after insert or update or delete on by_row for each row execute function audited()
"""
_PLAIN, _IDLE, _CAPTURED, _ROW = "plain", "idle", "captured", "by_row"
_EVENTS = ("INSERT", "UPDATE", "DELETE")
_BARS = {"INSERT": 4e-6, "UPDATE": 8e-6, "DELETE": 4e-6}


def measure(wishes: Wishes) -> Table:
    with _bench(wishes) as bench:
        rows = 5_000 if wishes.quick else 100_000
        lines = [*_capture(bench, wishes, rows), *_small(bench, wishes), _one_row(bench, wishes)]
        lines += [_undo(bench, rows, event) for event in _EVENTS]
        lines.append(_one_among_many(bench, rows * (1 if wishes.quick else 10)))
        lines += _memory(bench, 10_000_000 if wishes.full else rows * 2)
    notes = (
        "capture: processor time of the server's process for each row, over the same without capture, in turns",
        "idle: the tables are protected, and a run works on others, so that the triggers are attached",
        "an undo compares every row with what the effect left, puts it back and reads it again",
        "memory: the most that a process had for itself, without the buffers that all processes of the server share",
    )
    return Table("PostgreSQL", tuple(lines), notes)


@contextmanager
def _bench(wishes: Wishes) -> Iterator[PgBench]:
    with served(wishes) as (bench, _):
        yield bench


@contextmanager
def served(wishes: Wishes) -> Iterator[tuple[PgBench, servers.Postgres]]:
    programs = servers.of_the_system()
    if programs is None:
        raise SystemExit("The numbers of PostgreSQL need postgresql-15: tools/set-up installs it.")
    # The server is another user where we are root, so that it must get there.
    with tempfile.TemporaryDirectory(
        prefix="takeback-bench-", dir=Path(wishes.directory).parent.parent
    ) as own:
        os.chmod(own, 0o755)
        template = servers.made(programs, Path(own) / "shared", "15")
        settings = {"shared_buffers": "128MB", "max_wal_size": "2GB", "autovacuum": "off"}
        with running(servers.Postgres(programs, Path(own) / "server", template, settings)) as server:
            bench = PgBench(server.url())
            try:
                yield bench, server
            finally:
                bench.close()


def _processor(pid: int) -> float:
    """Seconds that a process has been at work."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _backend(session: PostgresSession) -> int:
    return session._connection.info.backend_pid  # pyright: ignore[reportPrivateUsage]


# -- what capture costs


def _capture(bench: PgBench, wishes: Wishes, rows: int) -> Iterator[Line]:
    for name in (_PLAIN, _IDLE, _CAPTURED, _ROW):
        bench.run(f"create table {name} ({_COLUMNS})", f"create index on {name} (number)")
    bench.run(_BY_ROW)
    bench.protect(_IDLE, _CAPTURED)
    log = bench.rows(f"select no from takeback.log where relation = '{_CAPTURED}'::regclass")[0][0]
    texts = {"INSERT": _FILL, "UPDATE": _UPDATE, "DELETE": _DELETE}
    taken: dict[tuple[str, str], list[float]] = {}
    adapter = bench.adapter()
    with bench.session() as session:

        def captured(statement: str) -> float:
            start = _processor(_backend(session))
            _effect(adapter, session, statement)
            return _processor(_backend(session)) - start

        def plain(statement: str) -> float:
            pid = bench.by_hand.info.backend_pid
            start = _processor(pid)
            bench.run(statement)
            return _processor(pid) - start

        for turn in range(4 if wishes.quick else min(wishes.rounds, 7) + 1):
            for name in (_PLAIN, _IDLE, _CAPTURED, _ROW):
                for event, text in texts.items():
                    seconds = (captured if name == _CAPTURED else plain)(text.format(name, rows))
                    if turn:
                        taken.setdefault((event, name), []).append(seconds / rows)
                    bench.run(f"vacuum analyze {name}")
                bench.run(f"truncate {name}", f"truncate takeback.log_{log}", "truncate audit", "checkpoint")
    for event in _EVENTS:
        plainly, idle, ours, theirs = (
            statistics.median(taken[event, name]) for name in (_PLAIN, _IDLE, _CAPTURED, _ROW)
        )
        what = f"{event} of {rows:,} rows"
        yield Line(f"capture, {what}: more for a row", max(ours - plainly, 0), "s", bar=_BARS[event])
        yield Line(
            "  beside a jsonb trigger for each row",
            max(ours - plainly, 1e-9), "s", "jsonb", theirs - plainly, 0.5, "cost",
        )  # fmt: skip
        yield Line("  idle: more for a row", max(idle - plainly, 0), "s", bar=1e-6)


def _effect(adapter: PostgresAdapter, session: PostgresSession, *statements: str) -> Effect:
    effect = intended(adapter, session.database, statements[0])
    session.begin(effect)
    for statement in statements:
        session.execute(statement, ())
    assert session.commit()
    return effect


def _small(bench: PgBench, wishes: Wishes) -> Iterator[Line]:
    """The transaction of pgbench, in small: three rows of three tables are changed and one is added."""
    for name in ("plain", "idle", "taken"):
        for table in ("account", "teller", "branch"):
            bench.run(
                f"create table {name}_{table} (id int primary key, balance int, filler char(80))",
                f"insert into {name}_{table} select i, 0, '' from generate_series(1, 10000) i",
            )
        bench.run(f"create table {name}_history (id int, delta int, at timestamptz default now())")
    bench.protect(
        *(f"{name}_{one}" for name in ("idle", "taken") for one in ("account", "teller", "branch", "history"))
    )
    numbers = iter(range(10**9))
    times = 5 if wishes.quick else 100

    def statements(name: str) -> list[str]:
        number = next(numbers) * 37 % 10_000 + 1
        return [
            f"update {name}_{table} set balance = balance + 1 where id = {number}"
            for table in ("account", "teller", "branch")
        ] + [f"insert into {name}_history (id, delta) values ({number}, 1)"]

    def uncaptured(name: str) -> float:
        start = time.perf_counter()
        for _ in range(times):
            bench.run("begin", *statements(name), "commit")
        return (time.perf_counter() - start) / times

    adapter = bench.adapter()
    with bench.session() as session:

        def captured() -> float:
            start = time.perf_counter()
            for _ in range(times):
                effect = _effect(adapter, session, *statements("taken"))
                assert adapter.verify(effect).standing is Standing.AFTER
            return (time.perf_counter() - start) / times

        subjects: dict[str, Callable[[], float]] = {
            "plain": lambda: uncaptured("plain"), "idle": lambda: uncaptured("idle"), "taken": captured,
        }  # fmt: skip
        taken = in_turns(subjects, wishes.rounds)
    yield Line("small transaction, idle", taken["idle"], "s", "without capture", taken["plain"], 1.15, "cost")
    yield Line(
        "small transaction, an effect", taken["taken"], "s", "without capture", taken["plain"], None, "cost"
    )


def _one_row(bench: PgBench, wishes: Wishes) -> Line:
    """The smallest transaction there is: one row, by its key, while no effect is open."""
    for name in ("plain_row", "idle_row"):
        bench.run(f"create table {name} ({_COLUMNS})", _FILL.format(name, 10_000), f"vacuum analyze {name}")
    bench.protect("idle_row")
    numbers = iter(range(10**9))
    times = 10 if wishes.quick else 200

    def changed(name: str) -> float:
        start = time.perf_counter()
        for _ in range(times):
            number = next(numbers) * 37 % 10_000 + 1
            bench.run("begin", f"update {name} set number = number + 1 where id = {number}", "commit")
        return (time.perf_counter() - start) / times

    subjects: dict[str, Callable[[], float]] = {
        "plain": lambda: changed("plain_row"), "idle": lambda: changed("idle_row"),
    }  # fmt: skip
    taken = in_turns(subjects, wishes.rounds)
    what = "one UPDATE by key in a transaction, idle"
    return Line(what, taken["idle"], "s", "without capture", taken["plain"], 1.15, "cost")


# -- what undo costs


def _undo(bench: PgBench, rows: int, event: str) -> Line:
    """From the look at what stands in the way to the look at whether it happened, as the engine asks for it."""
    bench.run(
        "drop table if exists undone cascade",
        f"create table undone ({_COLUMNS})",
        "create index on undone (number)",
    )
    bench.protect("undone")
    if event != "INSERT":
        bench.run(_FILL.format("undone", rows))
    taken: list[float] = []
    text = {"INSERT": _FILL, "UPDATE": _UPDATE, "DELETE": _DELETE}[event].format("undone", rows)
    for _ in range(3):
        bench.run("vacuum analyze undone", "checkpoint")
        effect = bench.do(text)
        start = time.perf_counter()
        bench.undo(effect)
        taken.append(time.perf_counter() - start)
    seconds = statistics.median(taken)
    return Line(f"undo {event} of {rows:,} rows", seconds, "s", "at 50,000 rows/s", rows / 50_000, 1.0)


def _one_among_many(bench: PgBench, rows: int) -> Line:
    bench.run(f"create table many ({_COLUMNS})", _FILL.format("many", rows))
    bench.protect("many")
    ones = [bench.do(f"update many set number = -1 where id = {number}") for number in range(71, 78)]
    bench.do("update many set number = number + 1 where id not between 71 and 77")
    bench.run("vacuum analyze")
    taken: list[float] = []
    for one in ones:
        start = time.perf_counter()
        bench.undo(one)
        taken.append(time.perf_counter() - start)
    bench.run("drop table many")
    return Line(f"undo one row among {rows:,} logged", statistics.median(taken), "s", bar=0.05)


def _memory(bench: PgBench, rows: int) -> Iterator[Line]:
    bench.run(f"create table large ({_COLUMNS})", _FILL.format("large", rows), "vacuum analyze large")
    bench.protect("large")
    with bench.session() as session, _watched(bench) as to_do:
        effect = _effect(bench.adapter(), session, _UPDATE.format("large"))
    with _watched(bench) as to_undo:
        bench.undo(effect)
    what = f"memory of the server's process, UPDATE of {rows:,} rows"
    yield Line(what, max(to_do), "B", bar=300 * 1024**2)
    yield Line("  its undo", max(to_undo), "B", bar=300 * 1024**2)
    yield Line("  our own process", _own(os.getpid()), "B", bar=300 * 1024**2)


def _own(pid: int) -> int:
    """Memory that nobody else has: not the buffers that all processes of the server share."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


@contextmanager
def _watched(bench: PgBench) -> Iterator[list[int]]:
    """The memory of whatever process of the server works for us meanwhile, looked at now and then."""
    most = [0]
    ended = threading.Event()

    def look() -> None:
        with psycopg.connect(bench.url, autocommit=True) as connection:
            while not ended.wait(0.1):
                asked = "select pid from pg_stat_activity where backend_type in ('client backend', 'parallel worker') "
                for (pid,) in connection.execute(f"{asked} and pid <> pg_backend_pid()".encode()).fetchall():
                    with suppress(OSError):
                        most.append(_own(pid))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()
