"""Small transactions on a SQLite file: what is written of them, and where it goes."""

import sqlite3
from contextlib import closing

import pytest

from takeback.adapters.sqlite.session import SqliteSession
from takeback.model.effect import Effect
from takeback.model.plan import Standing
from takeback.testing.adapter_suite import Desk
from tests.sql.engines import intended
from tests.sql.sqlite_world import World, done, session, world

__all__ = ["session", "world"]


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
    from takeback.adapters.sqlite.child.server import ChildServer

    monkeypatch.setattr(log, "_RECENT", 5)
    room = ChildServer(lambda: True)
    room.open(str(world.file))
    for number in range(20):
        room.begin_with(f"op {number}", 0, f"UPDATE t SET b = {number + 1000} WHERE id = 1", (), False)
        assert room.commit()
        if number == 9:  # someone else's log is seen as well
            other = ChildServer(lambda: True)
            other.open(str(world.file))
            other.begin_with("other", 0, "UPDATE t SET b = -1 WHERE id = 2", (), False)
            assert other.commit()
            other.close()
    room.answer("undo", "op 19", "back", "refuse", False)
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
