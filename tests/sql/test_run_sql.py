"""A database through the public API, the same story with each engine."""

from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.api import Takeback, opened_of
from takeback.runs.sql import Sql
from tests.sql.conftest import Shop

USERS = ((1, "ann", "member"), (2, "bob", "member"), (3, "cid", "admin"))


def users(tb: Takeback, shop: Shop) -> tuple[Any, ...]:
    with tb.run("look") as run:
        return run.sql(shop.url).execute("SELECT id, name, role FROM users ORDER BY id").rows


def test_a_statement_is_an_effect_and_goes_back(tb: Takeback, protected: Shop) -> None:
    with tb.run("agent", agent="tester") as run:
        result = run.sql(protected.url).execute("UPDATE users SET role = 'admin' WHERE id < 3")
    effect = result.effect
    assert effect and effect.state == "done" and result.rowcount == 2
    assert [row[2] for row in users(tb, protected)] == ["admin"] * 3
    assert tb.undo(effect).outcome == "done"
    assert users(tb, protected) == USERS
    assert tb.redo().outcome == "done"
    assert [row[2] for row in users(tb, protected)] == ["admin"] * 3


def test_what_is_read_is_no_effect_and_what_changes_nothing_neither(tb: Takeback, protected: Shop) -> None:
    with tb.run("agent") as run:
        db = run.sql(protected.url)
        found = db.execute(f"SELECT name FROM users WHERE id = {protected.mark}", [2])
        assert found.rows == (("bob",),) and found.columns == ("name",) and found.effect is None
        assert found.dicts() == [{"name": "bob"}]
        assert db.execute("UPDATE users SET role = 'x' WHERE id = 99").effect is None
    assert [one for one in tb.effects() if one.state == "done"] == []


def test_a_transaction_is_one_effect(tb: Takeback, protected: Shop) -> None:
    with tb.run("agent") as run:
        db = run.sql(protected.url)
        with db.transaction("two things") as made:
            db.execute("DELETE FROM users WHERE id = 1")
            db.executemany(
                f"INSERT INTO users VALUES ({protected.mark}, {protected.mark}, 'new')", [(7, "x"), (8, "y")]
            )
            assert made.effect.state == "intended"
        assert made.effect.state == "done" and made.effect.change.summary == "two things"
    assert [row[0] for row in users(tb, protected)] == [2, 3, 7, 8]
    tb.undo(made.effect)
    assert users(tb, protected) == USERS
    with tb.run("look") as run:
        assert run.sql(protected.url).execute("SELECT id FROM orders ORDER BY id").rows == ((10,), (11,))


def test_an_error_in_a_transaction_rolls_it_back(tb: Takeback, protected: Shop) -> None:
    with tb.run("agent") as run:
        db = run.sql(protected.url)
        with pytest.raises(KeyError), db.transaction():
            db.execute("DELETE FROM users")
            raise KeyError("no")
        with pytest.raises(takeback.StatementFailed) as failed:
            db.execute("UPDATE users SET nosuch = 1")
        assert "nosuch" in str(failed.value) and failed.value.hint
        assert db.execute("UPDATE users SET role = 'x' WHERE id = 1").effect
    assert [one.state for one in tb.effects()] == ["aborted", "aborted", "done"]


def test_a_row_changed_since_is_a_conflict_by_name(tb: Takeback, protected: Shop) -> None:
    with tb.run("agent") as run:
        effect = run.sql(protected.url).execute("UPDATE users SET role = 'admin' WHERE id < 3").effect
    protected.outside("UPDATE users SET name = 'ANN' WHERE id = 1")
    assert effect
    with pytest.raises(takeback.Conflict) as refused:
        tb.undo(effect)
    assert "ANN" in str(refused.value) and "users" in refused.value.resources[0]
    assert [row[2] for row in users(tb, protected)] == ["admin"] * 3
    result = tb.undo(effect, on_conflict="skip")
    assert result.outcome == "partial"
    assert users(tb, protected) == ((1, "ANN", "admin"), (2, "bob", "member"), (3, "cid", "admin"))
    tb.undo(effect, on_conflict="force")
    assert users(tb, protected) == USERS
    tb.redo()
    assert users(tb, protected)[0] == (1, "ANN", "admin")


def test_later_effects_go_with_it_in_a_cascade(tb: Takeback, protected: Shop) -> None:
    with tb.run("one") as run:
        first = run.sql(protected.url).execute("UPDATE users SET role = 'a' WHERE id = 1").effect
    with tb.run("two") as run:
        db = run.sql(protected.url)
        second = db.execute("UPDATE users SET role = 'b' WHERE id = 1").effect
        other = db.execute("UPDATE users SET role = 'c' WHERE id = 2").effect
    assert first and second and other
    with pytest.raises(takeback.Conflict, match=second.id[:8]):
        tb.undo(first)
    result = tb.undo(first, cascade=True)
    assert [one.id for one in result.effects] == [second.id, first.id]
    assert users(tb, protected) == (USERS[0], (2, "bob", "c"), USERS[2])
    assert tb.undo(other).outcome == "done"


def test_a_failing_run_takes_back_rows_and_files_newest_first(
    tb: Takeback, protected: Shop, tmp_path: Path
) -> None:
    (tmp_path / "f").write_text("before")
    with pytest.raises(ZeroDivisionError), tb.run("agent") as run:
        db = run.sql(protected.url)
        db.execute("UPDATE users SET role = 'x'")
        run.write(tmp_path / "f", "after")
        db.execute("DELETE FROM users")
        run.write(tmp_path / "g", "new")
        _ = 1 / 0
    assert users(tb, protected) == USERS
    assert (tmp_path / "f").read_text() == "before" and not (tmp_path / "g").exists()


def test_going_back_to_a_checkpoint(tb: Takeback, protected: Shop) -> None:
    with tb.run("agent") as run:
        db = run.sql(protected.url)
        db.execute("UPDATE users SET role = 'kept'")
        run.checkpoint("here")
        db.execute("DELETE FROM users WHERE id > 1")
        run.undo(to="here")
        assert [row[2] for row in db.execute("SELECT * FROM users").rows] == ["kept"] * 3


def test_a_key_is_used_once(tb: Takeback, protected: Shop) -> None:
    with tb.run("agent") as run:
        db = run.sql(protected.url)
        statement = "UPDATE orders SET total = total + 1"
        first = db.execute(statement, key="k").effect
        again = db.execute(statement, key="k").effect
        assert first and again and first.id == again.id
        with pytest.raises(takeback.KeyReused):
            db.execute("UPDATE orders SET total = 0", key="k")
        assert db.execute("SELECT total FROM orders ORDER BY id").rows == ((101,), (201,))


def test_two_at_once_on_the_same_database_do_not_wait_for_each_other(tb: Takeback, protected: Shop) -> None:
    if protected.engine == "sqlite":
        _one_writer(tb, protected)
        return
    with tb.run("one") as one, tb.run("two") as two:
        left, right = one.sql(protected.url), two.sql(protected.url)
        with left.transaction() as a:
            left.execute("UPDATE users SET role = 'left' WHERE id = 1")
            with right.transaction() as b:
                right.execute("UPDATE users SET role = 'right' WHERE id = 2")
    assert [row[2] for row in users(tb, protected)] == ["left", "right", "admin"]
    tb.undo(a.effect)
    tb.undo(b.effect)
    assert users(tb, protected) == USERS


def test_one_run_has_two_transactions_open_and_the_outer_fails(tb: Takeback, protected: Shop) -> None:
    if protected.engine == "sqlite":
        return  # one writer, see above
    again = "UPDATE orders SET total = total + 1 WHERE id = 10"
    with tb.run("agent") as run:
        left, right = run.sql(protected.url), run.sql(protected.url)
        with pytest.raises(KeyError), left.transaction():
            left.execute("UPDATE users SET role = 'left' WHERE id = 1")
            with right.transaction() as inner:
                right.execute("UPDATE users SET role = 'right' WHERE id = 2")
            assert right.execute(again).effect
            raise KeyError("no")
        assert right.execute(again).effect, "the same once more is not the one that was made before"
        assert right.execute("SELECT total FROM orders WHERE id = 10").rows == ((102,),)
    assert inner.effect.state == "done"
    assert [row[2] for row in users(tb, protected)] == [USERS[0][2], "right", USERS[2][2]]


def _one_writer(tb: Takeback, shop: Shop) -> None:
    """SQLite has no more; the second is told so, and nothing is lost."""
    with tb.run("one") as one, tb.run("two") as two:
        left, right = one.sql(shop.url), two.sql(shop.url)
        with left.transaction():
            left.execute("UPDATE users SET role = 'left' WHERE id = 1")
            with pytest.raises(takeback.StoreBusy):
                right.execute("UPDATE users SET role = 'right' WHERE id = 2")
        assert right.execute("UPDATE users SET role = 'right' WHERE id = 2").effect
    assert [row[2] for row in users(tb, shop)] == ["left", "right", "admin"]


def test_no_password_and_no_parameter_is_in_the_store(tb: Takeback, protected: Shop, tmp_path: Path) -> None:
    from tests.servers.process import PASSWORD

    with tb.run("agent") as run:
        run.sql(protected.url).execute(
            f"UPDATE users SET name = {protected.mark} WHERE role = 'quoted-secret'", ["parameter-secret"]
        )
        run.sql(protected.url).execute(
            f"UPDATE users SET name = {protected.mark}, role = 'quoted-secret' WHERE id = 1",
            ["parameter-secret"],
        )
    tb.close()
    for path in (tmp_path / "store").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            for secret in (PASSWORD, "parameter-secret", "quoted-secret"):
                assert secret.encode() not in content, path


def test_misuse_is_told(tb: Takeback, protected: Shop) -> None:
    with tb.run("agent") as run:
        db = run.sql(protected.url)
        for bad in ("", "   ", None):
            with pytest.raises(takeback.Misuse):
                db.execute(bad)  # type: ignore[arg-type]
        with db.transaction(), pytest.raises(takeback.Misuse), db.transaction():
            raise AssertionError("it must not come here")
        with pytest.raises(takeback.Misuse):
            run.sql("oracle://x/y")
        with pytest.raises(takeback.Misuse):
            run.sql("")
        kept: Sql = db
    with pytest.raises(takeback.Misuse, match="has ended"):
        kept.execute("SELECT 1")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("limit", [0, -1, True, "3"])
def test_a_limit_of_rows_is_a_number(tb: Takeback, protected: Shop, limit: Any) -> None:
    with tb.run("agent") as run:
        effect = run.sql(protected.url).execute("DELETE FROM orders").effect
    assert effect
    with pytest.raises(takeback.Misuse):
        tb.rows(effect, limit=limit)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("statement", ["BEGIN", "COMMIT", "ROLLBACK", "DELETE FROM users; COMMIT"])
def test_a_caller_cannot_end_the_transaction_that_is_the_effect(
    tb: Takeback, protected: Shop, statement: str
) -> None:
    with tb.run("agent") as run:
        db = run.sql(protected.url)
        with pytest.raises(takeback.TakebackError), db.transaction():
            db.execute("UPDATE users SET role = 'x' WHERE id = 1")
            db.execute(statement)
    assert users(tb, protected) == USERS


def test_more_rows_than_were_declared_are_refused(tb: Takeback, protected: Shop) -> None:
    with tb.run("agent") as run:
        db = run.sql(protected.url, max_rows=2)
        with pytest.raises(takeback.Refused, match="3 rows, and no more than 2 were declared"):
            db.execute("UPDATE users SET role = 'x'")
        assert db.execute("UPDATE users SET role = 'x' WHERE id < 3").effect
        with pytest.raises(takeback.Refused, match="no more than 2"), db.transaction():
            db.execute("UPDATE users SET role = 'y' WHERE id = 1")
            db.execute("DELETE FROM users WHERE id > 1")
    assert [row[2] for row in users(tb, protected)] == ["x", "x", "admin"]
    with tb.run("agent") as run:
        assert run.sql(protected.url, max_rows=0).execute("UPDATE users SET role = 'z'").rowcount == 3
        with pytest.raises(takeback.Misuse, match="no number of rows"):
            run.sql(protected.url, max_rows=-1)


def test_the_loser_of_two_undos_is_told_who_is_at_it(
    tb: Takeback, protected: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tb.run("agent") as run:
        effect = run.sql(protected.url).execute("UPDATE users SET role = 'x' WHERE id = 1").effect
    assert effect
    adapter = opened_of(tb).parts.adapters[protected.engine]
    apply, told = adapter.apply, []

    def meanwhile(undo: Any) -> Any:
        with takeback.open(tb.path, recover=False) as other, pytest.raises(takeback.StoreBusy) as refused:
            other.undo(effect.id)
        told.append((str(refused.value), undo))
        return apply(undo)

    monkeypatch.setattr(adapter, "apply", meanwhile)
    tb.undo(effect, agent="quick")

    ((said, undo),) = told
    assert "already being undone" in said and undo.id[:8] in said and "quick" in said
    assert users(tb, protected) == USERS
    with pytest.raises(takeback.Refused, match="already undone"):
        tb.undo(effect.id)


def test_rows_that_refer_to_one_that_is_to_go_are_named(tb: Takeback, protected: Shop) -> None:
    with tb.run("agent") as run:
        effect = run.sql(protected.url).execute("INSERT INTO users VALUES (9, 'new', 'x')").effect
    assert effect
    protected.outside("INSERT INTO orders VALUES (21, 9, 1), (22, 9, 1), (23, 9, 1), (24, 9, 1), (25, 9, 1)")
    with pytest.raises(takeback.Conflict, match="orders") as refused:
        tb.undo(effect)
    if protected.engine != "sqlite":
        assert "id=21" in str(refused.value) and "and 2 more" in str(refused.value)
    assert len(users(tb, protected)) == 4
