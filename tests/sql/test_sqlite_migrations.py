"""Real migration tools on a SQLite file, run by `takeback run --sql` and taken back: schema, rows, their own books."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import CommandLine
from tests.sql.projects import alembic_project, django_project
from tests.world import World

# -- what a project looks like

_ENV = """
from alembic import context
from sqlalchemy import create_engine

with create_engine(context.config.get_main_option("sqlalchemy.url")).connect() as connection:
    context.configure(connection=connection, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()
"""
# Splits a column, fills the new ones, drops the old one (for SQLite: makes the table anew), and adds a table.
_SECOND = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "002", "001"


def upgrade():
    with op.batch_alter_table("users") as users:
        users.add_column(sa.Column("first", sa.String(20)))
        users.add_column(sa.Column("last", sa.String(20), server_default="?", nullable=False))
    op.execute("UPDATE users SET first = substr(name, 1, instr(name, ' ') - 1), "
        "last = substr(name, instr(name, ' ') + 1)")
    op.drop_index("by_name", "users")
    with op.batch_alter_table("users") as users:
        users.drop_column("name")
        users.create_unique_constraint("one_of_each", ["first", "last"])
    op.create_table("notes", sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("usr", sa.Integer, sa.ForeignKey("users.id")), sa.Column("text", sa.Text))
    op.execute("INSERT INTO notes (usr, text) SELECT id, 'hello ' || first FROM users WHERE id % 10 = 0")
    MORE
"""


def _alembic(place: Path, file: Path, more: str = "") -> list[str]:
    return alembic_project(place, f"sqlalchemy.url = sqlite:///{file}\n", _ENV, _SECOND.replace("MORE", more))


def _django(place: Path, file: Path) -> list[str]:
    engine = "django.db.backends.sqlite3"
    return django_project(place, f'DATABASES = {{"default": {{"ENGINE": "{engine}", "NAME": "{file}"}}}}\n')


# -- what is in the file


def _world(file: Path) -> dict[str, Any]:
    """Everything but takeback's own tables, as someone else reads it."""
    with closing(sqlite3.connect(file, timeout=120)) as connection:
        schema = connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE tbl_name NOT LIKE 'takeback%' ORDER BY 1, 2"
        ).fetchall()
        tables = [name for kind, name, _, _ in schema if kind == "table"]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return {
            "schema": schema,
            **{name: sorted(map(repr, connection.execute(f'SELECT * FROM "{name}"'))) for name in tables},
        }


def _columns(file: Path, table: str) -> list[str]:
    with closing(sqlite3.connect(file, timeout=120)) as connection:
        return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


@pytest.fixture
def takeback(world: World) -> CommandLine:
    return CommandLine(os.fspath(world.root))


@pytest.fixture(params=["delete", "wal"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    made = tmp_path / "app.db"
    with closing(sqlite3.connect(made)) as connection:
        connection.execute(f"PRAGMA journal_mode = {request.param}")
        connection.execute("CREATE TABLE ours (id INTEGER PRIMARY KEY, word TEXT)")
        connection.execute("INSERT INTO ours VALUES (1, 'stays')")
        connection.commit()
    return made


@pytest.mark.slow
def test_alembic_is_taken_back_step_by_step_and_brought_again(
    takeback: CommandLine, tmp_path: Path, file: Path
) -> None:
    alembic = _alembic(tmp_path / "project", file)
    run = ("run", "--sql", f"sqlite:///{file}", "--")
    at_first = _world(file)
    takeback.done(*run, *alembic, "upgrade", "001")
    between = _world(file)
    assert len(between["users"]) == 100
    takeback.done(*run, *alembic, "upgrade", "head")
    migrated = _world(file)
    assert _columns(file, "users") == ["id", "first", "last"] and len(migrated["notes"]) == 10

    takeback.done("undo")
    assert _world(file) == between
    takeback.done("redo")
    assert _world(file) == migrated
    takeback.done("undo")
    takeback.done("undo")
    assert _world(file) == at_first


@pytest.mark.slow
@pytest.mark.parametrize("file", ["wal"], indirect=True)
def test_alembic_that_fails_half_way_leaves_everything_as_it_was(
    takeback: CommandLine, tmp_path: Path, file: Path
) -> None:
    alembic = _alembic(tmp_path / "project", file, more='op.execute("SELECT * FROM nowhere")')
    run = ("run", "--sql", f"sqlite:///{file}", "--")
    takeback.done(*run, *alembic, "upgrade", "001")
    before = _world(file)

    quietly = ("/bin/sh", "-c", '"$@" 2>/dev/null', "sh")
    assert takeback(*run, *quietly, *alembic, "upgrade", "head").code == 1

    assert _world(file) == before


@pytest.mark.slow
@pytest.mark.parametrize("file", ["wal"], indirect=True)
def test_others_work_on_while_django_migrates_and_is_taken_back(
    takeback: CommandLine, tmp_path: Path, file: Path
) -> None:
    django = _django(tmp_path / "project", file)
    run = ("run", "--sql", f"sqlite:///{file}", "--")
    takeback.done(*run, *django, "migrate", "shop", "0001")
    takeback.done(*run, *django, "migrate", "auth")
    before = _world(file)
    takeback.done(*run, *django, "migrate", "shop")
    assert "total" in _columns(file, "shop_order") and len(_world(file)["shop_order"]) == 40
    with closing(sqlite3.connect(file, timeout=120)) as connection:
        connection.execute("UPDATE ours SET word = 'written since'")
        connection.commit()

    takeback.done("undo")

    now = _world(file)
    assert now.pop("ours") != before.pop("ours")
    assert now == before
