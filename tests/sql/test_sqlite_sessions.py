"""A SQLite file through a session: its address, rows and errors, other writers, what waits for a person."""

import datetime
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from takeback.adapters.sqlite.session import SqliteSession
from takeback.errors import (
    Misuse,
    Refused,
    ResourceUnreachable,
    StatementFailed,
    StoreBusy,
    TakebackError,
)
from takeback.model.plan import Standing
from takeback.testing.adapter_suite import Desk
from tests.sql.engines import intended
from tests.sql.sqlite_cases import T
from tests.sql.sqlite_world import World, done, session, world

__all__ = ["session", "world"]


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
        ("sqlite:////nowhere/at/all.db", Misuse),
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
    from takeback.errors import ResourceUnreachable

    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE users (id INTEGER PRIMARY KEY); INSERT INTO users VALUES (1)")
    connection.close()
    allowed = os.access  # root may write everything
    monkeypatch.setattr(
        os,
        "access",
        lambda name, how, **more: allowed(name, how, **more) and (how != os.W_OK or name != str(path)),
    )
    with takeback.open(tmp_path / "store") as tb, tb.run("agent") as run:
        db = run.sql(f"sqlite:///{path}")
        assert db.execute("SELECT id FROM users").rows == ((1,),)
        with pytest.raises(ResourceUnreachable, match="cannot be written"):
            db.execute("DELETE FROM users")
        assert tb.effects() == ()


@pytest.mark.parametrize(
    "statement", ["SELECT * FROM t", "UPDATE t SET b = 5", "DROP TABLE t", "ALTER TABLE t ADD COLUMN c"]
)
def test_text_that_is_not_utf8_makes_the_statement_fail(world: World, statement: str) -> None:
    world.others("UPDATE t SET a = CAST(x'ff41' AS TEXT) WHERE id = 1")
    session = world.adapter.connect(world.database)
    try:
        with pytest.raises(StatementFailed, match="text in these rows that is not UTF-8"):
            if session.read(statement, ()) is None:
                done(world, statement)
        assert session.read("SELECT CAST(a AS BLOB), b FROM t WHERE id = 1", ()).rows == ((b"\xffA", 1),)
    finally:
        session.close()
