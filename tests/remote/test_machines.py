"""Several machines share a store, not their files: what one left is not settled by another."""

import os
from pathlib import Path

import pytest

import takeback
from takeback.model.run import RunState
from takeback.storage.postgres.store import PostgresStore
from tests.e2e.conftest import CommandLine
from tests.servers.postgres import PgDatabase

HOUR = 3600 * 1_000_000


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pg_database: PgDatabase) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", os.fspath(tmp_path / "state"))
    monkeypatch.setenv("TAKEBACK_STORE", pg_database.url)
    (tmp_path / "world").mkdir()
    return tmp_path / "world"


def test_what_another_machine_left_is_settled_there(
    world: Path, monkeypatch: pytest.MonkeyPatch, pg_database: PgDatabase
) -> None:
    monkeypatch.setenv("TAKEBACK_MACHINE", "one")
    with takeback.open(pg_database.url) as tb:
        run = tb.run("work")
        run.write(world / "file", b"new")
        assert isinstance(tb.store, PostgresStore)
        # Its process is gone with its machine, and its lease has run out.
        tb.store.server.read("UPDATE leases SET boot = 'another', started = '1', expires_at = 1")
    monkeypatch.setenv("TAKEBACK_MACHINE", "two")
    with takeback.open(pg_database.url) as tb:
        assert tb.dead_runs() == tb.recover() == ()
        assert [info.state for info in tb.runs()] == [RunState.OPEN]
    assert (world / "file").read_bytes() == b"new"
    monkeypatch.setenv("TAKEBACK_MACHINE", "one")
    with takeback.open(pg_database.url) as tb:
        assert [one.outcome for one in tb.recover()] == ["undone"]
        assert [info.state for info in tb.runs()] == [RunState.UNDONE]
    assert not (world / "file").exists()


def test_commands_of_two_machines_have_a_run_each(world: Path) -> None:
    command = CommandLine(os.fspath(world))
    for machine in ("one", "two", "one"):
        command.done("write", world / machine, input="x", TAKEBACK_MACHINE=machine)
    assert len(command.done("runs", "--json").json) == 2
