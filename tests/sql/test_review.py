"""Changes that wait for a person, the same story with each engine: held, shown, kept or dropped."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import takeback
from takeback.api import Takeback, opened_of
from takeback.frontends.cli.main import main
from tests.sql.conftest import Shop
from tests.sql.test_run_sql import USERS, users

ADMIN = "UPDATE users SET role = 'admin' WHERE id = 1"


def test_nobody_sees_it_until_it_is_kept(tb: Takeback, protected: Shop) -> None:
    with tb.run("agent") as run:
        db = run.sql(protected.url, hold=True)
        effect = db.execute(ADMIN).effect
        assert effect and effect.state == "proposed" and effect.waits_for == "person"
        (row,) = tb.rows(effect)
        assert (row.before or {})["role"] == "member" and (row.after or {})["role"] == "admin"
        assert users(tb, protected) == USERS
        run.apply(effect)
        assert tb.effect(effect.id).state == "done"
        assert users(tb, protected)[0] == (1, "ann", "admin")
    tb.undo(effect)
    assert users(tb, protected) == USERS
    tb.redo()
    assert users(tb, protected)[0] == (1, "ann", "admin")


def test_dropped_it_never_happened(tb: Takeback, protected: Shop) -> None:
    with tb.run("agent") as run:
        db = run.sql(protected.url, hold=True)
        with db.transaction("two things") as made:
            db.execute("DELETE FROM users WHERE id = 1")
            db.execute("INSERT INTO users VALUES (9, 'new', 'x')")
        run.discard(made.effect)
        assert tb.effect(made.effect.id).state == "aborted"
        assert users(tb, protected) == USERS
        protected.outside(ADMIN)  # nothing is locked any more
        again = db.execute("UPDATE users SET role = 'x' WHERE id = 2").effect
        assert again
        run.apply(again)
    assert [row[2] for row in users(tb, protected)] == ["admin", "x", "admin"]


def test_a_run_that_fails_says_what_it_dropped(tb: Takeback, protected: Shop) -> None:
    with pytest.raises(KeyError) as failed, tb.run("agent") as run:
        run.sql(protected.url, hold=True).execute(ADMIN)
        raise KeyError("no")
    assert failed.value.__notes__ == [
        "takeback: run 'agent' failed and took back 0 of its effects and dropped 1 that was held in a database, "
        "for good."
    ]
    assert users(tb, protected) == USERS


def test_what_changes_nothing_is_not_held(tb: Takeback, protected: Shop) -> None:
    with tb.run("agent") as run:
        db = run.sql(protected.url, hold=True)
        assert db.execute("UPDATE users SET role = 'x' WHERE id = 99").effect is None
        assert db.execute("SELECT count(*) FROM users").rows == ((3,),)
    assert tb.effects() == ()


def test_a_run_that_fails_drops_what_it_held(tb: Takeback, protected: Shop) -> None:
    with pytest.raises(KeyError), tb.run("agent") as run:
        effect = run.sql(protected.url, hold=True).execute(ADMIN).effect
        raise KeyError("no")
    assert effect and tb.effect(effect.id).state == "aborted"
    protected.outside("UPDATE users SET role = 'x' WHERE id = 1")
    assert users(tb, protected)[0] == (1, "ann", "x")


def test_what_the_database_holds_waits_when_the_run_has_ended(tb: Takeback, protected: Shop) -> None:
    with tb.run("agent") as run:
        effect = run.sql(protected.url, hold=True).execute(ADMIN).effect
    assert effect
    if effect.phase.reviewed.how == "open":
        assert tb.effect(effect.id).state == "aborted"  # only its session could hold it
        return
    assert tb.effect(effect.id).waits_for == "person"
    tb.apply(effect)
    assert users(tb, protected)[0] == (1, "ann", "admin")
    tb.undo(effect)
    assert users(tb, protected) == USERS


def test_what_the_database_gave_up_cannot_be_kept(tb: Takeback, protected: Shop) -> None:
    with tb.run("agent") as run:
        db = run.sql(protected.url, hold=True)
        effect = db.execute(ADMIN).effect
        assert effect
        adapter = opened_of(tb).parts.adapters[protected.engine]
        adapter.undo(effect)  # as an administrator would, or the limit
        with pytest.raises(takeback.Refused, match="not held any more"):
            run.apply(effect)
        assert tb.effect(effect.id).state == "aborted"
    assert users(tb, protected) == USERS


_DIES = """
import os, sys, takeback
with takeback.open(sys.argv[1]) as tb:
    run = tb.run("agent").__enter__()
    effect = run.sql(sys.argv[2], hold=True).execute(sys.argv[3]).effect
    print(effect.id, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_killed_it_is_gone_or_still_held_and_never_made(
    tmp_path: Path, tb: Takeback, protected: Shop
) -> None:
    child = subprocess.run(
        [sys.executable, "-c", _DIES, os.fspath(tmp_path / "store"), protected.url, ADMIN],
        stdout=subprocess.PIPE,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    id = child.stdout.decode().strip()
    tb.recover()
    assert users(tb, protected) == USERS
    effect = tb.effect(id)
    if effect.phase.reviewed.how == "open":
        assert effect.state == "aborted"
    else:
        assert effect.waits_for == "person"
        tb.discard(effect)
    protected.outside("UPDATE users SET role = 'x' WHERE id = 1")
    assert users(tb, protected)[0] == (1, "ann", "x")


def test_a_bad_limit_is_refused(tb: Takeback, protected: Shop) -> None:
    with tb.run("agent") as run, pytest.raises(takeback.Misuse, match="number of seconds"):
        run.sql(protected.url, hold=True, limit=0)


_DIES_DECIDED = """
import os, sys, takeback
from takeback.api import opened_of
with takeback.open(sys.argv[1]) as tb:
    run = tb.run("agent").__enter__()
    effect = run.sql(sys.argv[2], hold=True).execute(sys.argv[3]).effect
    adapter = opened_of(tb).parts.adapters[effect.change.adapter]
    apply = adapter.apply
    def dies(effect):
        if sys.argv[4] == "after":
            apply(effect)
        os.kill(os.getpid(), 9)
    adapter.apply = dies
    print(effect.id, flush=True)
    run.apply(effect)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_while_it_was_kept_the_decision_holds(
    tmp_path: Path, tb: Takeback, protected: Shop, when: str
) -> None:
    child = subprocess.run(
        [sys.executable, "-c", _DIES_DECIDED, os.fspath(tmp_path / "store"), protected.url, ADMIN, when],
        stdout=subprocess.PIPE,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    id = child.stdout.decode().strip()
    settled = {one.effect: one.outcome for one in tb.recover()}
    effect = tb.effect(id)
    if when == "before" and effect.phase.reviewed.how == "open":
        assert settled[id] == "aborted" and users(tb, protected) == USERS
        return
    # Its run died, so what it had done is taken back; but it was done first, or could not have been.
    assert settled[id] == "undone" and effect.state == "undone"
    assert users(tb, protected) == USERS
    tb.redo(effect)
    assert users(tb, protected)[0] == (1, "ann", "admin")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", [(), ("--json",), ("--max-rows", "1")])
def test_a_dry_run_shows_the_rows_and_leaves_no_trace(
    protected: Shop, tb: Takeback, capsys: pytest.CaptureFixture[str], how: tuple[str, ...]
) -> None:
    with tb.run("before") as run, run.sql(protected.url) as db:
        db.execute("UPDATE users SET role = 'admin' WHERE id = 1")
    before = list(tb.store.journal.records())
    words = ["--store", tb.path, "sql", "exec", protected.url, "--dry-run", *how]

    code = main([*words, "UPDATE users SET role = 'guest'"])

    told = capsys.readouterr()
    if how == ("--max-rows", "1"):
        assert code == 3 and "no more than 1 were declared" in told.err
    else:
        assert code == 0 and "id=2" in told.out and "guest" in told.out, told
    assert list(tb.store.journal.records()) == before
    with tb.run("look") as run, run.sql(protected.url) as db:
        assert db.execute("SELECT role FROM users ORDER BY id").rows == (("admin",), ("member",), ("admin",))
    tb.undo("@")
