"""Rows that somebody else has: what takeback holds for a decision is waited for a while, then named; an undo waits for
nobody longer. Nothing is changed then."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import takeback
from takeback.adapters.postgres import patient_connection
from takeback.api import Takeback, opened_of
from takeback.api.upkeep import needs_recovery
from takeback.errors import RowsHeld
from takeback.model.database import Holder
from takeback.model.ids import short
from tests.servers.process import wait_until
from tests.sql.conftest import SET_UP, Shop, served
from tests.sql.test_run_sql import USERS, users

ADMIN = "UPDATE users SET role = 'admin' WHERE id = 1"
ROOT = "UPDATE users SET role = 'root' WHERE id = 1"


@pytest.fixture
def tb(tmp_path: Path) -> Iterator[Takeback]:
    with takeback.open(tmp_path / "store"):
        pass
    (tmp_path / "store" / "settings.json").write_text(json.dumps({"lock_seconds": 1}))
    with takeback.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def preparing(postgres_prepared, tb: Takeback) -> Iterator[Shop]:
    """A server that holds what was prepared, whoever ends."""
    database = postgres_prepared.fresh()
    shop = served(database, "postgres")
    for statement in SET_UP:
        shop.outside(statement)
    named = opened_of(tb).parts.named(shop.url)
    opened_of(tb).parts.adapters["postgres"].protect(named, ())  # pyright: ignore
    yield shop
    database.drop()


def test_a_statement_does_not_wait_for_ever_for_what_is_held(tb: Takeback, protected: Shop) -> None:
    with tb.run("agent") as run:
        held = run.sql(protected.url, hold=True).execute(ADMIN).effect
        assert held
        with tb.run("other") as other, pytest.raises(RowsHeld, match=short(held.id)) as refused:
            other.sql(protected.url).execute(ROOT)
        assert refused.value.exit_code == 5 and "Nothing was changed" in refused.value.hint
        assert users(tb, protected) == USERS
        run.discard(held)
    with tb.run("other") as other:
        other.sql(protected.url).execute(ROOT)  # nobody has it any more
    assert users(tb, protected)[0] == (1, "ann", "root")


def test_one_that_is_to_be_held_too_does_not_wait_for_ever(tb: Takeback, protected: Shop) -> None:
    with tb.run("agent") as run:
        held = run.sql(protected.url, hold=True).execute(ADMIN).effect
        assert held
        with tb.run("other") as other, pytest.raises(RowsHeld, match=short(held.id)):
            other.sql(protected.url, hold=True).execute(ROOT)
        run.apply(held)
    assert users(tb, protected)[0] == (1, "ann", "admin")


def test_an_undo_names_what_is_held(tb: Takeback, protected: Shop) -> None:
    with tb.run("agent") as run:
        first = run.sql(protected.url).execute(ROOT).effect
    assert first
    with tb.run("agent") as run:
        held = run.sql(protected.url, hold=True).execute("UPDATE users SET name = 'x' WHERE id = 1").effect
        assert held
        with pytest.raises(RowsHeld, match=short(held.id)):
            tb.undo(first)
        assert users(tb, protected)[0] == (1, "ann", "root")
        assert tb.effect(first.id).state == "done" and not needs_recovery(opened_of(tb))
        run.discard(held)
    tb.undo(first)
    assert users(tb, protected) == USERS


def test_what_the_database_holds_is_told_with_the_two_ways_out(tb: Takeback, preparing: Shop) -> None:
    with tb.run("agent") as run:
        held = run.sql(preparing.url, hold=True).execute(ADMIN).effect
    assert held and held.phase.reviewed.how == "prepared"
    name = short(held.id)
    with tb.run("other") as other, pytest.raises(RowsHeld, match=name) as refused:
        other.sql(preparing.url).execute(ROOT)
    assert f"takeback apply {name}" in refused.value.hint and f"takeback discard {name}" in refused.value.hint
    with pytest.raises(RowsHeld, match=name), tb.run("other") as other:
        other.sql(preparing.url).execute("ALTER TABLE users ADD COLUMN more INTEGER")
    tb.apply(held)
    assert users(tb, preparing)[0] == (1, "ann", "admin")


@pytest.mark.parametrize("shop", ["postgres", "mariadb"], indirect=True)
def test_a_transaction_of_an_application_stops_an_undo_in_time(
    tb: Takeback, protected: Shop, request: pytest.FixtureRequest
) -> None:
    with tb.run("agent") as run:
        first = run.sql(protected.url).execute(ROOT).effect
    assert first
    told: list[str] = []
    tb.tell = told.append
    database = request.getfixturevalue("pg_database" if protected.engine == "postgres" else "maria_database")
    application = database.connect()
    application.cursor().execute("BEGIN")
    application.cursor().execute("UPDATE users SET name = 'other' WHERE id = 1")
    with pytest.raises(RowsHeld, match="others are at work on the same rows") as refused:
        tb.undo(first)
    assert "Nothing was changed" in refused.value.hint
    assert protected.engine == "mariadb" or told[0].startswith("waiting for ")
    application.cursor().execute("ROLLBACK")
    application.close()
    assert not needs_recovery(opened_of(tb))
    tb.undo(first)
    assert users(tb, protected) == USERS


@pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_for_whom_a_sqlite_file_is_waited_is_told(tb: Takeback, protected: Shop, journal: str) -> None:
    with tb.run("agent") as run:
        first = run.sql(protected.url).execute(ROOT).effect
    assert first
    told: list[str] = []
    tb.tell = told.append
    application = sqlite3.connect(protected.url.removeprefix("sqlite:///"), isolation_level=None)
    application.execute(f"PRAGMA journal_mode = {journal}")
    application.execute("BEGIN IMMEDIATE")
    process = rf"\(process {os.getpid()}\)"
    with pytest.raises(RowsHeld, match=process) as refused:
        tb.undo(first)
    assert "Nothing was changed" in refused.value.hint and "lock_seconds" in refused.value.hint
    with tb.run("other") as other, pytest.raises(RowsHeld, match=process):
        other.sql(protected.url).execute(ADMIN)
    application.execute("ROLLBACK")
    application.close()
    assert len(told) == 2 and all(re.fullmatch(rf"waiting for \S+ {process}", one) for one in told), told
    tb.undo(first)
    assert users(tb, protected) == USERS


@pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
def test_what_is_held_in_a_sqlite_file_is_told_by_its_effect(tb: Takeback, protected: Shop) -> None:
    told: list[str] = []
    tb.tell = told.append
    with tb.run("agent") as run:
        held = run.sql(protected.url, hold=True).execute(ADMIN).effect
        assert held
        with tb.run("other") as other, pytest.raises(RowsHeld, match=short(held.id)):
            other.sql(protected.url).execute(ROOT)
        run.discard(held)
    assert told == [f"waiting for effect {short(held.id)}, which is held for a decision"]


@pytest.mark.parametrize("shop", ["postgres"], indirect=True)
def test_a_statement_waits_for_an_application_as_any_client_does(
    tb: Takeback, protected: Shop, pg_database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than for what is held: until the application has ended. Only for its triggers a run does not wait so
    long."""
    application = pg_database.connect()
    looks: list[Holder | None] = []
    found = patient_connection._holder  # pyright: ignore[reportPrivateUsage]

    def look(*given: Any) -> Holder | None:
        looks.append(found(*given))
        if len(looks) == 3:
            application.execute("ROLLBACK")
        return looks[-1]

    monkeypatch.setattr(patient_connection, "_holder", look)
    with tb.run("agent") as run:
        db = run.sql(protected.url)
        db.execute("UPDATE users SET name = name WHERE id = 2")
        application.execute("BEGIN")
        application.execute("UPDATE users SET name = 'other' WHERE id = 1")
        db.execute(ROOT)
    application.close()
    assert looks[0] and not looks[0].effect and "idle in transaction" in looks[0].session
    assert users(tb, protected)[0] == (1, "ann", "root")


_WAITS = """
import sys, takeback
with takeback.open(sys.argv[1]) as tb, tb.run("waits") as run:
    run.sql(sys.argv[2]).execute(sys.argv[3])
"""


def test_one_that_is_killed_while_it_waits_never_happened(
    tb: Takeback, preparing: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAKEBACK_SQL", preparing.url)  # the store keeps no password
    with tb.run("agent") as run:
        held = run.sql(preparing.url, hold=True).execute(ADMIN).effect
    assert held
    (Path(tb.path) / "settings.json").write_text(json.dumps({"lock_seconds": 0}))
    waits = subprocess.Popen([sys.executable, "-c", _WAITS, tb.path, preparing.url, ROOT])
    try:
        with psycopg.connect(preparing.url, autocommit=True) as witness:
            waiting = "select 1 from pg_locks where not granted"
            wait_until(lambda: bool(witness.execute(waiting).fetchall()), "it waits for a lock")
    finally:
        waits.kill()
        waits.wait()
    with takeback.open(tb.path) as again:
        (settled,) = again.recover()
        assert settled.outcome == "aborted", settled
        again.apply(held)
        assert users(again, preparing)[0] == (1, "ann", "admin")
