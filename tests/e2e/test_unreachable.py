"""Going back over effects of which one cannot be reached: refused by name, or left where the rest may go."""

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import CommandLine
from tests.world import World

_ACTION = """
import takeback

@takeback.action(undo=lambda result: None)
def pay(amount):
    return amount
"""


def _file(takeback: CommandLine, content: str) -> None:
    takeback.done("write", "a", input=content)


def _read(world: World) -> str:
    return (Path(os.fspath(world.root)) / "a").read_text()


def _with_a_sqlite_file_that_goes(takeback: CommandLine, world: World) -> str:
    path = Path(os.fspath(world.root)) / "s.db"
    with sqlite3.connect(path) as connection:
        connection.executescript("CREATE TABLE t(a); INSERT INTO t VALUES(1)")
    connection.close()
    _file(takeback, "1")
    takeback.done("sql", "exec", "-q", f"sqlite:///{path}", "DELETE FROM t")
    _file(takeback, "2")
    path.unlink()
    return "There is no database at"


@pytest.fixture
def begun(takeback: CommandLine) -> CommandLine:
    _file(takeback, "0")
    takeback.done("checkpoint", "start")
    return takeback


def test_fresh_eyes_6_a_missing_file_of_sqlite_is_named_and_nothing_is_changed(
    begun: CommandLine, world: World
) -> None:
    why = _with_a_sqlite_file_that_goes(begun, world)
    name = begun.effect("@~1")["id"]

    for words in (("--to", "start", "--yes"), ("--since", "1h", "--yes"), ("@", "@~1", "@~2")):
        said = begun("undo", *words)
        assert said.code == 5 and why in said.err and name[:8] in said.err, said
        assert "--skip-conflicts" in said.err and "make one first" not in said.err
        assert _read(world) == "2"


def test_fresh_eyes_6_skipping_takes_back_the_rest_and_lists_what_stays(
    begun: CommandLine, world: World
) -> None:
    why = _with_a_sqlite_file_that_goes(begun, world)
    name = begun.effect("@~1")["id"]

    planned = begun("undo", "--to", "start", "--yes", "--skip-conflicts", "--dry-run")
    assert planned.code == 1 and why in planned.out + planned.err and _read(world) == "2"
    said = begun("undo", "--to", "start", "--yes", "--skip-conflicts")

    assert said.code == 1 and "Took back" in said.out and why in said.out and name[:8] in said.err, said
    assert _read(world) == "0"
    assert begun.effect(name)["state"] == "done"


def test_fresh_eyes_6_in_json_the_one_that_stays_has_failed(begun: CommandLine, world: World) -> None:
    _with_a_sqlite_file_that_goes(begun, world)
    name = begun.effect("@~1")["id"]

    told = begun("undo", "--since", "1h", "--yes", "--skip-conflicts", "--json").json

    assert told["outcome"] == "partial" and told["error"]["exit_code"] == 1
    assert [one["effect"] for one in told["targets"] if one["outcome"] == "failed"] == [name]
    assert begun.done("recover").code == 0


def test_fresh_eyes_6_a_server_that_is_down_is_left_and_the_rest_goes(
    begun: CommandLine, world: World, pg_database: Any
) -> None:
    connection = pg_database.connect()
    connection.execute("create table t (id int primary key)")
    connection.execute("insert into t values (1)")
    connection.commit()
    connection.close()
    begun.done("sql", "protect", "env:APP_DB", APP_DB=pg_database.url)
    begun.done("sql", "exec", "env:APP_DB", "DELETE FROM t", APP_DB=pg_database.url)
    _file(begun, "1")
    nobody = "postgresql://nobody@127.0.0.1:1/none"

    refused = begun("undo", "--to", "start", "--yes", APP_DB=nobody)
    assert refused.code == 5 and "DELETE FROM t" in refused.err and _read(world) == "1", refused
    said = begun("undo", "--to", "start", "--yes", "--skip-conflicts", APP_DB=nobody)

    assert said.code == 1 and _read(world) == "0", said
    assert begun.done("undo", APP_DB=pg_database.url).code == 0


def test_fresh_eyes_6_a_call_whose_function_is_gone_is_left_and_the_rest_goes(
    begun: CommandLine, world: World
) -> None:
    module = Path(os.fspath(world.root)) / "bank.py"
    module.write_text(_ACTION)
    script = (
        "import takeback, bank\nwith takeback.open() as tb, tb.run('pay') as run: run.call(bank.pay, 5)\n"
    )
    import subprocess
    import sys

    from tests.e2e.conftest import surroundings

    subprocess.run([sys.executable, "-c", script], cwd=world.root, env=surroundings(), check=True)
    _file(begun, "1")
    module.write_text("")

    refused = begun("undo", "--to", "start", "--yes")
    assert refused.code == 5 and "bank" in refused.err and _read(world) == "1", refused
    said = begun("undo", "--to", "start", "--yes", "--skip-conflicts", "--json")

    assert said.code == 1 and _read(world) == "0", said
    outcomes = {
        one["resource"].partition("://")[0]: one["outcome"] for one in json.loads(said.out)["targets"]
    }
    assert outcomes["file"] == "undone" and outcomes["call"] == "failed"
