"""MariaDB: rows that their table does not take any more, because of a rule added since or of a row that someone else
was quicker to make, are named, with what the server says."""

from typing import Any

import pytest

from takeback.adapters.mariadb import put_back
from takeback.errors import Conflict
from takeback.model.change import OnConflict
from takeback.model.plan import Outcome
from takeback.testing.adapter_suite import Desk, undo_of
from tests.sql.test_mariadb import bench, do, names, undo
from tests.sql.test_mariadb_matrix import Bench

pytestmark = pytest.mark.needs("mariadbd", "mariadb-install-db")

__all__ = ["bench"]


def conflicts(bench: Bench, effect: Any) -> dict[str, str]:
    outcomes = bench.adapter().assess(undo_of(effect), effect).outcomes
    return {
        one.resource.rpartition("/")[2]: one.detail for one in outcomes if one.outcome is Outcome.CONFLICT
    }


def test_a_rule_added_since_names_row_and_reason(bench) -> None:
    effect = do(bench, "UPDATE users SET name = 'x' WHERE id < 3")
    bench.plain(["ALTER TABLE users ADD CONSTRAINT `not ada` CHECK (name <> 'ada')"])

    found = conflicts(bench, effect)

    assert list(found) == ["id=1"] and "CONSTRAINT `not ada` failed" in found["id=1"]
    assert "does not take it any more" in found["id=1"] and "Take the rule away" in found["id=1"]
    for policy in (OnConflict.REFUSE, OnConflict.FORCE):
        with pytest.raises(Conflict, match="id=1 cannot be put back: the table does not take it any more"):
            undo(bench, effect, policy)
    assert names(bench) == {1: "x", 2: "x", 3: "cy"}
    undo(bench, effect, OnConflict.SKIP)
    assert names(bench) == {1: "x", 2: "bob", 3: "cy"}


def test_of_many_rows_those_that_are_not_taken_are_named(bench) -> None:
    bench.plain(["INSERT INTO users SELECT 10 + seq, CONCAT('n', seq) FROM seq_1_to_500"])
    effect = do(bench, "DELETE FROM users WHERE id > 10")
    bench.plain(["ALTER TABLE users ADD CONSTRAINT odd CHECK (name NOT IN ('n7', 'n8', 'n444'))"])

    assert list(conflicts(bench, effect)) == ["id=17", "id=18", "id=454"]
    undo(bench, effect, OnConflict.SKIP)
    assert len(names(bench)) == 3 + 500 - 3


@pytest.mark.parametrize(
    "how", ["UPDATE users SET name = 'x' WHERE id IN (1, 2)", "DELETE FROM users WHERE id < 3"]
)
def test_values_that_must_be_unique_since_name_the_row(bench, how: str) -> None:
    bench.plain(["UPDATE users SET name = 'same' WHERE id < 3"])
    effect = do(bench, "UPDATE users SET name = id" if "UPDATE" in how else how)
    bench.plain(["ALTER TABLE users ADD UNIQUE one_of_each (name)"])

    found = conflicts(bench, effect)

    assert list(found) == ["id=2"] and "must be unique" in found["id=2"]
    undo(bench, effect, OnConflict.SKIP)
    assert names(bench).get(1) == "same" and names(bench).get(2) in (None, "2")


@pytest.mark.parametrize("again", [False, True], ids=["", "and protected again"])
def test_a_column_that_takes_no_null_since(bench, again: bool) -> None:
    bench.plain(["UPDATE users SET name = NULL WHERE id = 2"])
    effect = do(bench, "UPDATE users SET name = 'x'")
    bench.plain(["ALTER TABLE users MODIFY name VARCHAR(40) NOT NULL"])

    if again:
        bench.adapter().protect(bench.database, ())

    assert conflicts(bench, effect) == {
        "users": "was altered since (column name takes no NULL any more), so its rows cannot come back. "
        "Alter it back first"
    }
    assert names(bench) == {1: "x", 2: "x", 3: "x"}


@pytest.mark.parametrize("on_conflict", [OnConflict.REFUSE, OnConflict.FORCE])
def test_a_row_that_someone_makes_while_it_is_put_back_stays_theirs(
    bench, monkeypatch: pytest.MonkeyPatch, on_conflict: OnConflict
) -> None:
    """Between the look and the putting back: nothing was there that could have been locked."""
    effect = do(bench, "DELETE FROM users WHERE id > 1")
    place, times = put_back.place, iter(range(9))

    def late(*given: Any) -> None:
        if next(times) == 1:  # the first is the look
            bench.plain(["INSERT INTO users VALUES (3, 'theirs')"])
        place(*given)

    change = undo_of(effect, on_conflict)
    monkeypatch.setattr(put_back, "place", late)
    with pytest.raises(Conflict, match="id=3 was deleted, and there is another in its place"):
        Desk(bench.adapter()).do(change, of=effect)
    assert next(times) == 2

    assert names(bench) == {1: "ada", 3: "theirs"}
    undo(bench, effect, OnConflict.SKIP)
    assert names(bench) == {1: "ada", 2: "bob", 3: "theirs"}


@pytest.mark.parametrize(
    ("altered", "told"),
    [
        ("ALTER TABLE users DROP COLUMN name", "was altered since (column name is gone)"),
        ("ALTER TABLE users ADD COLUMN more INT", "was altered since (column more is new)"),
        ("ALTER TABLE users MODIFY name VARCHAR(80)", "was altered since (column name is varchar(80) "),
        ("DROP TABLE orders, users", "is gone, so its rows cannot come back"),
    ],
)
def test_a_table_that_was_altered_since_says_in_what(bench, altered: str, told: str) -> None:
    effect = do(bench, "UPDATE users SET name = 'x'")
    bench.plain([altered])

    assert conflicts(bench, effect)["users"].startswith(told)
