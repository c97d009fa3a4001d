"""`takeback sql unprotect` gives up ways back only when it was told to, and says so."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.conftest import CommandLine, surroundings
from tests.e2e.test_terminal import seen
from tests.world import World


class Base(NamedTuple):
    address: str
    statement: str  # changes something in it
    surroundings: dict[str, str]


@pytest.fixture(params=["sqlite", "postgres", "mariadb", "redis"])
def base(request: pytest.FixtureRequest, world: World, takeback: CommandLine) -> Base:
    if request.param == "sqlite":
        path = Path(os.fspath(world.root)) / "s.db"
        connection = sqlite3.connect(path)
        connection.executescript("CREATE TABLE t(a INTEGER PRIMARY KEY); INSERT INTO t VALUES(1),(2)")
        connection.close()
        return Base(f"sqlite:///{path}", "DELETE FROM t", {})
    if request.param == "redis":
        found = request.getfixturevalue("redis_database")
        return Base("env:APP_DB", "SET greeting hello", {"APP_DB": found.url})
    found: Any = request.getfixturevalue("pg_database" if request.param == "postgres" else "maria_database")
    connection = found.connect()
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (a INTEGER PRIMARY KEY)")
        cursor.execute("INSERT INTO t VALUES (1), (2)")
    connection.commit()
    connection.close()
    takeback.done("sql", "protect", "env:APP_DB", APP_DB=found.url)
    return Base("env:APP_DB", "DELETE FROM t", {"APP_DB": found.url})


@pytest.mark.sampled(4)
def test_fresh_eyes_2_ways_back_are_counted_asked_for_and_forgotten(
    takeback: CommandLine, base: Base
) -> None:
    takeback.done("sql", "exec", base.address, base.statement, **base.surroundings)
    id = takeback.effect()["id"]

    planned = takeback.done("sql", "unprotect", base.address, "--dry-run", **base.surroundings)
    assert "Would give up the way back of 1 effect" in planned.out and id[:8] in planned.out
    refused = takeback("sql", "unprotect", base.address, **base.surroundings)
    assert refused.code == 3 and "way back of 1 effect" in refused.err and "--yes" in refused.err
    assert takeback.done("undo", "--dry-run", **base.surroundings).code == 0

    told = takeback.done("sql", "unprotect", base.address, "--yes", "--json", **base.surroundings).json

    assert told["given_up"] == [id]
    assert "forgotten" in takeback.done("show", id).out and "(exact)" not in takeback.done("show", id).out
    assert "forgotten" in takeback.done("log").out
    gone = takeback("undo", id, **base.surroundings)
    assert gone.code == 3 and "undo data was deleted" in gone.err, gone
    again = takeback.done("sql", "unprotect", base.address, **base.surroundings)
    assert "Gave up" not in again.out


def test_fresh_eyes_2_a_pinned_way_back_is_not_given_up(takeback: CommandLine, base: Base) -> None:
    takeback.done("sql", "exec", base.address, base.statement, **base.surroundings)
    takeback.done("pin", "@")

    refused = takeback("sql", "unprotect", base.address, "--yes", **base.surroundings)

    assert refused.code == 3 and "is pinned" in refused.err
    assert takeback.done("undo", **base.surroundings).code == 0


def test_fresh_eyes_2_without_a_way_back_nothing_is_asked(takeback: CommandLine, base: Base) -> None:
    said = takeback.done("sql", "unprotect", base.address, **base.surroundings)

    assert "Gave up" not in said.out
    assert not any(
        line.startswith("Protected: ") and line != "Protected: 0 tables" for line in said.out.splitlines()
    )


def test_fresh_eyes_2_what_someone_else_removed_is_recorded_by_the_next_unprotect(
    takeback: CommandLine, pg_database: Any
) -> None:
    connection = pg_database.connect()
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY)")
    connection.execute("INSERT INTO t VALUES (1)")
    connection.commit()
    takeback.done("sql", "protect", "env:APP_DB", APP_DB=pg_database.url)
    takeback.done("sql", "exec", "env:APP_DB", "DELETE FROM t", APP_DB=pg_database.url)
    connection.execute("DROP SCHEMA takeback CASCADE")
    connection.commit()
    connection.close()

    said = takeback.done("sql", "unprotect", "env:APP_DB", "--yes", APP_DB=pg_database.url)

    assert "Gave up the way back of 1 effect" in said.out
    assert "forgotten" in takeback.done("show", "@").out


@pytest.mark.parametrize(("typed", "code"), [(b"n\n", 3), (b"y\n", 0)])
def test_fresh_eyes_2_on_a_terminal_it_is_asked(
    takeback: CommandLine, world: World, typed: bytes, code: int
) -> None:
    path = Path(os.fspath(world.root)) / "s.db"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE t(a INTEGER PRIMARY KEY); INSERT INTO t VALUES(1),(2)")
    connection.close()
    takeback.done("sql", "exec", f"sqlite:///{path}", "DELETE FROM t")

    ended, shown = seen(world.root, "sql", "unprotect", f"sqlite:///{path}", typed=typed)

    assert ended == code and "This gives up the way back of 1 effect" in shown
    assert takeback("undo").code == (0 if code else 3)


def test_fresh_eyes_22_savepoints_are_fine_in_statements_on_sqlite(
    takeback: CommandLine, world: World
) -> None:
    path = Path(os.fspath(world.root)) / "s.db"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE t(a INTEGER PRIMARY KEY); INSERT INTO t VALUES(1),(2)")
    statements = "SAVEPOINT a; DELETE FROM t WHERE a = 1; ROLLBACK TO a; DELETE FROM t WHERE a = 2; RELEASE a"

    takeback.done("sql", "exec", f"sqlite:///{path}", statements)

    assert connection.execute("SELECT a FROM t").fetchall() == [(1,)]
    takeback.done("undo")
    assert connection.execute("SELECT a FROM t").fetchall() == [(1,), (2,)]
    connection.close()


INTERRUPTED = """
import os, signal, sys
from takeback.frontends.cli.main import main
from takeback.storage.sqlite.journal import SqliteJournal

append = SqliteJournal.append

def interrupted(self, *words):
    appended = append(self, *words)
    os.kill(os.getpid(), signal.SIGINT)
    return appended

SqliteJournal.append = interrupted
main()
"""


def test_finding_12_an_interrupt_during_unprotect_claims_nothing_about_the_protection(
    takeback: CommandLine, world: World
) -> None:
    """It comes right after the ways back are recorded as given up, and is heard when the rest is done."""
    path = Path(os.fspath(world.root)) / "s.db"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE t(a INTEGER PRIMARY KEY); INSERT INTO t VALUES(1),(2)")
    takeback.done("sql", "exec", f"sqlite:///{path}", "DELETE FROM t")

    words = ["sql", "unprotect", f"sqlite:///{path}", "--yes"]
    said = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *words],
        cwd=world.root,
        env=surroundings(),
        capture_output=True,
        text=True,
        check=False,
    )

    told = "Interrupted; `takeback sql doctor sqlite:///s.db` shows what is protected now.\n"
    assert (said.returncode, said.stdout, said.stderr) == (130, "", told)
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("t",)]
    connection.close()
    assert "forgotten" in takeback.done("show", "@").out
