"""A store that another process keeps locked, and one that is prepared before it is made."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import takeback
from takeback.storage.sqlite import database

HOLDS = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


def test_finding_r2_a_stopped_process_that_locks_the_store_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    takeback.open(store).close()
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.1)
    words = [sys.executable, "-c", HOLDS, str(store / "journal.db")]
    with (
        takeback.open(store) as tb,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder,
    ):
        assert holder.stdout and holder.stdin
        assert holder.stdout.readline() == "held\n"
        os.kill(holder.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            with pytest.raises(takeback.StoreBusy, match=rf"process {holder.pid} .*, which is stopped"):
                tb.run("waits")
        finally:
            os.kill(holder.pid, signal.SIGCONT)
            holder.stdin.close()


def test_finding_r8_settings_can_be_put_into_the_directory_before_the_store_is_made(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    (store / "settings.json").write_text(json.dumps({"grace_seconds": 7}))
    with takeback.open(store) as tb:
        assert tb.store.settings.grace_seconds == 7
