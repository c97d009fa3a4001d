"""Real migration tools on PostgreSQL, run by `takeback run --sql` and taken back: schema, rows, their own books."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import CommandLine
from tests.sql.pg_bench import PgBench
from tests.sql.projects import alembic_project, django_project
from tests.sql.test_postgres_schema import definitions
from tests.sql.test_postgres_schema import world as rows_of
from tests.world import World

# -- what a project looks like

_ENV = """
import os
from alembic import context
from sqlalchemy import create_engine

with create_engine(os.environ["APP_DB"].replace("postgresql://", "postgresql+psycopg://")).connect() as connection:
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()
"""
_VIEW = '    op.execute("CREATE VIEW names AS SELECT name FROM users")\n'
# Splits a column, fills the new ones, drops the old one and what hangs on it, changes a type, and adds tables.
_SECOND = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "002", "001"


def upgrade():
    op.add_column("users", sa.Column("first", sa.String(20)))
    op.add_column("users", sa.Column("last", sa.String(20), server_default="?", nullable=False))
    op.execute("UPDATE users SET first = split_part(name, ' ', 1), last = split_part(name, ' ', 2)")
    op.execute("DROP VIEW names")
    op.drop_index("by_name", "users")
    op.drop_column("users", "name")
    op.alter_column("users", "first", type_=sa.Text, nullable=False)
    op.create_unique_constraint("one_of_each", "users", ["first", "last"])
    kind = sa.Enum("open", "done", name="kind")
    op.create_table("notes", sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("kind", kind, server_default="open"),
        sa.Column("usr", sa.Integer, sa.ForeignKey("users.id")), sa.Column("text", sa.Text))
    op.execute("INSERT INTO notes (usr, text) SELECT id, 'hello ' || first FROM users WHERE id % 10 = 0")
    op.execute("DELETE FROM users WHERE id = 7")
    op.drop_table("ours")
    MORE
"""


def alembic_of(place: Path, more: str = "") -> list[str]:
    return alembic_project(place, "", _ENV, _SECOND.replace("MORE", more), _VIEW)


_DATABASES = """
import os
from urllib.parse import urlsplit

at = urlsplit(os.environ["APP_DB"])
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": at.path[1:], "USER": at.username,
    "PASSWORD": at.password, "HOST": at.hostname, "PORT": at.port}}  # its options come from PGOPTIONS
"""
_MORE = """
        migrations.RenameField("Order", "title", "heading"),
        migrations.CreateModel("Item", [
            ("id", models.BigAutoField(primary_key=True)),
            ("order", models.ForeignKey("shop.Order", models.CASCADE))]),
        migrations.RunSQL("INSERT INTO shop_item (order_id) SELECT id FROM shop_order"),
"""


def django_of(place: Path) -> list[str]:
    return django_project(place, _DATABASES, _MORE)


# -- what is in the database


@pytest.fixture
def bench(pg_database: Any):
    made = PgBench(pg_database.url)
    made.run(
        "create table ours (id int primary key, word text)",
        "insert into ours values (1, 'stays'), (2, 'too')",
    )
    made.protect()
    yield made
    made.close()


@pytest.fixture
def takeback(world: World, bench: PgBench, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("APP_DB", bench.url)
    return CommandLine(os.fspath(world.root))


RUN = ("run", "--sql", "env:APP_DB", "--")


def everything(bench: PgBench) -> tuple[Any, str]:
    return rows_of(bench), definitions(bench)


@pytest.mark.slow
def test_alembic_is_taken_back_step_by_step_and_brought_again(
    takeback: CommandLine, tmp_path: Path, bench: PgBench
) -> None:
    alembic = alembic_of(tmp_path / "project")
    at_first = everything(bench)
    takeback.done(*RUN, *alembic, "upgrade", "001")
    between = everything(bench)
    assert len(between[0]["public.users"]) == 100
    takeback.done(*RUN, *alembic, "upgrade", "head")
    migrated = everything(bench)
    assert "public.ours" not in migrated[0] and len(migrated[0]["public.notes"]) == 10

    takeback.done("undo")
    assert everything(bench) == between
    takeback.done("redo")
    assert everything(bench) == migrated
    takeback.done("undo")
    takeback.done("undo")
    assert everything(bench) == at_first


@pytest.mark.slow
def test_alembic_that_fails_half_way_leaves_everything_as_it_was(
    takeback: CommandLine, tmp_path: Path, bench: PgBench
) -> None:
    alembic = alembic_of(tmp_path / "project", more='op.execute("SELECT * FROM nowhere")')
    takeback.done(*RUN, *alembic, "upgrade", "001")
    before = everything(bench)

    quietly = ("/bin/sh", "-c", '"$@" 2>/dev/null', "sh")
    assert takeback(*RUN, *quietly, *alembic, "upgrade", "head").code == 1

    assert everything(bench) == before


@pytest.mark.slow
def test_what_people_wrote_to_a_new_column_is_not_taken_back_with_it(
    takeback: CommandLine, tmp_path: Path, bench: PgBench
) -> None:
    alembic = alembic_of(tmp_path / "project")
    takeback.done(*RUN, *alembic, "upgrade", "001")
    takeback.done(*RUN, *alembic, "upgrade", "head")
    bench.run("insert into users (id, first, last) values (500, 'New', 'One')")
    before = everything(bench)

    said = takeback("undo")

    assert said.code == 3 and "users" in said.err
    assert everything(bench) == before
    bench.run("delete from users where id = 500")
    takeback.done("undo")
    assert bench.rows("select count(*), count(name) from users") == [(100, 100)]


@pytest.mark.slow
def test_django_is_taken_back_while_others_work_on(
    takeback: CommandLine, tmp_path: Path, bench: PgBench
) -> None:
    django = django_of(tmp_path / "project")
    takeback.done(*RUN, *django, "migrate", "shop", "0001")
    takeback.done(*RUN, *django, "migrate", "auth")
    before = everything(bench)
    takeback.done(*RUN, *django, "migrate", "shop")
    after = everything(bench)
    assert len(after[0]["public.shop_order"]) == len(after[0]["public.shop_item"]) == 40
    bench.run("update ours set word = 'written since' where id = 1")

    takeback.done("undo")

    rows, schema = everything(bench)
    assert rows.pop("public.ours") != before[0].pop("public.ours")
    assert (rows, schema) == before
    takeback.done("redo")
    assert everything(bench)[1] == after[1]
