"""How many rows: the effect, its rows one by one, its undo and the redo say the same number."""

import pytest

from takeback.api import Takeback, opened_of
from takeback.audit.rows import receipt_of
from takeback.model.effect import Effect
from tests.sql.conftest import Shop

CASES = {
    "rows without a key": ["UPDATE loose SET b = b + 1"],
    "copies of a row without a key": ["DELETE FROM loose WHERE a = 1", "INSERT INTO loose VALUES (1, 1), (5, 5)"],
    "some of them stay as they are": ["UPDATE loose SET b = CASE WHEN a = 1 THEN b ELSE 9 END"],
    "the same row twice": ["UPDATE users SET role = 'x' WHERE id = 1", "UPDATE users SET role = 'y' WHERE id = 1"],
    "a row that comes and goes": ["INSERT INTO users VALUES (7, 'x', 'x')", "DELETE FROM users WHERE id >= 3"],
    "unique values move on": ["UPDATE seats SET place = place + 10"],
}  # fmt: skip


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", CASES)
def test_one_number_everywhere(tb: Takeback, shop: Shop, case: str) -> None:
    shop.outside("CREATE TABLE loose (a INTEGER, b INTEGER)")
    shop.outside("INSERT INTO loose VALUES (1, 1), (1, 1), (2, 2), (3, 3), (3, 3), (4, 4)")
    shop.outside("CREATE TABLE seats (id INTEGER PRIMARY KEY, place INTEGER UNIQUE)")
    shop.outside("INSERT INTO seats VALUES (1, 1), (2, 2)")
    opened_of(tb).parts.adapters[shop.engine].protect(opened_of(tb).parts.named(shop.url), ())  # pyright: ignore
    with tb.run("agent") as run:
        db = run.sql(shop.url)
        with db.transaction() as made:
            for statement in CASES[case]:
                db.execute(statement)
    effect = tb.effect(made.effect.id)

    shown = _by_kind(tb, effect)

    assert _counts(effect) == shown
    (undo,) = tb.undo(effect).undo
    assert _counts(tb.effect(undo.id)) == _turned(shown)
    (redo,) = tb.redo().undo
    assert _counts(tb.effect(redo.id)) == shown


def _counts(effect: Effect) -> dict[str, int]:
    (counts,) = receipt_of(effect)["tables"].values()
    return counts


def _by_kind(tb: Takeback, effect: Effect) -> dict[str, int]:
    found = {"inserted": 0, "updated": 0, "deleted": 0}
    for row in tb.rows(effect):
        found["inserted" if row.before is None else "deleted" if row.after is None else "updated"] += 1
    return found


def _turned(counts: dict[str, int]) -> dict[str, int]:
    return {"inserted": counts["deleted"], "updated": counts["updated"], "deleted": counts["inserted"]}
