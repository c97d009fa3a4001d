"""The ordinary commands, with a store in PostgreSQL."""

import os
from pathlib import Path

import psycopg
import pytest

from tests.e2e.conftest import CommandLine
from tests.servers.postgres import PgDatabase


@pytest.fixture
def store(pg_database: PgDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("TAKEBACK_STORE", pg_database.url)
    monkeypatch.setenv("XDG_STATE_HOME", os.fspath(tmp_path / "state"))
    return pg_database.url


def test_looking_makes_no_store(takeback: CommandLine, store: str, pg_database: PgDatabase) -> None:
    for words in (["status"], ["log", "--json"]):
        said = takeback(*words)
        assert said.code == 3 and "no store" in said.out + said.err, said
    with pg_database.connect() as connection:
        assert connection.execute("select to_regnamespace('takeback_store')").fetchone() == (None,)


def test_a_file_is_written_and_taken_back_and_brought_again(takeback: CommandLine, store: str) -> None:
    path = Path(takeback.directory, "app.conf")
    path.write_text("before\n")
    effect = takeback.write(path, "after\n")
    assert path.read_text() == "after\n"
    assert [one["id"] for one in takeback.done("log", "--json").json] == [effect["id"]]
    takeback.done("undo")
    assert path.read_text() == "before\n"
    takeback.done("redo")
    assert path.read_text() == "after\n"
    assert takeback.done("diff", effect["id"]).out
    assert takeback.done("runs").out
    assert takeback.done("verify", "--read-data").code == 0


def test_no_password_is_shown(takeback: CommandLine, store: str) -> None:
    takeback.write("a", "1")
    for words in (
        ["status"],
        ["status", "--json"],
        ["doctor", "--json"],
        ["--store", store, "undo", "nobody"],
    ):
        said = takeback(*words)
        password = store.partition("//")[2].partition("@")[0].partition(":")[2]
        assert password and password not in said.out + said.err


def test_a_whole_tree_a_command_and_a_checkpoint(takeback: CommandLine, store: str) -> None:
    root = Path(takeback.directory)
    (root / "tree").mkdir()
    for number in range(20):
        (root / "tree" / f"{number}").write_bytes(os.urandom(100_000))
    before = {path.name: path.read_bytes() for path in (root / "tree").iterdir()}
    takeback.done("checkpoint", "start")
    takeback.done("rm", "tree")
    assert not (root / "tree").exists()
    takeback.done("run", "--", "sh", "-c", "echo made > made; exit 0")
    assert (root / "made").read_text() == "made\n"
    takeback.done("undo", "--to", "start")
    assert {path.name: path.read_bytes() for path in (root / "tree").iterdir()} == before
    assert not (root / "made").exists()
    assert takeback.done("checkpoints", "--json").json
    assert takeback.done("verify", "--read-data").code == 0


def test_what_is_forgotten_is_swept(takeback: CommandLine, store: str, pg_database: PgDatabase) -> None:
    Path(takeback.directory, "big").write_bytes(os.urandom(300_000))
    effect = takeback.write("big", "small")
    takeback.done("accept", effect["id"])
    takeback.done("forget", effect["id"])
    assert takeback.done("sweep", "--grace", "0", "--json").json
    with pg_database.connect() as connection:
        assert connection.execute("select count(*) from takeback_store.shelf").fetchone() == (0,)
    assert takeback("undo", effect["id"]).code == 3
    assert takeback.done("verify").code == 0


def test_settings_are_a_table(takeback: CommandLine, store: str, pg_database: PgDatabase) -> None:
    takeback.write("a", "1")
    with pg_database.connect() as connection:
        connection.execute("insert into takeback_store.settings values ('accepted_seconds', 7)")
    assert takeback.done("status", "--json").json["settings"]["accepted_seconds"] == 7
    with pg_database.connect() as connection:
        connection.execute("insert into takeback_store.settings values ('nonsense', 7)")
    said = takeback("status", "--json")
    assert said.code == 2
    assert "nonsense" in said.error["message"]


def test_two_stores_in_two_schemas_know_nothing_of_each_other(takeback: CommandLine, store: str) -> None:
    takeback.write("a", "1")
    other = f"{store}?schema=team_b"
    assert takeback("--store", other, "log", "--json").code == 3
    takeback.done("--store", other, "write", "b", input="2")
    assert len(takeback.done("--store", other, "log", "--json").json) == 1
    assert len(takeback.done("log", "--json").json) == 1
    assert takeback("--store", f"{store}?schema=takeback", "log").code == 2
    assert takeback("--store", f"{store}?schema=a;b", "log").code == 2


def test_a_newer_store_is_not_touched(takeback: CommandLine, store: str, pg_database: PgDatabase) -> None:
    takeback.write("a", "1")
    with pg_database.connect() as connection:
        connection.execute("update takeback_store.store set version = 99")
    said = takeback("status", "--json")
    assert said.code == 6
    assert "newer" in said.error["message"]


def test_a_server_that_is_not_there_is_told_in_a_sentence(takeback: CommandLine) -> None:
    said = takeback("--store", "postgresql://nobody@127.0.0.1:1/none", "status", "--json")
    assert said.code == 5
    assert "127.0.0.1" in said.error["message"]
    assert said.error["hint"]


def test_a_role_that_may_only_look_can_look(
    takeback: CommandLine, store: str, pg_database: PgDatabase
) -> None:
    takeback.write("a", "1")
    with psycopg.connect(store, autocommit=True) as connection:
        connection.execute(
            f"alter database {pg_database.name} set default_transaction_read_only = on".encode()
        )
    assert len(takeback.done("log", "--json").json) == 1
    assert takeback.done("status", "--json").json["read_only"]
    assert takeback("write", "b", input="2").code == 5
