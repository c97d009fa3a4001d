"""Effects on one database that are taken back in one undo: each is judged by what it will find when its turn comes."""

from typing import Any

import pytest

import takeback
from takeback.api import Takeback, opened_of
from tests.sql.conftest import Shop

_HISTORIES = [
    ("DELETE FROM items WHERE id = 3", "DROP TABLE items"),
    ("UPDATE items SET role = 'x'", "ALTER TABLE items ADD COLUMN note VARCHAR(40)"),
    ("UPDATE items SET role = 'x'", "ALTER TABLE items DROP COLUMN name"),
    ("CREATE TABLE fresh (id INTEGER PRIMARY KEY)", "INSERT INTO fresh VALUES (1), (2)"),
    ("CREATE TABLE fresh (id INTEGER PRIMARY KEY)", "INSERT INTO fresh VALUES (1), (2)", "DROP TABLE fresh"),
    ("ALTER TABLE items ADD COLUMN note VARCHAR(40)", "UPDATE items SET note = 'seen'"),
    ("DELETE FROM items WHERE id = 3", "INSERT INTO items VALUES (3, 'new', 'x')", "DROP TABLE items"),
    ("UPDATE items SET role = 'x'", "ALTER TABLE items RENAME TO people"),
    ("UPDATE items SET role = 'x'", "DROP TABLE items", "CREATE TABLE items (a INTEGER PRIMARY KEY)"),
]


_ITEMS = ((1, "ann", "member"), (2, "bob", "member"), (3, "cid", "admin"))


@pytest.fixture
def items(shop: Shop, tb: Takeback) -> Shop:
    """A table that no other refers to."""
    from takeback.adapters.database import Databases

    shop.outside("CREATE TABLE items (id INTEGER PRIMARY KEY, name VARCHAR(40), role VARCHAR(40))")
    shop.outside("INSERT INTO items VALUES (1, 'ann', 'member'), (2, 'bob', 'member'), (3, 'cid', 'admin')")
    database = opened_of(tb).parts.named(shop.url)
    adapter = opened_of(tb).parts.adapters[database.engine]
    assert isinstance(adapter, Databases)
    adapter.protect(database, ())
    return shop


def _found(tb: Takeback, shop: Shop) -> tuple[Any, ...]:
    with tb.run("look") as run:
        return run.sql(shop.url).execute("SELECT id, name, role FROM items ORDER BY id").rows


def _made(tb: Takeback, shop: Shop, statements: tuple[str, ...]) -> list[str]:
    made: list[str] = []
    for statement in statements:
        with tb.run("agent") as run:
            effect = run.sql(shop.url).execute(statement).effect
        assert effect
        made.append(effect.id)
    return made


@pytest.mark.sampled(12)
@pytest.mark.parametrize("way", ["named", "cascade"])
@pytest.mark.parametrize("statements", _HISTORIES, ids="; ".join)
def test_fresh_eyes_7_rows_and_then_their_table_are_taken_back_together(
    tb: Takeback, items: Shop, statements: tuple[str, ...], way: str
) -> None:
    made = _made(tb, items, statements)

    plan = tb.undo(made[::-1], dry_run=True)
    # What is undone without the others is not pulled in by a cascade.
    result = tb.undo(made[::-1]) if way == "named" else tb.undo(made[0], cascade=True)

    assert {one.outcome for one in plan.targets} == {"undone"}
    assert result.outcome == "done"
    rest = [one for one in made[::-1] if tb.effect(one).state == "done"]
    if rest:
        assert tb.undo(rest).outcome == "done"
    assert _found(tb, items) == _ITEMS


def test_fresh_eyes_7_what_someone_else_dropped_is_still_a_conflict(tb: Takeback, items: Shop) -> None:
    (effect,) = _made(tb, items, ("UPDATE items SET role = 'x'",))
    items.outside("ALTER TABLE items DROP COLUMN name")

    with pytest.raises(takeback.Conflict):
        tb.undo(effect, cascade=True)
