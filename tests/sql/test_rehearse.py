"""The undo of rows, tried for real in a transaction that is rolled back, or on a copy of the file."""

from typing import Any

import pytest

from takeback.api import Takeback
from takeback.model.rehearsal import Proof
from tests.sql.conftest import Shop


def rows(tb: Takeback, shop: Shop) -> Any:
    with tb.run("look") as run:
        database = run.sql(shop.url)
        return [database.execute(f"SELECT * FROM {table} ORDER BY id").rows for table in ("users", "orders")]


def made(tb: Takeback, shop: Shop, statement: str) -> str:
    with tb.run("work") as run:
        effect = run.sql(shop.url).execute(statement).effect
    assert effect
    return effect.id


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE users SET role = 'owner' WHERE id < 3",
        "DELETE FROM users WHERE id = 1",
        "INSERT INTO users VALUES (7, 'eve', 'member')",
    ],
)
def test_rows_are_put_back_on_trial_and_stay_as_they_are(
    tb: Takeback, protected: Shop, statement: str
) -> None:
    effect = made(tb, protected, statement)
    before = rows(tb, protected)

    (told,) = tb.rehearse(effect).rehearsed

    assert told.proof is Proof.WORKS
    assert rows(tb, protected) == before
    assert tb.effect(effect).state.value == "done"
    assert tb.undo(effect).outcome == "done"


def test_a_table_that_was_altered_since_is_caught(tb: Takeback, protected: Shop) -> None:
    effect = made(tb, protected, "UPDATE users SET role = 'owner' WHERE id < 3")
    protected.outside("ALTER TABLE users DROP COLUMN role")

    (told,), (looked,) = tb.rehearse(effect).rehearsed, tb.rehearse(effect, check=True).rehearsed

    assert (told.proof, looked.proof) == (Proof.FAILS, Proof.FAILS)
    assert "users" in told.why


def test_a_row_that_someone_changed_since_is_the_conflict_of_the_undo(tb: Takeback, protected: Shop) -> None:
    effect = made(tb, protected, "UPDATE users SET role = 'owner' WHERE id = 1")
    protected.outside("UPDATE users SET role = 'guest' WHERE id = 1")

    (told,) = tb.rehearse(effect).rehearsed

    assert told.proof is Proof.FAILS


def test_a_change_of_the_schema_is_tried_where_it_can_be_rolled_back(tb: Takeback, protected: Shop) -> None:
    effect = made(tb, protected, "ALTER TABLE orders ADD COLUMN note VARCHAR(40)")
    before = rows(tb, protected)

    (told,) = tb.rehearse(effect).rehearsed

    if protected.engine == "mariadb":
        assert (told.proof, told.why) == (
            Proof.CANNOT,
            "MariaDB cannot roll a change of the schema back, so it was not tried.",
        )
    else:
        assert told.proof is Proof.WORKS
    assert rows(tb, protected) == before


def test_a_server_that_is_not_reached_is_no_proof_of_anything(tb: Takeback, pg_database: Any) -> None:
    from tests.sql.conftest import served

    shop = served(pg_database, "postgres")
    shop.outside("CREATE TABLE users (id INTEGER PRIMARY KEY)")
    from takeback.adapters.database import Databases
    from takeback.api import opened_of

    database = opened_of(tb).parts.named(shop.url)
    adapter = opened_of(tb).parts.adapters["postgres"]
    assert isinstance(adapter, Databases)
    adapter.protect(database, ())
    effect = made(tb, shop, "INSERT INTO users VALUES (1)")
    shop.outside("DROP SCHEMA takeback CASCADE")

    (told,) = tb.rehearse(effect).rehearsed

    assert told.proof is not Proof.WORKS
    assert told.why
