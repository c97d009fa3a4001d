"""Connections that takeback knows nothing of."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from takeback.errors import StatementFailed
from tests.sql.statements import SCHEMA, Statement

if TYPE_CHECKING:
    import psycopg
    import pymysql


class PlainPostgres:
    """Connects again when it was thrown out."""

    def __init__(self, connect: "Callable[[], psycopg.Connection[Any]]") -> None:
        self._connect = connect
        self._connection = connect()

    def execute(self, statements: list[Statement]) -> None:
        import psycopg

        try:
            with self._open().transaction():
                for text, parameters in statements:
                    self._connection.execute(text, parameters or None)  # pyright: ignore
        except psycopg.Error as said:
            raise StatementFailed(str(said)) from said

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._open().execute(query).fetchall()  # pyright: ignore

    def empty(self) -> None:
        self.execute([(f"TRUNCATE {', '.join(table.name for table in SCHEMA)}", ())])

    def close(self) -> None:
        self._connection.close()

    def _open(self) -> "psycopg.Connection[Any]":
        if self._connection.closed:
            self._connection = self._connect()
        return self._connection


class PlainSqlite:
    """The SQLite of Python. Takeback uses another one, in a process of its own: never both in one process."""

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(file, isolation_level=None, timeout=120)
        self._connection.execute("PRAGMA foreign_keys = on")

    def execute(self, statements: list[Statement]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for text, parameters in statements:
                self._connection.execute(text, parameters)
            self._connection.execute("COMMIT")
        except sqlite3.Error as said:
            self._connection.execute("ROLLBACK")
            raise StatementFailed(str(said)) from said

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(query).fetchall()

    def empty(self) -> None:
        self._connection.execute("PRAGMA foreign_keys = off")
        self.execute([(f"DELETE FROM {table.name}", ()) for table in SCHEMA])
        self._connection.execute("PRAGMA foreign_keys = on")

    def close(self) -> None:
        self._connection.close()


class PlainMariaDB:
    def __init__(self, connect: "Callable[[], pymysql.Connection[Any]]") -> None:
        self._connection = connect()

    def execute(self, statements: list[Statement]) -> None:
        import pymysql

        try:
            with self._connection.cursor() as cursor:
                cursor.execute("START TRANSACTION")
                for text, parameters in statements:
                    cursor.execute(text, parameters or None)
            self._connection.commit()
        except pymysql.MySQLError as said:
            self._connection.rollback()
            raise StatementFailed(str(said)) from said

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def empty(self) -> None:
        """Only keys in foreign tables are in the way of any order."""
        off = [("SET foreign_key_checks = 0", ())]
        self.execute(
            [
                *off,
                *((f"DELETE FROM {table.name}", ()) for table in SCHEMA),
                ("SET foreign_key_checks = 1", ()),
            ]
        )

    def close(self) -> None:
        self._connection.close()
