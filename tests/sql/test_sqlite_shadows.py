"""Names in a SQLite file that could be taken for takeback's own, or for tables they are not: temporary things come
first where a name is looked up."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from takeback.api import Takeback
from takeback.errors import Refused
from takeback.runs.sql import Sql

_TABLES = """
CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT UNIQUE);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
CREATE TABLE counted (id INTEGER PRIMARY KEY AUTOINCREMENT, a);
"""
_LIKE_RECENT = "(no INTEGER PRIMARY KEY, id, last, format, at, about, tbl, k, did, c0, c1, c2, c3)"
_ROWS = [(1, "one"), (2, "two")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "app.db"
    with closing(sqlite3.connect(made)) as connection:
        connection.executescript(_TABLES)
    return made


@pytest.fixture
def db(tb: Takeback, file: Path) -> Iterator[Sql]:
    with tb.run("agent") as run:
        yield run.sql(f"sqlite:///{file}")


def found(file: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize(
    "statement",
    [
        f"CREATE TEMP TABLE takeback_recent {_LIKE_RECENT}",
        "CREATE TEMP TABLE TakeBack_Op AS SELECT 1 AS no",
        "CREATE TEMP VIEW takeback_image AS SELECT 1 AS no",
        "CREATE TEMP TRIGGER mine AFTER INSERT ON main.takeback_recent BEGIN DELETE FROM t; END",
        "CREATE TEMP TRIGGER takeback_op AFTER INSERT ON t BEGIN SELECT 1; END",
        "CREATE TEMP TABLE takeback_skip (no, kind, forced)",
        "CREATE INDEX mine ON takeback_op (id)",
        "ALTER TABLE takeback_op RENAME TO mine",
    ],
)
def test_a_name_of_ours_is_refused(db: Sql, file: Path, tb: Takeback, statement: str) -> None:
    db.execute("UPDATE t SET a = 'first' WHERE id = 1")
    before = found(file, "SELECT type, name FROM sqlite_schema ORDER BY 1, 2")

    with pytest.raises(Refused, match="takeback"):
        db.execute(statement)

    assert found(file, "SELECT type, name FROM sqlite_schema ORDER BY 1, 2") == before
    made = db.execute("UPDATE t SET a = 'second' WHERE id = 2").effect
    assert made and found(file, "SELECT * FROM t") == [(1, "first"), (2, "second")]
    tb.undo(made)
    assert found(file, "SELECT * FROM t") == [(1, "first"), (2, "two")]


def test_a_temporary_table_that_comes_to_a_name_of_ours_is_not_taken_for_it(
    db: Sql, file: Path, tb: Takeback
) -> None:
    db.execute("UPDATE t SET a = 'first' WHERE id = 1")
    for name in ("recent", "op", "image", "table"):
        db.execute(f"CREATE TEMP TABLE x {_LIKE_RECENT}")
        db.execute(f"ALTER TABLE x RENAME TO takeback_{name}")

    made = [
        db.execute("UPDATE t SET a = 'second' WHERE id = 2").effect,
        db.execute("CREATE TABLE other (a)").effect,
        db.execute("INSERT INTO t SELECT id + 100, a || id FROM t").effect,
    ]

    for one in reversed(made):
        assert one
        tb.undo(one)
    assert found(file, "SELECT * FROM t") == [(1, "first"), (2, "two")]


def test_a_temporary_table_hides_no_table_of_the_file(db: Sql, file: Path, tb: Takeback) -> None:
    db.execute("CREATE TEMP TABLE t (q PRIMARY KEY) WITHOUT ROWID")
    other = db.execute("CREATE TABLE other (a)").effect  # now all tables are looked at again

    made = db.execute("UPDATE main.t SET a = a || '!'").effect

    assert made and found(file, "SELECT * FROM t") == [(1, "one!"), (2, "two!")]
    tb.undo(made)
    assert found(file, "SELECT * FROM t") == _ROWS
    assert other and tb.undo(other).outcome == "done"


def test_counters_of_temporary_tables_are_nobodys_business(db: Sql, file: Path, tb: Takeback) -> None:
    db.execute("CREATE TEMP TABLE y (id INTEGER PRIMARY KEY AUTOINCREMENT, a)")

    assert db.execute("INSERT INTO y (a) VALUES (1), (2)").effect is None
    made = db.execute("INSERT INTO counted (a) VALUES (1)").effect

    assert made and found(file, "SELECT seq FROM sqlite_sequence") == [(1,)]
    tb.undo(made)
    assert found(file, "SELECT seq FROM sqlite_sequence WHERE seq > 0") == []
