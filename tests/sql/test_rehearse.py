"""The undo of rows, tried for real in a transaction that is rolled back, or on a copy of the file."""

from typing import Any

import pytest

from takeback.adapters.database import Databases
from takeback.api import Takeback, opened_of
from takeback.model.rehearsal import Viability
from tests.sql.conftest import Shop, served


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

    assert told.outcome is Viability.WORKS
    assert rows(tb, protected) == before
    assert tb.effect(effect).state.value == "done"
    assert tb.undo(effect).outcome == "done"


def test_a_table_that_was_altered_since_is_caught(tb: Takeback, protected: Shop) -> None:
    effect = made(tb, protected, "UPDATE users SET role = 'owner' WHERE id < 3")
    protected.outside("ALTER TABLE users DROP COLUMN role")

    (told,), (looked,) = tb.rehearse(effect).rehearsed, tb.rehearse(effect, check=True).rehearsed

    assert (told.outcome, looked.outcome) == (Viability.FAILS, Viability.FAILS)
    assert "users" in told.why


def test_a_row_that_someone_changed_since_is_the_conflict_of_the_undo(tb: Takeback, protected: Shop) -> None:
    effect = made(tb, protected, "UPDATE users SET role = 'owner' WHERE id = 1")
    protected.outside("UPDATE users SET role = 'guest' WHERE id = 1")

    (told,) = tb.rehearse(effect).rehearsed

    assert told.outcome is Viability.FAILS


def test_a_change_of_the_schema_is_tried_where_it_can_be_rolled_back(tb: Takeback, protected: Shop) -> None:
    effect = made(tb, protected, "ALTER TABLE orders ADD COLUMN note VARCHAR(40)")
    before = rows(tb, protected)

    (told,) = tb.rehearse(effect).rehearsed

    if protected.engine == "mariadb":
        assert (told.outcome, told.why) == (
            Viability.CANNOT,
            "MariaDB cannot roll a change of the schema back, so it was not tried.",
        )
    else:
        assert told.outcome is Viability.WORKS
    assert rows(tb, protected) == before


def test_a_rule_that_was_added_since_is_found_by_trying(
    tb: Takeback, pg_database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look does not see it: only the server knows what it will take."""
    shop = protected_postgres(tb, pg_database)
    effect = made(tb, shop, "UPDATE users SET role = 'owner'")
    shop.outside("ALTER TABLE users ADD CONSTRAINT owners CHECK (role = 'owner')")

    (told,) = tb.rehearse(effect).rehearsed

    assert told.outcome is Viability.FAILS
    assert "owners" in told.why
    monkeypatch.setattr("takeback.engine.rehearse._MOST_ROWS", 1)
    (many,) = tb.rehearse(effect).rehearsed
    assert (many.outcome, many.why.startswith("it changed 2 rows")) == (Viability.CANNOT, True)


def test_a_database_that_lost_what_takeback_kept_is_caught(tb: Takeback, pg_database: Any) -> None:
    shop = protected_postgres(tb, pg_database)
    effect = made(tb, shop, "INSERT INTO users VALUES (3, 'guest')")
    shop.outside("DROP SCHEMA takeback CASCADE")

    (told,) = tb.rehearse(effect).rehearsed

    assert told.outcome is not Viability.WORKS
    assert told.why


def protected_postgres(tb: Takeback, database: Any) -> Shop:
    shop = served(database, "postgres")
    shop.outside("CREATE TABLE users (id INTEGER PRIMARY KEY, role TEXT)")
    shop.outside("INSERT INTO users VALUES (1, 'member'), (2, 'member')")
    named = opened_of(tb).parts.named(shop.url)
    adapter = opened_of(tb).parts.adapters["postgres"]
    assert isinstance(adapter, Databases)
    adapter.protect(named, ())
    return shop


def test_redis_is_only_looked_at(tb: Takeback, redis_database: Any) -> None:
    with tb.run("work") as run, run.sql(redis_database.url) as db:
        effect = db.execute("SET", ["k", "v"]).effect
    assert effect

    (tried,), (looked,) = tb.rehearse(effect).rehearsed, tb.rehearse(effect, check=True).rehearsed

    assert (tried.outcome, looked.outcome) == (Viability.CANNOT, Viability.WORKS)
    assert "Redis cannot roll back" in tried.why
    with redis_database.connect() as client:
        client.set("k", "someone else's")
    assert tb.rehearse(effect, check=True).rehearsed[0].outcome is Viability.FAILS
