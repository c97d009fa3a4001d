"""A sync of the journal fails once. It is never tried again, and what it was for is never called done."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import takeback

PROGRAM = """
import sys, takeback
with takeback.open() as tb:
    try:
        with tb.run("work") as run:
            run.write(sys.argv[1], "agent\\n")
        print("ENDED WELL", flush=True)
    except takeback.TakebackError as error:
        print(type(error).__name__, flush=True)
"""
_CALL = re.compile(r"(fdatasync|pwrite64)\(\d+<([^>]*)>")


def traced(store: Path, target: Path, trace: Path, fails: int) -> str:
    """What the program said; the trace holds every write and sync of the store, and the failed one."""
    words = ["strace", "-f", "-qq", "-y", "-o", str(trace), "-e", "trace=fdatasync,pwrite64,write"]
    words += ["-e", f"inject=fdatasync:error=EIO:when={fails}"]
    environment = {**os.environ, "TAKEBACK_STORE": str(store)}
    ended = subprocess.run(
        [*words, sys.executable, "-c", PROGRAM, str(target)],
        check=False, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


@pytest.mark.needs("strace")
def test_finding_3_a_failed_sync_is_not_tried_again_and_nothing_is_called_done(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    for fails in range(1, 40):
        store, trace = tmp_path / f"store{fails}", tmp_path / "trace"
        takeback.open(str(store)).close()
        target.unlink(missing_ok=True)
        said = traced(store, target, trace, fails)
        lines = trace.read_text().splitlines()
        failed = next((n for n, line in enumerate(lines) if "EIO" in line), None)
        answered = next(n for n, line in enumerate(lines) if f'"{said}' in line)
        if failed is None or failed > answered:
            # After the answer the store is closed: SQLite writes what was committed where it belongs, and syncs it.
            assert said == "ENDED WELL" and fails > 3
            return
        if f"<{store}>" in lines[failed]:
            continue  # the name of the write-ahead file: SQLite does not look at the answer
        later = [call for line in lines[failed + 1 : answered] if (call := _CALL.search(line))]
        assert not [call[0] for call in later if call[0].startswith("fdatasync")]
        settled(store, target, said)
    pytest.fail("the program never ended without a failed sync")


def settled(store: Path, target: Path, said: str) -> None:
    """Suspect until it was read again whole. A run whose end was not acknowledged is taken back."""
    with takeback.open(str(store)) as tb:
        assert tb.store.suspect()
        with pytest.raises(takeback.ResourceUnreachable, match="not trusted"):
            tb.run("another")
        assert tb.verify(read_data=True).sound and not tb.store.suspect()
        assert os.stat(store / "journal.db-wal").st_size == 0  # all of it was written once more
        tb.recover()
        assert target.exists() == (said == "ENDED WELL"), said
        undone = {info.state.value for info in tb.runs()} <= {"undone"}
        assert undone == (said != "ENDED WELL"), said


def test_finding_3_a_process_that_goes_on_after_a_failed_sync_writes_only_after_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with takeback.open(str(tmp_path / "store")) as tb:
        database = tb.store.database
        error = type("Failing", (sqlite_error(),), {"sqlite_errorcode": 1034})("disk I/O error")
        with pytest.raises(takeback.ResourceUnreachable), database.write():
            raise error
        with pytest.raises(takeback.ResourceUnreachable, match="writes nothing more"), database.write():
            pass
        assert tb.verify(read_data=True).sound
        with tb.run("goes on") as run:
            run.write(tmp_path / "f", "1\n")
    assert (tmp_path / "f").read_text() == "1\n"


def sqlite_error() -> type[Exception]:
    import sqlite3

    return sqlite3.OperationalError
