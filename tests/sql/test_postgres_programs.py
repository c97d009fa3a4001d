"""Programs with a driver of their own, in PostgreSQL."""

import os
import subprocess
import sys

import psycopg
import pytest

from takeback.errors import StoreBusy
from tests.sql.engines import intended

PROGRAM = """
import os, psycopg, sys
with psycopg.connect(sys.argv[1] if len(sys.argv) > 1 else os.environ["APP_DB"]) as connection:
    for number in range(10):
        connection.execute("update users set age = age + 1 where id = 1")
        connection.commit()
    connection.execute("delete from users where id = 2")
    connection.commit()
    connection.execute("delete from users")
    if os.environ.get("DIE"):
        os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("how", ["by PGOPTIONS", "by the variable of the address"])
def test_a_program_with_its_own_driver_is_one_effect(users, how, monkeypatch):
    monkeypatch.setenv("APP_DB", users.url)
    database = users.keyring.named("env:APP_DB" if "variable" in how else users.url)
    before = users.rows("select id, age from users order by id")
    adapter = users.adapter()
    effect = intended(adapter, database, "a program")
    variables = adapter.enter(effect)
    environment = os.environ | dict(variables) | {"DIE": "1"}
    if "variable" in how:
        environment.pop("PGOPTIONS")
    users.run("update users set name = 'by hand' where id = 3")

    subprocess.run(
        [sys.executable, "-c", PROGRAM, *([] if "variable" in how else [users.url])],
        env=environment,
        timeout=120,
        check=False,
    )
    receipt = users.adapter().leave(effect)

    assert receipt == {"tables": {"public.users": {"inserted": 0, "updated": 1, "deleted": 1}}, "schema": []}
    assert users.adapter().leave(effect) == receipt
    assert users.rows("select id, age from users order by id") == [(1, 40), (3, 50)]
    users.undo(effect)
    assert users.rows("select id, age from users order by id") == before
    assert users.rows("select name from users where id = 3") == [("by hand",)]


def test_a_program_cannot_do_what_has_no_way_back_nor_go_on_after_its_end(users):
    adapter = users.adapter()
    effect = intended(adapter, users.database, "a program")
    options = adapter.enter(effect)["PGOPTIONS"]
    with psycopg.connect(users.url, options=options, autocommit=True) as program:
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            program.execute("create extension hstore")
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            program.execute("create index concurrently on users (name)")
        program.execute("create temp table x (id int)")
        with program.transaction():
            program.execute("delete from users where id = 1")
            with pytest.raises(StoreBusy):
                users.adapter().leave(effect)
        assert users.adapter().leave(effect)["schema"] == []
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            program.execute("delete from users")
    users.undo(effect)
    assert users.rows("select count(*) from users") == [(3,)]


def test_a_program_that_changed_nothing_leaves_nothing(users):
    adapter = users.adapter()
    effect = intended(adapter, users.database, "a program")
    adapter.enter(effect)

    assert users.adapter().found(effect, ()) is None
    assert users.rows("select count(*) from takeback.op") == [(0,)]
