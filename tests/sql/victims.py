"""Databases to be killed."""

import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

from tests.servers.mariadb import MariaDatabase
from tests.servers.postgres import PgDatabase
from tests.servers.process import children
from tests.servers.redis import RedisDatabase
from tests.sql.killing import NUMBERS

_NUMBERS = range(1, NUMBERS)
TABLES = (
    "CREATE TABLE pool (n INTEGER NOT NULL PRIMARY KEY)",
    "CREATE TABLE mark (n INTEGER NOT NULL PRIMARY KEY, twice INTEGER)",
    "CREATE TABLE slot (n INTEGER NOT NULL PRIMARY KEY, value INTEGER)",
)
SQL = (
    "INSERT INTO mark (n, twice) VALUES ({n}, {n} * 2)",
    "DELETE FROM pool WHERE n = {n}",
    "UPDATE slot SET value = n WHERE n = {n}",
)


def fill(execute: Callable[[str], object]) -> None:
    for text in TABLES:
        execute(text)
    rows = ", ".join(f"({n})" for n in _NUMBERS)
    execute(f"INSERT INTO pool (n) VALUES {rows}")
    execute("INSERT INTO slot (n, value) SELECT n, 0 FROM pool")


def compared(query: Callable[[str], list[tuple[Any, ...]]]) -> dict[int, str]:
    """For each number that is not as at first: all three tables agree that it is there, or what they say."""
    pool = {n for (n,) in query("SELECT n FROM pool")}
    mark = {n for (n,) in query("SELECT n FROM mark WHERE twice = n * 2")}
    slot = {n for (n,) in query("SELECT n FROM slot WHERE value = n")}
    return told({n: (n in mark, n not in pool, n in slot) for n in _NUMBERS})


def told(signs: dict[int, tuple[bool, bool, bool]]) -> dict[int, str]:
    return {
        n: "there" if all(each) else "half: marked {}, out of the pool {}, in its slot {}".format(*each)
        for n, each in signs.items()
        if any(each)
    }


class PostgresVictim:
    statements = SQL

    def __init__(self, database: PgDatabase) -> None:
        self.database = database
        self.url, self.port = database.url, database.server.port

    def prepare(self) -> None:
        with closing(self.database.connect()) as connection:
            fill(connection.execute)  # pyright: ignore

    def seen(self) -> dict[int, str]:
        with closing(self.database.connect()) as connection:
            return compared(lambda text: connection.execute(text).fetchall())  # pyright: ignore

    def kill_server(self) -> None:
        self.database.server.kill()
        self.database.server.start()

    def kill_connection(self, chance: Random, client: int) -> None:
        for _ in range(20):
            with closing(self.database.connect()) as connection:
                others = connection.execute(
                    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
                    "AND backend_type = 'client backend' ORDER BY pid"
                ).fetchall()
            if others and self.database.server.kill_backend(chance.choice(others)[0]):
                return


class MariaVictim:
    statements = SQL

    def __init__(self, database: MariaDatabase) -> None:
        self.database = database
        self.url, self.port = database.url, database.server.port

    def prepare(self) -> None:
        with closing(self.database.connect()) as connection, connection.cursor() as cursor:
            fill(cursor.execute)

    def seen(self) -> dict[int, str]:
        with closing(self.database.connect()) as connection, connection.cursor() as cursor:

            def query(text: str) -> list[tuple[Any, ...]]:
                cursor.execute(text)
                return list(cursor.fetchall())

            return compared(query)

    def kill_server(self) -> None:
        self.database.server.kill()
        self.database.server.start()

    def kill_connection(self, chance: Random, client: int) -> None:
        import pymysql

        with closing(self.database.server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT id FROM information_schema.processlist WHERE db = %s", (self.database.name,)
            )
            others = sorted(cursor.fetchall())
            if others:
                try:
                    cursor.execute(f"KILL {chance.choice(others)[0]}")
                except pymysql.OperationalError:
                    return  # it went by itself


class SqliteVictim:
    """Without a server; what takeback starts to work on the file in a process of its own counts as the connection."""

    statements = SQL
    port = None

    def __init__(self, file: Path) -> None:
        self.file = file
        self.url = f"sqlite:///{file}"

    def prepare(self) -> None:
        with closing(sqlite3.connect(self.file)) as connection:
            connection.execute("PRAGMA journal_mode = wal")
            fill(connection.execute)
            connection.commit()

    def seen(self) -> dict[int, str]:
        with closing(sqlite3.connect(self.file, timeout=120)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            return compared(lambda text: connection.execute(text).fetchall())

    def kill_server(self) -> None:
        raise AssertionError("there is none")

    def kill_connection(self, chance: Random, client: int) -> None:
        for pid in children(client):
            with suppress(ProcessLookupError):  # it went by itself
                os.kill(pid, signal.SIGKILL)


class RedisVictim:
    statements = ("SET mark:{n} {n}", "DEL pool:{n}", "INCRBY slot:{n} {n}")

    def __init__(self, database: RedisDatabase) -> None:
        self.database = database
        self.url, self.port = database.url, database.server.port

    def prepare(self) -> None:
        with closing(self.database.connect()) as connection:
            connection.mset({f"pool:{n}": "1" for n in _NUMBERS})
            connection.mset({f"slot:{n}": "0" for n in _NUMBERS})

    def seen(self) -> dict[int, str]:
        with closing(self.database.connect()) as connection:

            def values(kind: str) -> list[Any]:
                return list(connection.mget([f"{kind}:{n}" for n in _NUMBERS]))  # pyright: ignore

            each = zip(_NUMBERS, values("mark"), values("pool"), values("slot"), strict=True)
            return told(
                {n: (mark is not None, pool is None, slot == b"%d" % n) for n, mark, pool, slot in each}
            )

    def kill_server(self) -> None:
        self.database.server.kill()
        self.database.server.start()

    def kill_connection(self, chance: Random, client: int) -> None:
        import redis

        with closing(self.database.server.connect()) as connection:
            others = [
                one["addr"] for one in connection.client_list() if one["db"] == str(self.database.number)
            ]
            with suppress(redis.ResponseError, IndexError):  # it went by itself, or there is none
                connection.execute_command("CLIENT", "KILL", "ADDR", chance.choice(sorted(others)))
