"""A small table in a database of each engine, reached through the public API and, beside it, as anybody else would."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import takeback
from takeback.api import Takeback, opened_of
from tests.sql.pg_bench import PgBench

_SQLITE = (
    "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('pragma foreign_keys=on');"
    " c.executescript(sys.argv[2]); c.commit()"
)
SET_UP = (
    "CREATE TABLE users (id INTEGER PRIMARY KEY, name VARCHAR(40), role VARCHAR(40))",
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, usr INTEGER REFERENCES users (id) ON DELETE CASCADE, total INTEGER)",
    "INSERT INTO users VALUES (1, 'ann', 'member'), (2, 'bob', 'member'), (3, 'cid', 'admin')",
    "INSERT INTO orders VALUES (10, 1, 100), (11, 2, 200)",
)


class Shop(NamedTuple):
    """`mark` is how the driver writes a parameter; `outside` is somebody else's statement."""

    engine: str
    url: str
    mark: str
    outside: Callable[[str], None]


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    if request.param == "sqlite":
        made = sqlite_shop(tmp_path)
    elif request.param == "postgres":
        made = served(request.getfixturevalue("pg_database"), "postgres")
    else:
        made = served(request.getfixturevalue("maria_database"), "mariadb")
    for statement in SET_UP:
        made.outside(statement)
    return made


def sqlite_shop(tmp_path: Path) -> Shop:
    path = tmp_path / "shop.db"

    def outside(statement: str) -> None:
        subprocess.run([sys.executable, "-c", _SQLITE, os.fspath(path), statement], check=True)

    return Shop("sqlite", f"sqlite:///{path}", "?", outside)


def served(database: Any, engine: str) -> Shop:
    def outside(statement: str) -> None:
        connection = database.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
            connection.commit()
        finally:
            connection.close()

    return Shop(engine, database.url, "%s", outside)


@pytest.fixture
def tb(tmp_path: Path) -> Iterator[Takeback]:
    with takeback.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def protected(shop: Shop, tb: Takeback) -> Shop:
    from takeback.adapters.database import Databases

    database = opened_of(tb).parts.named(shop.url)
    adapter = opened_of(tb).parts.adapters[database.engine]
    assert isinstance(adapter, Databases)
    adapter.protect(database, ())
    return shop


@pytest.fixture
def bench(pg_each_covered: Any) -> Iterator[PgBench]:
    bench = PgBench(pg_each_covered.url, pg_each_covered.server.programs)
    yield bench
    bench.close()


@pytest.fixture
def users(bench: PgBench) -> PgBench:
    bench.run(
        "create table users (id int primary key, name text, age int)",
        "insert into users values (1, 'Ann', 30), (2, 'Bob', 40), (3, 'Cy', 50)",
    )
    bench.protect()
    return bench
