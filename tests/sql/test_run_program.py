"""`takeback run --sql`: how the program gets to its database."""

import os
import sys
from contextlib import closing
from pathlib import Path

import pytest

from takeback.adapters.postgres.connection import by_socket
from tests.e2e.conftest import CommandLine
from tests.servers.postgres import PgDatabase
from tests.world import World

PROGRAM = (
    "import os, psycopg; psycopg.connect(os.environ['APP_DB'], autocommit=True).execute('UPDATE t SET v = 2')"
)


@pytest.mark.parametrize(
    ("url", "host", "yes"),
    [
        ("postgresql:///app", "", True),
        ("postgresql:///app", "db.example.org", False),
        ("postgresql://ann@/app?host=/run/postgresql", "", True),
        ("postgresql://ann@%2Frun%2Fpostgresql/app", "", True),
        ("postgresql://ann@db:5432/app", "", False),
        ("postgresql://ann@db/app?host=/run", "", True),
        ("postgresql:///app?hostaddr=127.0.0.1", "", False),
    ],
)
def test_whether_an_address_leads_through_a_socket(
    url: str, host: str, yes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGHOST", host)
    assert by_socket(url) is yes


@pytest.mark.parametrize("way", ["network", "socket"])
def test_a_program_reaches_its_server(
    way: str, pg_database: PgDatabase, world: World, tmp_path: Path
) -> None:
    server, takeback = pg_database.server, CommandLine(os.fspath(world.root))
    socket = f"postgresql://postgres@/{pg_database.name}?host={server.directory}&port={server.port}"
    url = pg_database.url if way == "network" else socket
    with closing(pg_database.connect()) as people:
        people.execute("CREATE TABLE t (v int)")
        people.execute("INSERT INTO t VALUES (1)")
        takeback.done("sql", "protect", "env:APP_DB", APP_DB=url)
        said = takeback.done("run", "--sql", "env:APP_DB", "--", sys.executable, "-c", PROGRAM, APP_DB=url)
        assert ("outside a sandbox" in said.err) is (way == "socket")
        assert people.execute("SELECT v FROM t").fetchall() == [(2,)]
        takeback.done("undo", APP_DB=url)
        assert people.execute("SELECT v FROM t").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("way", "says"),
    [("undo", "its changes to files were not recorded."), ("leave", "and what it changed stays.")],
)
def test_nothing_is_claimed_that_was_not_looked_at(way: str, says: str, world: World) -> None:
    """A program that fails, outside a sandbox: it has written a file."""
    takeback = CommandLine(os.fspath(world.root))
    script = (
        "import sqlite3, sys; c = sqlite3.connect('app.db'); c.execute('CREATE TABLE t (v)'); c.commit();"
        " open('left', 'w').close(); sys.exit(3)"
    )
    Path(takeback.directory, "app.db").touch()
    said = takeback(
        "run", "--sql", "sqlite:///app.db", "--on-failure", way, "--", sys.executable, "-c", script
    )
    assert said.code == 3 and says in said.err and "nothing was changed" not in said.err
    assert Path(takeback.directory, "left").exists()


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        (("--ask",), "takeback sql exec --hold"),
        (("--hold",), "takeback sql exec --hold"),
        (("--on-failure", "hold"), "--on-failure leave"),
        (("--dry-run",), "takeback sql exec --dry-run"),
        (("--in-place",), "--in-place records files"),
        (("--no-network",), "Use one of the two"),
    ],
)
def test_what_does_not_go_with_sql_names_what_does(
    option: tuple[str, ...], instead: str, world: World
) -> None:
    said = CommandLine(os.fspath(world.root))("run", "--sql", "sqlite:///app.db", *option, "--", "true")
    assert f"{' '.join(option)} does not go with --sql." in said.err
    assert instead in said.err and "--hold," not in said.err and said.code == 125
