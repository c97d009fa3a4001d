"""A whole program with the sqlite3 of Python: what it changed is one effect, taken back exactly, also if it was
killed."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from takeback.model.change import Change
from takeback.model.database import resource_of, to_json
from takeback.model.effect import Effect
from takeback.model.plan import Standing
from takeback.testing.adapter_suite import Desk
from tests.sql.sqlite_cases import AUDITED, FAMILY, FTS, KV, LOOSE, UNIQUE
from tests.sql.test_sqlite_matrix import World, world

__all__ = ["world"]

EVERYTHING = AUDITED + FAMILY + KV + LOOSE + UNIQUE + FTS + "PRAGMA user_version = 3;"
PROGRAM = """
import sqlite3, sys, os
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.execute("UPDATE t SET a = 'x' WHERE id < 3")
c.execute("INSERT OR REPLACE INTO u VALUES (1, 'b')")
c.execute("DELETE FROM kv WHERE k = 'a'"); c.execute("UPDATE kv SET k = upper(k)")
c.execute("DELETE FROM loose WHERE rowid = 1"); c.execute("INSERT INTO loose VALUES (8, 8)")
c.execute("INSERT INTO f VALUES ('more words')")
c.execute("ALTER TABLE parent ADD COLUMN extra DEFAULT 4"); c.execute("DROP TABLE grandchild")
c.execute("CREATE TABLE made (x)"); c.execute("INSERT INTO made VALUES (1)"); c.execute("CREATE INDEX mx ON made (x)")
c.execute("PRAGMA user_version = 9")
if len(sys.argv) > 2:
    c.execute("BEGIN"); c.execute("DELETE FROM t"); c.execute("DELETE FROM child")
    print("here", flush=True); sys.stdin.read()
"""


def begun(world: World) -> Effect:
    session = world.adapter.connect(world.database)
    database = session.database
    session.close()
    change = Change("sqlite", "program", resource_of(database), "a program", {"database": to_json(database)})
    effect = Desk(world.adapter).propose(change)
    world.adapter.enter(effect)
    return effect


def ended(world: World, effect: Effect) -> Effect | None:
    receipt = world.adapter.leave(effect)
    if receipt is None:
        world.adapter.tidy(effect)
        return None
    made = effect._replace(receipt=receipt)
    made = made._replace(remedy=world.adapter.capture(made, world.adapter.assess(made.change).offers[0]))
    assert world.adapter.verify(made).standing is Standing.AFTER
    world.adapter.tidy(made)
    return made


@pytest.mark.parametrize("killed", [False, True])
def test_what_a_program_did_is_one_effect(world: World, killed: bool) -> None:
    world.make(EVERYTHING)
    before = world.state()
    effect = begun(world)

    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(world.file), *(["wait"] if killed else [])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        if killed:
            assert program.stdout is not None and program.stdout.readline() == b"here\n"
            program.send_signal(signal.SIGKILL)
        program.communicate(timeout=120)
    finally:
        program.kill()
        program.wait()
    done = ended(world, effect)

    assert done is not None and done.receipt["tables"]["t"]["updated"] == 2
    assert not [name for name in os.listdir(world.file.parent) if name.startswith(".takeback")]
    after = world.state()
    undone = Desk(world.adapter).undo(done)
    assert world.state() == before
    Desk(world.adapter).undo(undone)
    assert world.state() == after


def test_a_program_that_changes_nothing_is_no_effect(world: World) -> None:
    world.make(EVERYTHING)
    effect = begun(world)

    assert ended(world, effect) is None
    assert os.listdir(world.file.parent) == ["app.db"]


def test_text_that_is_not_utf8_is_said_to_be_what_cannot_be_recorded(world: World) -> None:
    from takeback.errors import NoRemedy

    world.make(EVERYTHING)
    world.others("UPDATE t SET a = CAST(x'ff41' AS TEXT) WHERE id = 1")
    effect = begun(world)
    world.others("UPDATE t SET a = 'x'")

    with pytest.raises(NoRemedy, match="is not UTF-8, so its changes cannot be recorded") as caught:
        world.adapter.leave(effect)
    kept = caught.value.hint.split()[-1].removesuffix(".")
    assert (world.file.parent / kept).exists()


def test_it_is_found_again_by_whoever_comes_after_a_crash(world: World) -> None:
    world.make(EVERYTHING)
    before = world.state()
    effect = begun(world)
    world.others("UPDATE t SET a = 'x'")

    first, second = world.adapter.found(effect, ()), world.adapter.found(effect, ())

    assert first is not None and first == second
    done = ended(world, effect)
    assert done is not None
    Desk(world.adapter).undo(done)
    assert world.state() == before


def test_a_program_that_is_still_in_a_transaction_is_waited_for(world: World) -> None:
    from takeback.errors import StoreBusy

    world.make(EVERYTHING)
    effect = begun(world)
    other = sqlite3.connect(world.file, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE t SET a = 'x'")
        with pytest.raises(StoreBusy):
            world.adapter.leave(effect)
        other.execute("COMMIT")
    finally:
        other.close()
    assert ended(world, effect) is not None


def test_the_copy_is_whole_in_wal_mode_too(tmp_path: Path) -> None:
    made = World(tmp_path / "app.db", "wal")
    other = sqlite3.connect(made.file, isolation_level=None)
    try:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("CREATE TABLE t (a)")
        other.execute("INSERT INTO t VALUES (1)")  # in the -wal only: a reader has the file open
        effect = begun(made)
        other.execute("UPDATE t SET a = 2")
        done = ended(made, effect)
        assert done is not None
        Desk(made.adapter).undo(done)
        assert other.execute("SELECT a FROM t").fetchall() == [(1,)]
    finally:
        other.close()
        made.adapter.close()
