"""Rows whose foreign key points nowhere: what was so before an effect comes back so, and nothing else does."""

import pytest

from takeback.errors import Conflict
from takeback.model.plan import Outcome
from takeback.testing.adapter_suite import Desk, undo_of
from tests.sql.sqlite_world import World, done, world

__all__ = ["world"]

_LOOSE = (
    "CREATE TABLE u (id INTEGER PRIMARY KEY, n); CREATE TABLE o (id INTEGER PRIMARY KEY, u REFERENCES u (id));"
    "CREATE TABLE w (a, b, PRIMARY KEY (a, b), FOREIGN KEY (a) REFERENCES u (id)) WITHOUT ROWID;"
    "INSERT INTO u VALUES (1, 'one'), (2, 'two');"
    "INSERT INTO o VALUES (1, 99), (2, 1), (3, 98), (4, NULL);"
    "INSERT INTO w VALUES (1, 'x'), (97, 'y');"
)


@pytest.mark.parametrize(
    "statements",
    [
        ("DELETE FROM o",),
        ("DELETE FROM o WHERE id = 1",),
        ("DELETE FROM w",),
        ("DROP TABLE o",),
        ("DROP TABLE w", "DROP TABLE o"),
        ("ALTER TABLE o ADD COLUMN more",),
        ("ALTER TABLE w RENAME TO v",),
        ("UPDATE o SET u = 2",),
        ("UPDATE o SET id = id + 10",),
        ("DELETE FROM o", "DELETE FROM u"),
        ("DELETE FROM u",),
        ("INSERT INTO u VALUES (99, 'late')",),
        ("INSERT INTO u VALUES (99, 'late')", "DELETE FROM o WHERE id = 1"),
        ("INSERT INTO o VALUES (10, 55), (11, 99)",),
        ("INSERT INTO o SELECT id + 100, u FROM o", "UPDATE u SET id = 99 WHERE id = 2"),
        (
            "INSERT INTO o SELECT value + 100, 77 FROM (WITH RECURSIVE s(value) AS (VALUES (1) UNION ALL"
            " SELECT value + 1 FROM s LIMIT 50) SELECT value FROM s)",
        ),
    ],
)
def test_fresh_eyes_1_rows_that_pointed_nowhere_before_come_back_and_go_again(
    world: World, statements: tuple[str, ...]
) -> None:
    world.make(_LOOSE)
    before = world.state()
    effect = done(world, *statements)
    after = world.state()

    (outcome,) = world.adapter.assess(undo_of(effect), effect).outcomes
    undo = Desk(world.adapter).undo(effect)
    there_again = world.state()
    redo = Desk(world.adapter).undo(undo)
    gone_again = world.state()
    Desk(world.adapter).undo(redo)

    assert outcome.outcome is Outcome.UNDONE
    assert there_again == before
    assert gone_again == after
    assert world.state() == before


@pytest.mark.parametrize("statement", ["DELETE FROM o", "DROP TABLE o", "UPDATE o SET u = NULL"])
def test_fresh_eyes_1_a_row_whose_parent_went_since_is_still_a_conflict(world: World, statement: str) -> None:
    world.make(_LOOSE)
    effect = done(world, statement)
    world.others("DELETE FROM u WHERE id = 1")
    before = world.state()

    outcomes = world.adapter.assess(undo_of(effect), effect).outcomes
    with pytest.raises(Conflict, match="refers to a row of u that is gone"):
        Desk(world.adapter).undo(effect)

    assert [one.resource.rpartition("/")[2] for one in outcomes if one.outcome is Outcome.CONFLICT] == [
        "id=2"
    ]
    assert world.state() == before


def test_fresh_eyes_1_a_row_that_came_to_refer_since_is_still_a_conflict(world: World) -> None:
    world.make(_LOOSE)
    effect = done(world, "INSERT INTO u VALUES (99, 'late')")
    world.others("INSERT INTO o VALUES (5, 99)")

    with pytest.raises(Conflict, match="refer to it: o"):
        Desk(world.adapter).undo(effect)

    world.others("DELETE FROM o WHERE id = 5")
    Desk(world.adapter).undo(effect)
    assert world.ask("SELECT id FROM u ORDER BY id") == [(1,), (2,)]
