"""PostgreSQL, idle: what protected tables cost the application while no run works. TPC-B by pgbench, one client;
processor time of the whole server for a transaction, unprotected and protected in turns, in the same database."""

import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.bench.measure import Line, Table, Wishes
from tests.bench.postgres import served
from tests.servers.process import wait_until
from tests.sql.pg_bench import PgBench

_PLAIN, _IDLE, _ALWAYS = "unprotected", "protected", "always attached"
_BAR = 1.05


class _Clock(NamedTuple):
    """Processor time of the server's processes that have ended."""

    server: int
    usual: frozenset[str]  # its processes while nobody works

    def read(self) -> float:
        """When all have ended that came to work."""
        wait_until(lambda: _children(self.server) <= self.usual, "the sessions have ended")
        fields = Path(f"/proc/{self.server}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def _children(server: int) -> frozenset[str]:
    return frozenset(Path(f"/proc/{server}/task/{server}/children").read_text().split())


def measure(wishes: Wishes) -> Table:
    lines: list[Line] = []
    with served(wishes) as (bench, server):
        scale = "1" if wishes.quick else "10"
        postmaster = int((server.directory / "data" / "postmaster.pid").read_text().split()[0])
        clock = _Clock(postmaster, _children(postmaster))
        pgbench = [str(server.programs / "pgbench")]
        subprocess.run([*pgbench, "-i", "-q", "-s", scale, bench.url], check=True, capture_output=True)
        states: dict[str, Callable[[], None]] = {
            _PLAIN: lambda: _unprotected(bench),
            _IDLE: lambda: _protected(bench, always=False),
            _ALWAYS: lambda: _protected(bench, always=True),
        }
        for mode in ("prepared", "simple"):
            found = _in_turns(bench, clock, states, wishes, [*pgbench, "-n", "-c", "1", "-M", mode])
            plain = found[_PLAIN]
            what = f"pgbench TPC-B, {mode}: processor time of the server for a transaction"
            lines.append(Line(f"{what}, protected", found[_IDLE], "s", _PLAIN, plain, _BAR, "cost"))
            lines.append(Line("  triggers attached always", found[_ALWAYS], "s", _PLAIN, plain, None, "cost"))
        lines += _moments(bench)
    notes = (
        "protected: a run has worked and ended, as usual; always: `takeback sql protect --triggers always`",
        "attach and remove: all the time it takes, for each table, while nobody else works",
    )
    return Table("PostgreSQL, idle", tuple(lines), notes)


def _unprotected(bench: PgBench) -> None:
    bench.adapter().unprotect(bench.database, ())


def _protected(bench: PgBench, always: bool) -> None:
    bench.adapter().attach_when(bench.database, (), always)
    bench.undo(bench.do("update pgbench_tellers set filler = 'x' where tid = 1"))


def _in_turns(
    bench: PgBench, clock: _Clock, states: dict[str, Callable[[], None]], wishes: Wishes, command: list[str]
) -> dict[str, float]:
    """The first round does not count; each round begins with another state, so that none is always the first."""
    count = 200 if wishes.quick else 3_000
    taken: dict[str, list[float]] = {name: [] for name in states}
    for turn in range((1 if wishes.quick else min(wishes.rounds, 9)) + 1):
        names = list(states)
        for name in names[turn % 3 :] + names[: turn % 3]:
            states[name]()
            bench.run("truncate pgbench_history", "vacuum", "checkpoint")
            before = clock.read()
            subprocess.run([*command, "-t", str(count), bench.url], check=True, capture_output=True)
            if turn:
                taken[name].append((clock.read() - before) / count)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def _moments(bench: PgBench) -> list[Line]:
    """What it costs a run that the triggers come and go."""
    from takeback.adapters.postgres import attachment
    from takeback.adapters.postgres.connection import opened

    bench.adapter().attach_when(bench.database, (), always=False)
    tables = bench.rows("select count(*) from takeback.captured")[0][0]
    came: list[float] = []
    went: list[float] = []
    with opened(bench.url) as connection:
        for _ in range(9):
            start = time.perf_counter()
            attachment.hold(connection)
            middle = time.perf_counter()
            attachment.let_go(connection)
            went.append((time.perf_counter() - middle) / tables)
            came.append((middle - start) / tables)
    return [
        Line("attach the triggers of a table", statistics.median(came), "s"),
        Line("remove them", statistics.median(went), "s"),
    ]
