"""Others keep working while an effect is taken back: pgbench, whose books must balance afterwards."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from takeback.errors import Drifted, StoreBusy
from takeback.model.change import OnConflict
from takeback.model.effect import Effect
from tests.servers.process import wait_until
from tests.sql.pg_bench import PgBench

ACCOUNTS = 100_000
OURS = ACCOUNTS // 10
# As pgbench does it by default, with accounts of which some are left to us.
SCRIPT = f"""
\\set aid random({{first}}, {ACCOUNTS})
\\set bid 1
\\set tid random(1, 10)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
"""


@pytest.fixture
def bench(postgres, pg_database) -> Iterator[PgBench]:
    program = postgres.programs / "pgbench"
    subprocess.run(
        [program, "-i", "-q", "-s", "1", pg_database.url], check=True, capture_output=True, timeout=300
    )
    bench = PgBench(pg_database.url)
    bench.protect()
    yield bench
    bench.close()


@contextmanager
def pgbench(program: Path, bench: PgBench, script: Path, first: int) -> Iterator[None]:
    """Two clients at work; none of them may fail."""
    script.write_text(SCRIPT.format(first=first))
    command = [program, "-n", "-c", "2", "-T", "3600", "-f", script, bench.url]
    working = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield
        assert working.poll() is None, working.stderr and working.stderr.read()
    finally:
        working.send_signal(signal.SIGTERM)
        _, said = working.communicate(timeout=300)
    assert "aborted" not in said and "ERROR" not in said, said
    wait_until(lambda: not _others(bench), "the sessions of pgbench have ended")


def _others(bench: PgBench) -> int:
    asked = "select count(*) from pg_stat_activity where application_name = 'pgbench' and datname = current_database()"
    return bench.rows(asked)[0][0]


def written(bench: PgBench) -> int:
    return bench.rows("select count(*) from pgbench_history")[0][0]


def balanced(bench: PgBench) -> None:
    """Not one transaction of the others is lost, and none counts twice."""
    sums = bench.rows(
        "select (select sum(delta) from pgbench_history), (select sum(abalance) from pgbench_accounts), "
        "(select sum(tbalance) from pgbench_tellers), (select sum(bbalance) from pgbench_branches)"
    )[0]
    assert len(set(sums)) == 1, sums


def taken_back(bench: PgBench, effect: Effect, on_conflict: OnConflict) -> None:
    for _ in range(100):
        try:
            bench.undo(effect, on_conflict)
        except (Drifted, StoreBusy):
            continue  # they were quicker than the plan
        return
    raise AssertionError("never came to an end")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_rows_that_others_leave_alone_come_back_whole_while_they_work(postgres, bench, tmp_path):
    ours = f"select aid, abalance, filler from pgbench_accounts where aid <= {OURS} order by aid"
    before = bench.rows(ours)
    with pgbench(postgres.programs / "pgbench", bench, tmp_path / "script", OURS + 1):
        for _ in range(3):
            start = written(bench)
            effect = bench.do(
                f"update pgbench_accounts set abalance = -1, filler = 'agent' where aid <= {OURS}"
            )
            wait_until(lambda at=start: written(bench) > at + 20, "pgbench goes on")
            taken_back(bench, effect, OnConflict.REFUSE)
            assert bench.rows(ours) == before
    balanced(bench)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_rows_that_others_changed_since_are_left_and_nothing_of_theirs_is_lost(postgres, bench, tmp_path):
    with pgbench(postgres.programs / "pgbench", bench, tmp_path / "script", 1):
        start = written(bench)
        effect = bench.do("update pgbench_accounts set filler = 'agent'")
        wait_until(lambda: written(bench) > start + 50, "pgbench goes on")
        taken_back(bench, effect, OnConflict.SKIP)
        done = bench.rows("select count(*) from pgbench_history")[0][0]
    balanced(bench)
    left = {row[0] for row in bench.rows("select aid from pgbench_accounts where filler = 'agent'")}
    touched = {row[0] for row in bench.rows("select aid from pgbench_history")}
    assert 0 < len(left) <= done
    assert left <= touched
