"""A database in a watched tree that a server has open: what a command changes in it is taken back row by row, under the
eyes of the server."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import takeback
from takeback.api import Takeback
from tests.e2e.conftest import CommandLine

SERVER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=120)
for line in sys.stdin:
    print(db.execute(line).fetchall(), flush=True)
"""
COMMAND = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=120).executescript(sys.argv[2])"


class Server:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def __call__(self, statement: str) -> str:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{statement}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextmanager
def serving(path: Path) -> Iterator[Server]:
    child = subprocess.Popen(
        [sys.executable, "-c", SERVER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        with child:
            server = Server(child)
            assert server("SELECT count(*) FROM t") == "[(3,)]"
            yield server
    finally:
        child.kill()
        child.wait(120)


def command(path: Path, script: str) -> None:
    subprocess.run([sys.executable, "-c", COMMAND, os.fspath(path), script], check=True)


@pytest.fixture(params=["delete", "wal"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "tree" / "app.db"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {request.param}")
        connection.executescript(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, x); INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)"
        )
    return path


@pytest.fixture
def tb(tmp_path: Path) -> Iterator[Takeback]:
    with takeback.open(tmp_path / "store") as opened:
        yield opened


def test_rows_go_back_while_the_server_works_on(tb: Takeback, database: Path) -> None:
    other = database.with_name("other")
    with serving(database) as server:
        server("UPDATE t SET x = 'before' WHERE id = 3")
        with tb.run("agent") as run, run.watch(database.parent) as watched:
            command(
                database,
                "UPDATE t SET x = 'agent' WHERE id = 1; DROP TABLE IF EXISTS none; CREATE TABLE made (a)",
            )
            other.write_text("agent")
        assert [Path(one.path).name for one in watched.changes] == ["other"]
        (effect,) = watched.databases
        assert effect.receipt["tables"]["t"] == {"inserted": 0, "updated": 1, "deleted": 0}
        assert "has open" in watched.told_of_databases
        server("INSERT INTO t VALUES (4, 'since')")

        tb.undo(effect)

        assert server("SELECT x FROM t ORDER BY id") == "[(1,), (2,), ('before',), ('since',)]"
        assert server("SELECT count(*) FROM sqlite_schema WHERE name = 'made'") == "[(0,)]"
        assert other.read_text() == "agent"
        tb.undo(watched.effect)
        assert not other.exists()
        assert server("PRAGMA integrity_check") == "[('ok',)]"
    assert sorted(one.name for one in database.parent.iterdir()) == ["app.db"]


def test_a_row_that_the_server_changed_since_is_a_conflict(tb: Takeback, database: Path) -> None:
    with serving(database) as server:
        with tb.run("agent") as run, run.watch(database.parent) as watched:
            command(database, "UPDATE t SET x = 'agent'")
        assert watched.effect is None and not watched.changes
        (effect,) = watched.databases
        server("UPDATE t SET x = 'server' WHERE id = 2")

        with pytest.raises(takeback.Conflict, match="id=2"):
            tb.undo(effect)
        tb.undo(effect, on_conflict="skip")

        assert server("SELECT x FROM t ORDER BY id") == "[(1,), ('server',), (3,)]"


def test_a_run_that_fails_takes_both_back(tb: Takeback, database: Path) -> None:
    with serving(database) as server:
        with pytest.raises(KeyError), tb.run("agent") as run:
            with run.watch(database.parent):
                command(database, "DELETE FROM t")
                (database.parent / "other").write_text("x")
            raise KeyError
        assert server("SELECT count(*) FROM t") == "[(3,)]"
        assert not (database.parent / "other").exists()


def test_nothing_but_the_files_has_changed(tb: Takeback, database: Path) -> None:
    with serving(database) as server:
        with tb.run("agent") as run, run.watch(database.parent) as watched:
            command(database, "BEGIN; UPDATE t SET x = 9; UPDATE t SET x = id; COMMIT")
        assert watched.effect is None and watched.databases == ()
        assert "takeback" not in server("SELECT group_concat(name) FROM sqlite_schema")
    assert {one.state for one in tb.effects()} == {"aborted"}


def test_a_command_that_fails_leaves_rows_that_may_be_the_servers(tb: Takeback, database: Path) -> None:
    script = f'"$0" -c "$1" {database} "DELETE FROM t WHERE id = 1"; echo x > other; exit 3'
    with serving(database) as server:
        words = ("run", "--in-place", "--", "sh", "-c", script, sys.executable, COMMAND)
        said = CommandLine(os.fspath(database.parent))("--store", os.fspath(tb.path), *words)
        assert said.code == 3 and "app.db is part of a database that process" in said.err
        assert not (database.parent / "other").exists()
        assert server("SELECT count(*) FROM t") == "[(2,)]"
        (effect,) = (one for one in tb.effects() if one.change.adapter == "sqlite")
        tb.undo(effect)
        assert server("SELECT count(*) FROM t") == "[(3,)]"
