"""A SQLite store of format 1: read through views that give it the tables of today, rewritten by the first write.

Looking changes nothing, so an older takeback can still use a store that was only looked at. The first write puts the
new number into FORMAT, so that an older takeback refuses the store by name, and then rewrites the tables in one
transaction. A process that is killed between the two leaves tables of format 1, which `user_version` shows; the next
write continues.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator

from takeback.storage.projects import derive

VERSION = 2


def _columns(names: str, **others: str) -> dict[str, str]:
    """A table of today, and how each column is read from one of format 1: by its name, or as `others` say."""
    return {name: others.get(name, name) for name in names.split()}


_TABLES = {
    "runs": _columns(
        "number id name agent state on_death opened_at closed_at key workflow due_at awaits note project",
        state="CASE state WHEN 'kept' THEN 'accepted' ELSE state END",
        on_death="CASE on_death WHEN 'keep' THEN 'accept' ELSE on_death END",
        project="''",
    ),
    "effects": _columns(
        "seq id run nth state told ended key undoes partial undone_by accepted_by forgotten pinned",
        accepted_by="kept_by",
        pinned="0",
    ),
    "tally": _columns("name n", name="CASE name WHEN 'kept' THEN 'accepted' ELSE name END"),
}

# Which format 1 has not; what is in them is derived from the targets of effects.
_NEW_TABLES = ("projects", "scopes")


def is_old(connection: sqlite3.Connection) -> bool:
    return connection.execute("PRAGMA main.user_version").fetchone()[0] < VERSION


class FormatOne:
    """For a connection to tables of format 1. `state_format` writes FORMAT; `schema` gives the tables of today."""

    def __init__(self, state_format: Callable[[], None], schema: Callable[[], str]) -> None:
        self._state_format = state_format
        self._schema = schema

    def show(self, connection: sqlite3.Connection) -> None:
        """A temporary view hides the table of the same name from every statement that does not say `main.`."""
        connection.execute("PRAGMA temp_store=MEMORY")
        only_looking = connection.execute("PRAGMA query_only").fetchone()[0]
        connection.execute("PRAGMA query_only=0")
        for table, columns in _TABLES.items():
            shown = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
            connection.execute(f"CREATE TEMP VIEW {table} AS SELECT {shown} FROM main.{table}")
        for statement in _statements(self._schema()):
            if found := re.search(rf"CREATE TABLE ({'|'.join(_NEW_TABLES)}) \(", statement):
                connection.execute(statement.replace(found[0], f"CREATE TEMP TABLE {found[1]} (", 1))
        derive(connection)
        connection.execute(f"PRAGMA query_only={only_looking}")

    def hide(self, connection: sqlite3.Connection) -> None:
        for table in _TABLES:
            connection.execute(f"DROP VIEW temp.{table}")
        for table in _NEW_TABLES:
            connection.execute(f"DROP TABLE temp.{table}")

    def upgrade(self, connection: sqlite3.Connection) -> None:
        """All of it or nothing; another process may be quicker."""
        self._state_format()
        self.hide(connection)
        try:
            self.rewrite(connection)
        except BaseException:
            self.show(connection)
            raise

    def rewrite(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            if is_old(connection):
                for statement in self._steps(connection):
                    connection.execute(statement)
                derive(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _steps(self, connection: sqlite3.Connection) -> Iterator[str]:
        named = ", ".join(f"'{table}'" for table in _TABLES)
        parts = connection.execute(
            f"SELECT type, name FROM main.sqlite_schema WHERE tbl_name IN ({named}) AND type IN ('index', 'trigger')"
            " AND sql IS NOT NULL"
        ).fetchall()
        for kind, name in parts:
            yield f"DROP {kind} main.{name}"
        for table in _TABLES:
            yield f"ALTER TABLE main.{table} RENAME TO format_1_{table}"
        yield from _statements(self._schema())
        for table, columns in _TABLES.items():
            yield (
                f"INSERT OR REPLACE INTO {table} ({', '.join(columns)})"
                f" SELECT {', '.join(columns.values())} FROM format_1_{table}"
            )
            yield f"DROP TABLE format_1_{table}"
        yield f"PRAGMA user_version = {VERSION}"


def _statements(schema: str) -> Iterator[str]:
    """Those of the schema that make these tables, and what belongs to them."""
    wanted = re.compile(rf"(TABLE|ON|INTO) ({'|'.join((*_TABLES, *_NEW_TABLES))})\b")
    statement = ""
    for line in schema.splitlines():
        if not statement and line.startswith("--"):
            continue
        statement += f"{line}\n"
        if sqlite3.complete_statement(statement):
            if wanted.search(statement):
                yield statement
            statement = ""
