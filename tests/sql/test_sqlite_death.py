"""Processes that die in the middle of a change of a SQLite file, and two that want the same."""

import os
import signal
import sqlite3
import threading
from contextlib import closing

import pytest

from takeback.adapters.sqlite.session import SqliteSession
from takeback.errors import (
    InDoubt,
    Refused,
    ResourceUnreachable,
)
from takeback.model.plan import Standing
from takeback.testing.adapter_suite import Desk
from tests.sql.engines import intended
from tests.sql.sqlite_world import World, done, session, world

__all__ = ["session", "world"]


def child(session: SqliteSession) -> int:
    return session._desk.pid  # pyright: ignore


def test_a_killed_child_is_a_rolled_back_transaction(session: SqliteSession, world: World) -> None:
    before = world.state()
    effect = intended(world.adapter, session.database, "x")
    session.begin(effect)
    session.execute("DELETE FROM t", ())
    os.kill(child(session), signal.SIGKILL)
    with pytest.raises(ResourceUnreachable):
        session.execute("DELETE FROM t", ())
    session.rollback()

    assert world.state() == before
    assert world.adapter.verify(effect).standing is Standing.BEFORE
    assert session.read("SELECT 1", ()) is not None  # another one was started


def test_an_answer_that_is_lost_at_commit_is_in_doubt_and_then_found_out(
    session: SqliteSession, world: World
) -> None:
    effect = intended(world.adapter, session.database, "x")
    session.begin(effect)
    session.execute("DELETE FROM t", ())
    os.kill(child(session), signal.SIGKILL)
    with pytest.raises(InDoubt):
        session.commit()

    assert world.adapter.verify(effect).standing is Standing.BEFORE


def test_a_child_whose_parent_is_gone_commits_nothing(world: World) -> None:
    """The parent dies while its child waits for the lock: when it gets it, nobody waits for it any more."""
    before = world.state()
    with closing(world.adapter.connect(world.database)) as session:
        effect = intended(world.adapter, session.database, "x")
    with closing(sqlite3.connect(world.file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                mine = world.adapter.connect(world.database)
                os.write(writer, str(child(mine)).encode())
                os.close(writer)
                mine.begin(effect)
            finally:
                os._exit(1)
        os.close(writer)
        theirs = int(os.read(reader, 20))
        os.close(reader)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        gone = os.pidfd_open(theirs)
        other.execute("ROLLBACK")
        with open(gone, "rb", buffering=0, closefd=True) as left:
            import select

            assert select.select([left], [], [], 120)[0], "it should have ended by itself"
    assert world.adapter.verify(effect).standing is Standing.BEFORE
    assert world.state() == before


def test_of_two_undos_at_once_one_wins(world: World) -> None:
    before = world.state()
    effect = done(world, "UPDATE t SET b = 0")
    ends: list[str] = []

    def undo() -> None:
        from takeback.adapters.sqlite.adapter import SqliteAdapter
        from tests.memory import MemoryBlobs

        adapter = SqliteAdapter(MemoryBlobs(), world.keyring)
        try:
            Desk(adapter).undo(effect)
            ends.append("won")
        except Refused:
            ends.append("refused")
        finally:
            adapter.close()

    threads = [threading.Thread(target=undo) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(120)

    assert sorted(ends) == ["refused", "won"]
    assert world.state() == before
