"""What is takeback's own in a SQLite file and what is not: tables of others whose names begin alike, tables of others
with the very names, and a program that drops or empties ours."""

import sys

import pytest

from takeback.errors import NoRemedy, Refused, StatementFailed
from takeback.frontends.cli.main import main
from takeback.testing.adapter_suite import Desk
from tests.sql.sqlite_world import World, done, world
from tests.sql.test_sqlite_programs import begun, ended

__all__ = ["world"]

ALL = ("takeback_op", "takeback_table", "takeback_image", "takeback_recent")
NOTES = "CREATE TABLE takeback_notes (id INTEGER PRIMARY KEY, a)"


@pytest.fixture
def noted(world: World) -> World:
    world.others(NOTES)
    world.others("INSERT INTO takeback_notes VALUES (1, 'x'), (2, 'y')")
    return world


def notes(world: World) -> list[tuple[int, str]]:
    return world.ask("SELECT * FROM takeback_notes ORDER BY id")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE takeback_notes SET a = 'z'",
        "DELETE FROM takeback_notes",
        "DROP TABLE takeback_notes",
        "ALTER TABLE takeback_notes ADD COLUMN b DEFAULT 4",
        "ALTER TABLE takeback_notes RENAME TO takeback_others",
    ],
)
def test_a_table_whose_name_begins_like_ours_is_like_any_other(noted: World, statement: str) -> None:
    effect = done(noted, statement)
    redone = Desk(noted.adapter).undo(effect)
    assert notes(noted) == [(1, "x"), (2, "y")]
    Desk(noted.adapter).undo(redone)
    assert Desk(noted.adapter).undo(effect)
    assert notes(noted) == [(1, "x"), (2, "y")]
    assert "takeback_notes" in noted.adapter.cover(noted.database).protected


def test_a_program_that_drops_such_a_table_is_taken_back(
    noted: World, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    program = (
        "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('DROP TABLE takeback_notes'); sys.exit(3)"
    )
    store = str(tmp_path_factory.mktemp("store"))
    address = f"sqlite:///{noted.file}"
    code = main(
        ["--store", store, "run", "--sql", address, "--", sys.executable, "-c", program, str(noted.file)]
    )
    assert code == 3 and ": taken back: " in capsys.readouterr().err
    assert notes(noted) == [(1, "x"), (2, "y")]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "statements",
    [
        [f"DROP TABLE {name}" for name in ALL],
        *([f"DROP TABLE {name}"] for name in ALL),
        ["DELETE FROM takeback_op", "DELETE FROM takeback_image", "DELETE FROM takeback_recent"],
    ],
)
@pytest.mark.parametrize("more", [(), ("UPDATE t SET b = 7 WHERE id = 3",)])
def test_our_tables_are_put_back_when_a_program_has_damaged_them(
    world: World, statements: list[str], more: tuple[str, ...]
) -> None:
    before = world.state()
    first = done(world, "CREATE TABLE other (a)")
    second = done(world, "UPDATE t SET b = 5 WHERE id = 1")
    effect = begun(world)
    for one in (*statements, *more):
        world.others(one)

    made = ended(world, effect)

    assert made is not None and "were put back" in made.receipt["notes"][0]
    for one in (*([made] if more else []), second, first):
        Desk(world.adapter).undo(one)
    assert world.state() == before


def test_a_program_that_damages_them_is_told_of(
    world: World, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    done(world, "CREATE TABLE other (a)")
    program = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('DROP TABLE takeback_op')"
    store = str(tmp_path_factory.mktemp("store"))
    address = f"sqlite:///{world.file}"
    code = main(
        ["--store", store, "run", "--sql", address, "--", sys.executable, "-c", program, str(world.file)]
    )
    assert code == 0 and "were damaged by the program, and were put back" in capsys.readouterr().err


def test_where_others_have_worked_since_nothing_is_put_over_it_and_the_loss_is_told(world: World) -> None:
    done(world, "UPDATE t SET b = 5 WHERE id = 1")
    effect = begun(world)
    for name in ALL:
        world.others(f"DROP TABLE {name}")
    later = done(world, "UPDATE t SET b = 6 WHERE id = 2")

    made = ended(world, effect)

    assert made is not None and "earlier effects" in made.receipt["lost"][0]
    after = world.state()
    with pytest.raises(Refused, match="because this is lost"):
        Desk(world.adapter).undo(made)
    assert world.state() == after
    Desk(world.adapter).undo(later)


@pytest.mark.parametrize("name", ["takeback_op", "takeback_image"])
def test_a_stranger_with_a_name_of_ours_is_named_and_stops_all_changes(world: World, name: str) -> None:
    world.others(f"CREATE TABLE {name} (a)")
    assert [one for one, _ in world.adapter.cover(world.database).unprotected] == [name]
    with pytest.raises(NoRemedy, match=f"{name} is a name that takeback needs"):
        begun(world)
    with pytest.raises(StatementFailed):
        done(world, "UPDATE t SET b = 5")
    with pytest.raises(Refused):
        done(world, f"DROP TABLE {name}")
    assert world.ask("SELECT b FROM t ORDER BY id") == [(1,), (2,), (3,)]


@pytest.mark.parametrize(
    "statement", ["ALTER TABLE t RENAME TO takeback_op", "CREATE TABLE takeback_image (a)"]
)
def test_nothing_comes_to_a_name_of_ours_before_we_do(world: World, statement: str) -> None:
    with pytest.raises(Refused, match="takeback"):
        done(world, statement)
