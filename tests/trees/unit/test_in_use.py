"""A database that someone has open is neither merged over nor taken back under its feet."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import takeback
from tests.world import World

OPEN = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("SELECT * FROM t").fetchall()
print("ready", flush=True)
for line in sys.stdin:
    db.execute("INSERT INTO t VALUES (?)", (line.strip(),))
    db.commit()
    print("done", flush=True)
"""
INSERT = 'import sqlite3; db = sqlite3.connect("a.db"); db.execute("INSERT INTO t VALUES (?)", ("ours",)); db.commit()'


@contextmanager
def opened_by_another(path: Path) -> Iterator["subprocess.Popen[str]"]:
    child = subprocess.Popen(
        [sys.executable, "-c", OPEN, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        with child:
            assert child.stdout
            assert child.stdout.readline() == "ready\n"
            yield child
    finally:
        child.kill()
        child.wait(120)


def rows(path: Path) -> list[str]:
    db = sqlite3.connect(path)
    try:
        return [text for (text,) in db.execute("SELECT * FROM t ORDER BY 1")]
    finally:
        db.close()


@pytest.fixture
def database(world: World) -> Path:
    path = world / "a.db"
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("CREATE TABLE t (x)")
    db.commit()
    db.close()
    return path


def add(child: "subprocess.Popen[str]", text: str) -> None:
    assert child.stdin
    assert child.stdout
    child.stdin.write(f"{text}\n")
    child.stdin.flush()
    assert child.stdout.readline() == "done\n"


def test_a_merge_into_a_database_in_use_is_held(store: Path, world: World, database: Path) -> None:
    with takeback.open(store) as tb, opened_by_another(database) as child:
        with tb.run("insert") as run:
            outcome = run.command([sys.executable, "-c", INSERT], cwd=world.root)
        assert outcome.exit_code == 0, outcome.stderr
        assert outcome.held
        assert any("had open" in one.detail for one in outcome.conflicts)
        add(child, "theirs")
        assert rows(database) == ["theirs"]
        assert outcome.effect
        with pytest.raises(takeback.Conflict, match="had open"):
            tb.apply(outcome.effect)


@pytest.mark.parametrize("how", ["refuse", "force"])
def test_an_undo_under_a_database_in_use_is_refused(
    store: Path, world: World, database: Path, how: str
) -> None:
    with takeback.open(store) as tb:
        with tb.run("insert") as run:
            effect = run.command([sys.executable, "-c", INSERT], cwd=world.root).effect
        assert effect
        assert rows(database) == ["ours"]
        with opened_by_another(database) as child:
            with pytest.raises(takeback.Conflict, match="has open"):
                tb.undo(effect, on_conflict=how)
            add(child, "theirs")
            assert rows(database) == ["ours", "theirs"]


@pytest.mark.parametrize("force", [False, True])
def test_what_is_held_is_not_made_under_a_database_that_was_opened_since(
    store: Path, world: World, database: Path, force: bool
) -> None:
    with takeback.open(store) as tb:
        with tb.run("insert") as run:
            held = run.command([sys.executable, "-c", INSERT], cwd=world.root, hold=True).effect
        assert held
        with opened_by_another(database) as child:
            with pytest.raises(takeback.Conflict, match="has open"):
                tb.apply([held.id], force=force)
            add(child, "theirs")
            assert rows(database) == ["theirs"]
        (kept,) = tb.apply([held.id], force=True)
        assert rows(database) == ["ours"]
        tb.undo(kept.id)
        assert rows(database) == ["theirs"]
