"""What was done to a SQLite file is taken back: conflicts and what is told of them, what others refer to, many rows."""

import pytest

from takeback.errors import (
    Conflict,
    Corrupt,
    Forgotten,
    Refused,
)
from takeback.model.change import OnConflict
from takeback.model.plan import Outcome, Standing
from takeback.testing.adapter_suite import Desk, undo_of
from tests.sql.sqlite_cases import FAMILY, T
from tests.sql.sqlite_world import World, done, world

__all__ = ["world"]


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


_MANY = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000) "
_PLAIN = (
    f"CREATE TABLE m (id INTEGER PRIMARY KEY, a TEXT); {_MANY} INSERT INTO m SELECT i, 'row ' || i FROM n;"
)
_UNIQUE = _PLAIN.replace("a TEXT", "a TEXT UNIQUE")
_DID = (
    "INSERT INTO m SELECT id + 20000, 'new ' || id FROM m WHERE id % 2",
    "UPDATE m SET a = 'changed ' || id WHERE id BETWEEN 100 AND 9000",
    "DELETE FROM m WHERE id % 5 = 0 AND id < 9000",
)


@pytest.mark.parametrize("made", [_PLAIN, _UNIQUE], ids=["plain", "unique"])
def test_more_rows_than_go_back_at_once(world: World, made: str) -> None:
    world.make(made)
    before = world.state()
    effect = done(world, *_DID)
    after = world.state()

    undone = Desk(world.adapter).undo(effect)
    assert world.state() == before
    Desk(world.adapter).undo(undone)
    assert world.state() == after


def test_values_that_changed_places_far_from_each_other_go_back(world: World) -> None:
    world.make(_UNIQUE)
    before = world.state()
    effect = done(world, "UPDATE m SET a = -id", "UPDATE m SET a = 'row ' || (9001 - id)")

    Desk(world.adapter).undo(effect)

    assert world.state() == before


def test_of_many_rows_those_that_do_not_go_back_are_named_wherever_they_are(world: World) -> None:
    world.make(_UNIQUE)
    effect = done(world, "UPDATE m SET a = 'x' || id")
    world.others("INSERT INTO m VALUES (20001, 'row 7'), (20002, 'row 8888')")

    outcomes = world.adapter.assess(undo_of(effect), effect).outcomes
    Desk(world.adapter).undo(effect, OnConflict.SKIP)

    assert [one.resource.rpartition("/")[2] for one in outcomes if one.outcome is Outcome.CONFLICT] == [
        "id=7",
        "id=8888",
    ]
    assert world.ask("SELECT count(*) FROM m WHERE a = 'row ' || id") == [(8998,)]
    assert world.ask("SELECT id FROM m WHERE a LIKE 'x%' ORDER BY id") == [(7,), (8888,)]


@pytest.mark.parametrize("key", ["id INTEGER PRIMARY KEY", "id INT", "id TEXT PRIMARY KEY"])
def test_rows_that_refer_to_one_that_must_go_are_named(world: World, key: str) -> None:
    world.make(
        f"CREATE TABLE author (id INTEGER PRIMARY KEY); CREATE TABLE book ({key}, by_ REFERENCES author)"
    )
    effect = done(world, "INSERT INTO author VALUES (3), (4)")
    world.others("INSERT INTO book VALUES (30, 3), (31, 3), (32, 3), (33, 3), (40, 4), (50, NULL)")
    before = world.state()
    known = "rowid={}" if key == "id INT" else "id={}"
    first = ", ".join(known.format(one) for one in ((1, 2, 3) if key == "id INT" else (30, 31, 32)))

    outcomes = world.adapter.assess(undo_of(effect), effect).outcomes
    with pytest.raises(Conflict, match="rows written since refer to it: book"):
        Desk(world.adapter).undo(effect)

    assert [one.detail for one in outcomes if one.outcome is Outcome.CONFLICT] == [
        f"rows written since refer to it: book {first} and 1 more",
        f"rows written since refer to it: book {known.format(5 if key == 'id INT' else 40)}",
    ]
    assert world.state() == before


@pytest.mark.parametrize("of", ["few", "many", "schema", "undo"])
@pytest.mark.parametrize(
    "removed",
    [
        "DELETE FROM takeback_image",
        "DELETE FROM takeback_image WHERE no = (SELECT max(no) FROM takeback_image)",
        "DELETE FROM takeback_table",
    ],
)
def test_what_was_kept_and_is_gone_is_not_passed_over(world: World, of: str, removed: str) -> None:
    many = (
        "INSERT INTO t SELECT n + 10, 'x', n FROM (WITH RECURSIVE s(n) AS "
        "(VALUES (1) UNION ALL SELECT n + 1 FROM s LIMIT 50) SELECT n FROM s)"
    )
    effect = done(
        world, *{"many": (many,), "schema": ("ALTER TABLE t ADD COLUMN c",)}.get(of, ()), "UPDATE t SET b = 0"
    )
    if of == "undo":
        effect = Desk(world.adapter).undo(effect)
    world.adapter.assess(undo_of(effect), effect)  # everything goes to its place
    list(world.adapter.standing_on(effect))
    after = world.state()
    world.others(removed)

    for policy in (OnConflict.REFUSE, OnConflict.SKIP, OnConflict.FORCE):
        with pytest.raises(Corrupt, match="cannot be taken back"):
            Desk(world.adapter).undo(effect, policy)
    with pytest.raises(Corrupt, match="cannot be taken back"):
        world.adapter.assess(undo_of(effect), effect)
    with pytest.raises(Corrupt, match="cannot be taken back"):
        list(world.adapter.rows(effect))
    with pytest.raises(Corrupt, match="cannot be taken back"):
        world.adapter.undo(effect)
    assert world.state() == after


def test_an_image_that_is_gone_before_it_came_to_its_place_is_missed(world: World) -> None:
    effect = done(world, "CREATE TABLE u (a)")  # the log is there
    effect = done(world, "UPDATE t SET b = 0")
    world.others("DELETE FROM takeback_recent WHERE id IS NULL")
    with pytest.raises(
        Corrupt, match="of the 3 images of rows that were kept in takeback_recent, 1 are there"
    ):
        list(world.adapter.rows(effect))
    with pytest.raises(
        Corrupt, match="of the 3 images of rows that were kept in takeback_image, 1 are there"
    ):
        Desk(world.adapter).undo(effect)


def test_an_undo_in_part_has_fewer_images_and_misses_none(world: World) -> None:
    first = done(world, "UPDATE t SET b = b + 10")
    second = done(world, "UPDATE t SET b = 5 WHERE id = 1")
    part = Desk(world.adapter).undo(first, OnConflict.SKIP)
    assert len(list(world.adapter.rows(part))) == 2
    Desk(world.adapter).undo(second)
    assert world.ask("SELECT b FROM t ORDER BY id") == [(1,), (2,), (3,)]
    again = Desk(world.adapter).undo(Desk(world.adapter).undo(part))
    world.others("DELETE FROM takeback_image WHERE no = (SELECT max(no) FROM takeback_image)")
    with pytest.raises(Corrupt, match="of the 2 images"):
        Desk(world.adapter).undo(again)
