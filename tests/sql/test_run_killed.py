"""takeback is killed while a program works in a SQLite file: either the program ends with it, or it is said that it is
still at work, and nothing is settled."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import takeback
from tests.servers.process import wait_until

PROGRAM = """
import os, sqlite3, sys
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.execute("INSERT INTO t VALUES (2)")
print(os.getpid(), flush=True)
sys.stdin.readline()
c.execute("INSERT INTO t VALUES (3)")
"""


class Work(NamedTuple):
    file: Path
    store: Path
    script: Path

    def begin(self, *before: str) -> "subprocess.Popen[bytes]":
        """`before`: what starts the program."""
        command = [*before, sys.executable, os.fspath(self.script), os.fspath(self.file)]
        return subprocess.Popen(
            [*self._takeback, "run", "--sql", f"sqlite:///{self.file}", "--", *command],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def recover(self) -> str:
        told = subprocess.run(
            [*self._takeback, "recover"], env=self._environment, capture_output=True, timeout=120, check=False
        )
        return told.stdout.decode() + told.stderr.decode()

    def states(self) -> list[str]:
        with takeback.open(self.store) as tb:
            return [effect.state.value for effect in tb.effects()]

    def rows(self) -> list[int]:
        connection = sqlite3.connect(self.file)
        try:
            return [value for (value,) in connection.execute("SELECT a FROM t ORDER BY a")]
        finally:
            connection.close()

    @property
    def _takeback(self) -> list[str]:
        return [sys.executable, "-m", "takeback"]

    @property
    def _environment(self) -> dict[str, str]:
        return os.environ | {"TAKEBACK_STORE": os.fspath(self.store)}


@pytest.fixture
def work(tmp_path: Path) -> Work:
    made = Work(tmp_path / "app.db", tmp_path / "store", tmp_path / "program.py")
    made.script.write_text(PROGRAM)
    connection = sqlite3.connect(made.file)
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY)")
    connection.execute("INSERT INTO t VALUES (1)")
    connection.commit()
    connection.close()
    return made


def lives(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def killed(process: "subprocess.Popen[bytes]") -> int:
    """takeback, when the program is in the middle; the program's process."""
    assert process.stdout
    pid = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    return pid


def test_the_program_ends_with_takeback(work: Work) -> None:
    process = work.begin()
    try:
        pid = killed(process)
        wait_until(lambda: not lives(pid), "the program has ended")
        assert "is recorded and stays" in work.recover()
        assert work.states() == ["done"] and work.rows() == [1, 2]
        with takeback.open(work.store) as tb:
            tb.undo(tb.effects(state="done"))
        assert work.rows() == [1]
    finally:
        process.stdin and process.stdin.close()
        process.stdout and process.stdout.close()


def test_what_the_program_had_started_is_still_at_work_and_recovery_says_so(work: Work) -> None:
    process = work.begin("/bin/sh", "-c", '"$@"; true', "sh")
    assert process.stdin and process.stdout
    try:
        pid = killed(process)
        assert lives(pid)
        told = work.recover()
        assert "is still running" in told and str(pid) in told and "recorded and stays" not in told
        assert work.states() == ["proposed"]
        process.stdin.write(b"go on\n")
        process.stdin.flush()
        wait_until(lambda: not lives(pid), "the program has ended")
        assert "is recorded and stays" in work.recover()
        assert work.rows() == [1, 2, 3]
        with takeback.open(work.store) as tb:
            tb.undo(tb.effects(state="done"))
        assert work.rows() == [1]
    finally:
        process.stdin.close()
        process.stdout.close()
