"""What a caller can get wrong, the same for every engine: refused, nothing changed, and the handle goes on."""

import os
import re
import subprocess
import sys

import pytest

from takeback.errors import Misuse, StatementFailed, TakebackError


def _names(protected, db):
    return [row[0] for row in db.execute("SELECT name FROM users ORDER BY id").rows]


def _renamed(protected):
    return f"UPDATE users SET name = {protected.mark}"


def test_after_a_statement_that_failed_nothing_of_the_transaction_stays(protected, tb):
    with tb.run("work") as run, run.sql(protected.url) as db:
        with pytest.raises(StatementFailed), db.transaction():
            db.execute("UPDATE users SET name = 'x'")
            with pytest.raises(StatementFailed):
                db.execute("INSERT INTO users (id) VALUES (1)")
            with pytest.raises(StatementFailed):
                db.execute("UPDATE users SET name = 'y' WHERE id = 1")
        with pytest.raises(StatementFailed, match="transaction"), db.transaction():
            db.execute("UPDATE users SET name = 'x'")
            with pytest.raises(TakebackError):
                db.execute("INSERT INTO users (id) VALUES (1)")
        assert _names(protected, db) == ["ann", "bob", "cid"]
        assert db.execute("UPDATE users SET name = 'z' WHERE id = 1").effect
    assert len(tb.effects(state="done")) == 1


def test_a_savepoint_lets_a_transaction_go_on_after_a_statement_that_failed(protected, tb):
    if protected.engine == "sqlite":
        return  # there all of it is lost
    with tb.run("work") as run, run.sql(protected.url) as db:
        with db.transaction():
            db.execute("UPDATE users SET name = 'x' WHERE id = 1")
            db.execute("SAVEPOINT s")
            with pytest.raises(StatementFailed):
                db.execute("INSERT INTO users (id) VALUES (1)")
            db.execute("ROLLBACK TO SAVEPOINT s")
            db.execute("UPDATE users SET name = 'y' WHERE id = 2")
        assert _names(protected, db) == ["x", "y", "cid"]


def test_a_handle_that_was_closed_says_so(protected, tb):
    with tb.run("work") as run:
        db = run.sql(protected.url)
        db.close()
        for work in (lambda: db.execute("SELECT 1"), lambda: db.transaction().__enter__()):
            with pytest.raises(Misuse, match="closed"):
                work()
        db.close()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shop", ["mariadb"], indirect=True)
@pytest.mark.parametrize(
    ("statement", "parameters", "error", "says"),
    [
        ("UPDATE users SET id = %s", [float("nan")], Misuse, "nan"),
        ("UPDATE users SET id = %s", [float("inf")], Misuse, "inf"),
        ("UPDATE users SET name = %s WHERE id = %s", ["x"], StatementFailed, "do not fit"),
        ("UPDATE users SET name = 'x'", ["x"], StatementFailed, "do not fit"),
        ("UPDATE users SET name = '100 %' WHERE id = %s", [1], StatementFailed, "do not fit"),
        ("UPDATE users SET name = %s", {"name": "x"}, StatementFailed, "do not fit"),
        ("UPDATE users SET name = %(name)s", {"nam": "x"}, StatementFailed, "do not fit"),
        ("UPDATE users SET name = %s", 1, Misuse, "int"),
        ("UPDATE users SET name = %s", "x", Misuse, "str"),
        ("UPDATE users SET name = %s", iter(["x"]), Misuse, "iterator"),
        ("UPDATE users SET name = %s", [object()], Misuse, "object"),
        ("UPDATE users SET name = %s", ["\ud800"], Misuse, "no text"),
        ("UPDATE users SET name = '\ud800'", [], Misuse, "no text"),
        ("SELECT %s", [float("nan")], Misuse, "nan"),
        ("SELECT %s, %s", [1], StatementFailed, "do not fit"),
    ],
)
def test_parameters_that_do_not_fit_are_no_trouble_of_the_server(
    protected, tb, statement, parameters, error, says
):
    with tb.run("work") as run, run.sql(protected.url) as db:
        with pytest.raises(error, match=re.escape(says)):
            db.execute(statement, parameters)
        with pytest.raises(error):
            db.executemany(statement, [parameters])
        assert _names(protected, db) == ["ann", "bob", "cid"]
        assert db.execute("UPDATE users SET name = '100 %' WHERE id = 1").effect
        assert db.execute("UPDATE users SET name = %(it)s WHERE id IN %(of)s", {"it": "x", "of": [2]}).effect
        assert _names(protected, db) == ["100 %", "x", "cid"]


@pytest.mark.parametrize("shop", ["mariadb"], indirect=True)
@pytest.mark.parametrize("value", [memoryview(b"\x00\xffa"), bytearray(b"\x00\xffa"), b"\x00\xffa"])
def test_bytes_are_stored_as_bytes_however_they_are_given(protected, tb, value):
    protected.outside("ALTER TABLE users ADD COLUMN face BLOB")
    with tb.run("work") as run, run.sql(protected.url) as db:
        db.execute("ALTER TABLE orders ADD COLUMN note INT")  # brings the capture up to date
        db.execute("UPDATE users SET face = %s WHERE id = 1", [value])
        assert db.execute("SELECT face FROM users WHERE id = 1").rows == ((b"\x00\xffa",),)


@pytest.mark.parametrize("engine", ["mariadb", "redis"])
def test_what_cannot_be_shown_first_is_told_in_the_words_of_the_question(engine, request, tmp_path):
    if engine == "mariadb":
        protected, statement = request.getfixturevalue("maria_database"), "CREATE TABLE t (a INT)"
    else:
        protected, statement = request.getfixturevalue("redis_database"), "SET a 1"
    environment = os.environ | {"TAKEBACK_STORE": str(tmp_path / "store"), "APP_DB": protected.url}
    base = [sys.executable, "-m", "takeback", "sql"]
    subprocess.run([*base, "protect", "env:APP_DB"], env=environment, timeout=120, check=True)
    told = subprocess.run(
        [*base, "exec", "--dry-run", "env:APP_DB", statement],
        env=environment,
        timeout=120,
        check=False,
        capture_output=True,
        text=True,
    )
    assert told.returncode in (2, 3)
    assert (
        re.search(r"shown before (it is|they are) made", told.stderr) and "without --dry-run" in told.stderr
    )


def test_an_undo_in_the_middle_of_a_transaction_on_the_same_database_is_refused_at_once(protected, tb):
    told = []
    tb.tell = told.append
    with tb.run("work") as run, run.sql(protected.url) as db:
        first = db.execute("UPDATE users SET name = 'x' WHERE id = 1").effect
        with db.transaction() as made:
            db.execute("UPDATE users SET name = 'y' WHERE id = 1")
            db.execute("UPDATE users SET name = 'z' WHERE id = 2")
            for undo in (run.undo, tb.undo):
                with pytest.raises(Misuse, match="in the middle of a transaction") as refused:
                    undo(first)
                assert "Nothing was changed" in refused.value.hint and refused.value.effect == first.id
        assert made.effect.state == "done" and _names(protected, db) == ["y", "z", "cid"]
        run.undo(made.effect)
        run.undo(first)
        assert _names(protected, db) == ["ann", "bob", "cid"]
    assert told == []  # nobody waited


def test_a_transaction_is_in_the_way_only_of_its_own_database(protected, tb, tmp_path):
    file = tmp_path / "note"
    with tb.run("work") as run, run.sql(protected.url) as db:
        note = run.write(file, "one")
        with db.transaction():
            db.execute("UPDATE users SET name = 'y' WHERE id = 1")
            run.undo(note)
        assert not file.exists() and _names(protected, db) == ["y", "bob", "cid"]
