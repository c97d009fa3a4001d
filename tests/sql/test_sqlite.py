"""A SQLite file through its adapter: sessions, other writers, processes that die, and what is told when it does not
work."""

import datetime
import os
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from takeback.adapters.sqlite.session import SqliteSession
from takeback.errors import (
    Conflict,
    Forgotten,
    InDoubt,
    Misuse,
    Refused,
    ResourceUnreachable,
    StatementFailed,
    StoreBusy,
    TakebackError,
)
from takeback.model.effect import Effect
from takeback.model.plan import OnConflict, Outcome
from takeback.model.standing import Standing
from takeback.testing.adapter_desk import Desk, undo_of
from tests.sql.engines import intended
from tests.sql.sqlite_cases import FAMILY, T
from tests.sql.test_sqlite_matrix import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "app.db", "delete")
    made.make(T)
    yield made
    made.adapter.close()


@pytest.fixture
def session(world: World) -> Iterator[SqliteSession]:
    made = world.adapter.connect(world.database)
    yield made
    made.close()


def done(world: World, *statements: str) -> Effect:
    effect = world.do(statements)
    assert effect is not None
    return effect


# -- addresses


def test_two_ways_to_one_file_are_one_database(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.file.parent)
    (world.file.parent / "link.db").symlink_to("app.db")
    urls = set()
    for address in ("sqlite:///app.db", "sqlite:///./link.db", f"sqlite:///{world.file}"):
        with closing(world.adapter.connect(world.keyring.named(address))) as session:
            urls.add(session.database.url)

    assert urls == {f"sqlite:///{world.file}"}


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("sqlite://", Misuse),
        ("sqlite:///", Misuse),
        ("sqlite:///:memory:", Misuse),
        ("sqlite:///app.db?mode=ro", Misuse),
        ("sqlite:////nowhere/at/all.db", ResourceUnreachable),
    ],
)
def test_an_address_that_is_no_file_is_refused(
    world: World, address: str, error: type[TakebackError]
) -> None:
    with pytest.raises(error) as caught:
        world.adapter.connect(world.keyring.named(address))

    assert caught.value.hint


def test_what_is_no_database_is_refused(world: World) -> None:
    world.file.write_bytes(b"not a database at all, but long enough to be read as one" * 100)

    with pytest.raises(Refused, match="not a SQLite database"):
        world.adapter.connect(world.database)


def test_a_name_with_odd_letters(tmp_path: Path) -> None:
    made = World(tmp_path / "ä b%20.db", "delete")
    made.database = made.keyring.named(f"sqlite:///{str(made.file).replace('%', '%25').replace(' ', '%20')}")
    made.make(T)
    before = made.state()

    Desk(made.adapter).undo(done(made, "DELETE FROM t"))

    assert made.state() == before
    made.adapter.close()


# -- sessions


def test_rows_columns_and_counts(session: SqliteSession, world: World) -> None:
    found = session.read("SELECT id, a FROM t WHERE id > ? ORDER BY id", [1])
    assert found is not None
    assert (found.rows, found.columns, found.rowcount) == (((2, "two"), (3, "three")), ("id", "a"), 2)
    empty = session.read("SELECT id FROM t WHERE id = :id", {"id": 99})
    assert empty is not None and empty.columns == ("id",) and empty.rows == ()
    effect = intended(world.adapter, session.database, "x")
    session.begin(effect)
    assert session.execute("UPDATE t SET b = 0", ()).rowcount == 3
    assert session.execute("INSERT INTO t (a) VALUES (?) RETURNING id", ["n"]).rows == ((4,),)
    assert (
        session.execute("INSERT INTO t (a, b) VALUES (?, ?)", [("x", 1), ("y", b"\x00")], many=True).rowcount
        == 2
    )
    assert session.execute("SELECT count(*) FROM t", ()).rows == ((6,),)
    receipt = session.commit()

    assert receipt == {"tables": {"t": {"inserted": 3, "updated": 3, "deleted": 0}}, "schema": []}
    assert world.adapter.verify(effect).receipt == receipt


def test_dates_are_written_as_python_writes_them_and_the_rest_is_refused(session: SqliteSession) -> None:
    found = session.read("SELECT ?, ?", [datetime.date(2024, 2, 3), datetime.datetime(2024, 2, 3, 4, 5)])
    assert found is not None and found.rows == (("2024-02-03", "2024-02-03 04:05:00"),)
    with pytest.raises(Misuse, match="complex"):
        session.read("SELECT ?", [1j])
    with pytest.raises(StatementFailed):
        session.read("SELECT ?", [1, 2])


def test_a_statement_that_reads_first_and_writes_then_does_nothing_yet(
    session: SqliteSession, world: World
) -> None:
    before = world.state()

    assert session.read("SELECT 1; DELETE FROM t", ()) is None
    assert world.state() == before


def test_after_an_error_only_rollback_is_left(session: SqliteSession, world: World) -> None:
    before = world.state()
    session.begin(intended(world.adapter, session.database, "x"))
    session.execute("DELETE FROM t", ())
    with pytest.raises(StatementFailed, match="no such column: nope"):
        session.execute("UPDATE t SET nope = 1", ())
    with pytest.raises(StatementFailed, match="earlier statement"):
        session.execute("UPDATE t SET a = 1", ())
    with pytest.raises(StatementFailed):
        session.commit()
    session.rollback()
    assert world.state() == before

    effect = intended(world.adapter, session.database, "again")
    session.begin(effect)
    session.execute("DELETE FROM t", ())
    assert session.commit()
    assert world.adapter.verify(effect).standing is Standing.AFTER


@pytest.mark.slow
def test_someone_elses_transaction_is_waited_for_and_then_told(session: SqliteSession, world: World) -> None:
    with closing(sqlite3.connect(world.file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        session.begin(intended(world.adapter, session.database, "x"))
        with pytest.raises(StoreBusy) as caught:
            session.execute("UPDATE t SET a = 'ours'", ())
        session.rollback()
        other.execute("ROLLBACK")

    assert caught.value.hint


def test_the_sqlite3_of_the_same_process_and_ours_see_each_others_locks(
    session: SqliteSession, world: World
) -> None:
    session.begin(intended(world.adapter, session.database, "x"))
    session.execute("UPDATE t SET a = 'ours'", ())
    with closing(sqlite3.connect(world.file, timeout=0, isolation_level=None)) as other:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("UPDATE t SET a = 'theirs'")
        assert session.commit()
        other.execute("UPDATE t SET b = 9 WHERE id = 1")

    assert world.ask("SELECT a, b FROM t WHERE id = 1") == [("ours", 9)]


def test_a_file_that_was_replaced_is_opened_again(session: SqliteSession, world: World) -> None:
    assert session.read("SELECT 1", ()) is not None
    world.file.unlink()
    world.make("CREATE TABLE other (x); INSERT INTO other VALUES (5)")

    found = session.read("SELECT x FROM other", ())

    assert found is not None and found.rows == ((5,),)
    world.file.unlink()
    with pytest.raises(ResourceUnreachable, match="no database"):
        session.read("SELECT 1", ())


# -- death


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
        from takeback.storage.memory_blobs import MemoryBlobs

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


# -- undo


def test_a_conflict_names_key_expectation_and_culprit(world: World) -> None:
    first = done(world, "UPDATE t SET b = 10 WHERE id = 1")
    second = done(world, "UPDATE t SET b = 20 WHERE id = 1")
    assert list(world.adapter.standing_on(first)) == [second.id]

    (outcome,) = world.adapter.assess(undo_of(first), first).outcomes

    assert outcome.outcome is Outcome.CONFLICT
    assert outcome.resource == f"sqlite:///{world.file}/t/id=1"
    assert outcome.detail == (
        f"was changed since: expected b=10, found b=20, would go back to b=1; changed by effect {second.id[:8]}"
    )


def test_skip_leaves_the_row_and_the_later_effect_goes_back_to_what_was_before_both(world: World) -> None:
    before = world.state()
    first = done(world, "UPDATE t SET b = b + 10 WHERE id < 3")
    second = done(world, "UPDATE t SET b = b + 10 WHERE id = 1")

    part = Desk(world.adapter).undo(first, OnConflict.SKIP)
    assert world.ask("SELECT b FROM t ORDER BY id") == [(21,), (2,), (3,)]
    again = Desk(world.adapter).undo(second)

    assert world.state() == before
    Desk(world.adapter).undo(again)
    Desk(world.adapter).undo(part)
    assert world.ask("SELECT b FROM t ORDER BY id") == [(21,), (12,), (3,)]
    Desk(world.adapter).undo(second)
    assert world.ask("SELECT b FROM t ORDER BY id") == [(11,), (12,), (3,)]


def test_force_overwrites_what_redo_brings_back(world: World) -> None:
    effect = done(
        world, "UPDATE t SET b = 10", "INSERT INTO t VALUES (4, 'new', 4)", "DELETE FROM t WHERE id = 3"
    )
    world.others("UPDATE t SET a = 'theirs' WHERE id IN (1, 4)")
    world.others("DELETE FROM t WHERE id = 2")
    world.others("INSERT INTO t VALUES (3, 'theirs', 0)")
    theirs = world.state()

    forced = Desk(world.adapter).undo(effect, OnConflict.FORCE)
    assert world.ask("SELECT * FROM t ORDER BY id") == [(1, "one", 1), (2, "two", 2), (3, "three", 3)]
    Desk(world.adapter).undo(forced)

    assert world.state() == theirs


def test_what_refers_to_a_row_stands_on_it(world: World) -> None:
    world.make(FAMILY)
    first = done(world, "INSERT INTO parent VALUES (3, 'r')")
    second = done(world, "INSERT INTO child VALUES (30, 3, 'theirs')")

    assert list(world.adapter.standing_on(first)) == [second.id]


def test_what_was_forgotten_is_gone_and_the_marker_stays(world: World) -> None:
    effect = done(world, "UPDATE t SET b = 0")
    world.adapter.release(effect)
    world.adapter.release(effect)

    assert world.adapter.verify(effect).standing is Standing.AFTER
    assert world.ask("SELECT count(*) FROM takeback_image") == [(0,)]
    with pytest.raises(Forgotten):
        Desk(world.adapter).undo(effect)


def test_another_file_of_the_same_name_is_not_touched(world: World) -> None:
    effect = done(world, "UPDATE t SET b = 0")
    world.file.unlink()
    world.make(T)
    before = world.state()

    assert world.adapter.verify(effect).standing is Standing.BEFORE
    with pytest.raises(Refused, match="knows nothing"):
        Desk(world.adapter).undo(effect)
    assert world.state() == before


@pytest.mark.slow
def test_more_rows_than_are_held_in_memory(world: World) -> None:
    world.others(
        "WITH RECURSIVE n (i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 60000) "
        "INSERT INTO t SELECT i, 'row ' || i, i FROM n"
    )
    before = world.ask("SELECT count(*), sum(id), sum(length(a)), sum(b) FROM t")

    effect = done(
        world, "UPDATE t SET b = b + 1", "DELETE FROM t WHERE id % 3 = 0", "UPDATE t SET a = 'x' WHERE id % 2"
    )

    assert effect.receipt["tables"]["t"] == {"inserted": 0, "updated": 39996, "deleted": 19998}
    world.others("UPDATE t SET a = 'theirs' WHERE id % 200 = 1 AND id % 3 > 0")
    assert len(world.adapter.assess(undo_of(effect), effect).outcomes) == 101
    with pytest.raises(Conflict):
        Desk(world.adapter).undo(effect)
    Desk(world.adapter).undo(effect, OnConflict.FORCE)
    assert world.ask("SELECT count(*), sum(id), sum(length(a)), sum(b) FROM t") == before


def test_unprotect_removes_every_trace(world: World) -> None:
    before = world.ask("SELECT name FROM sqlite_schema ORDER BY 1")
    assert not world.adapter.protect(world.database, ()).unprotected
    done(world, "UPDATE t SET b = 0")

    cover = world.adapter.unprotect(world.database, ())

    assert cover.protected == ("t",)
    assert world.ask("SELECT name FROM sqlite_schema ORDER BY 1") == before


# -- small transactions


def test_small_effects_are_logged_in_one_table_and_go_to_their_places_when_they_are_asked_for(
    world: World,
) -> None:
    first = done(world, "UPDATE t SET b = 0")  # makes the log
    before = world.state()
    small = [done(world, f"UPDATE t SET b = {number} WHERE id = 1") for number in range(1, 4)]
    wide = done(world, "INSERT INTO t VALUES (9, 'nine', 9)", "DELETE FROM t WHERE id = 2")

    assert world.ask("SELECT count(*), count(id) FROM takeback_recent") == [(5, 4)]
    (row,) = world.adapter.rows(small[1])
    assert (row.key, (row.before or {})["b"], (row.after or {})["b"]) == ("id=1", "1", "2")
    assert [row.key for row in world.adapter.rows(wide)] == ["id=9", "id=2"]
    assert all(world.adapter.verify(one).standing is Standing.AFTER for one in (first, *small, wide))
    assert list(world.adapter.standing_on(small[0])) == [small[2].id, small[1].id]
    assert world.ask("SELECT count(*) FROM takeback_recent") == [(0,)]
    for one in (wide, *reversed(small)):
        Desk(world.adapter).undo(one)
    assert world.state() == before


def test_the_table_of_recent_effects_does_not_grow_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    import apsw

    from takeback.adapters.sqlite.child import log
    from takeback.adapters.sqlite.child.room import Room

    monkeypatch.setattr(log, "_RECENT", 5)
    room = Room(lambda: True)
    room.open(str(world.file))
    for number in range(20):
        room.script(f"op {number}", [(f"UPDATE t SET b = {number + 1000} WHERE id = 1", ())])
        if number == 9:  # someone else's log is seen as well
            other = Room(lambda: True)
            other.open(str(world.file))
            other.script("other", [("UPDATE t SET b = -1 WHERE id = 2", ())])
            other.close()
    room.undo("op 19", "back", "refuse", False)
    room.close()

    with closing(apsw.Connection(str(world.file))) as connection:
        assert connection.execute("SELECT b FROM t WHERE id = 1").get == 1018
        assert connection.execute("SELECT count(*) FROM takeback_recent").get == 0
        assert connection.execute("SELECT count(*), count(DISTINCT no), max(no) FROM takeback_image").get == (
            22, 22, 44
        )  # fmt: skip


@pytest.mark.parametrize(
    ("statement", "recent", "b"),
    [
        ("UPDATE n SET b = 1.0 WHERE id = 1", 1, "1.0"),  # equal, but not the same
        ("UPDATE n SET b = 2 WHERE id = 1", 1, "2"),
        ("INSERT INTO n VALUES (9, 'i', 9)", 1, "9"),
        ("DELETE FROM n WHERE id = 1", 1, None),
        ("UPDATE n SET a = 'ONE' WHERE id = 1", 1, "1"),  # the same to its collation
        ("UPDATE n SET b = zeroblob(5000) WHERE id = 1", 0, "x'" + "00" * 5000 + "'"),
    ],
)
def test_one_row_is_logged_by_one_statement_in_every_bit(
    world: World, statement: str, recent: int, b: str | None
) -> None:
    world.others("CREATE TABLE n (id INTEGER PRIMARY KEY, a TEXT COLLATE NOCASE, b)")
    world.others("INSERT INTO n VALUES (1, 'one', 1)")
    world.adapter.protect(world.database, ())
    before = world.state()
    assert world.do(("UPDATE n SET b = b",)) is None

    effect = done(world, statement)

    assert world.ask("SELECT count(*) FROM takeback_recent") == [(recent,)]
    assert effect.receipt == world.adapter.verify(effect).receipt
    (row,) = world.adapter.rows(effect)
    assert (row.after or {}).get("b") == b
    after = world.state()
    undone = Desk(world.adapter).undo(effect)  # goes to its place first
    assert world.state() == before
    Desk(world.adapter).undo(undone)
    assert world.state() == after


def test_a_transaction_without_a_statement_asks_nobody(world: World, session: SqliteSession) -> None:
    with closing(sqlite3.connect(world.file)) as other:
        other.execute("BEGIN IMMEDIATE")
        session.begin(intended(world.adapter, session.database, "nothing"))

        assert session.commit() is None

    session.begin(intended(world.adapter, session.database, "nothing"))
    assert session.review().receipt is None
    session.rollback()


def test_what_was_committed_is_found_in_the_file_that_has_its_name(
    world: World, session: SqliteSession
) -> None:
    old = world.file.read_bytes()
    effects: list[Effect] = []
    for number in range(2):
        effects.append(intended(world.adapter, session.database, "…"))
        session.begin(effects[-1])
        session.execute("UPDATE t SET b = 77 + ? WHERE id = 1", [number])
        assert session.commit()
        if number == 0:
            assert world.adapter.verify(effects[0]).standing is Standing.AFTER
    other = world.file.with_name("other.db")
    other.write_bytes(old)

    other.replace(world.file)

    assert world.adapter.verify(effects[1]).standing is Standing.BEFORE


# -- what waits for a person


def test_what_is_held_is_given_up_after_its_time(world: World, session: SqliteSession) -> None:
    effect = intended(world.adapter, session.database, "x")
    session.begin(effect)
    session.execute("UPDATE t SET b = 0", ())
    shown = session.review()
    assert shown.receipt and [row.key for row in shown.rows] == ["id=1", "id=2", "id=3"]
    with pytest.raises(Misuse, match="waits for a decision"):
        session.execute("DELETE FROM t", ())
    before = world.state()

    session.hold(effect, 0.01)
    world.others("UPDATE t SET a = 'theirs' WHERE id = 1")  # waits until the lock is free

    assert not session.holds(effect.id) and not session.keep(effect.id)
    assert world.adapter.verify(effect).standing is Standing.BEFORE
    assert world.state() != before and world.ask("SELECT a, b FROM t WHERE id = 1") == [("theirs", 1)]


def test_what_cannot_be_committed_at_once_stays_held(world: World, session: SqliteSession) -> None:
    effect = intended(world.adapter, session.database, "x")
    session.begin(effect)
    session.execute("UPDATE t SET b = 0", ())
    assert session.review().receipt
    session.hold(effect, 600)
    with closing(sqlite3.connect(world.file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM t").fetchall() == [(3,)]  # and stays in its transaction
        with pytest.raises(StoreBusy):
            session.keep(effect.id)

    assert world.adapter.verify(effect).standing is Standing.BETWEEN
    assert session.keep(effect.id)
    assert world.adapter.verify(effect).standing is Standing.AFTER
    assert world.ask("SELECT sum(b) FROM t") == [(0,)]


def test_a_file_that_cannot_be_written_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite3

    import takeback
    from takeback.errors import NoRemedy

    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE users (id INTEGER PRIMARY KEY); INSERT INTO users VALUES (1)")
    connection.close()
    allowed = os.access  # root may write everything
    monkeypatch.setattr(
        os, "access", lambda name, how: allowed(name, how) and (how != os.W_OK or name != str(path))
    )
    with takeback.open(tmp_path / "store") as tb, tb.run("agent") as run:
        db = run.sql(f"sqlite:///{path}")
        assert db.execute("SELECT id FROM users").rows == ((1,),)
        with pytest.raises(NoRemedy, match="cannot be written"):
            db.execute("DELETE FROM users")
        assert tb.effects() == ()
