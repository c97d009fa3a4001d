"""A SQLite store of an older format: read as it is, and rewritten by the first write.

Looking changes nothing, so an older takeback can still use a store that was only looked at: the tables of format 1 that
have changed since are read through views that give it those of today. The first write puts the new number into FORMAT,
so that an older takeback refuses the store by name, and then rewrites the tables in one transaction. A process that is
killed between the two leaves the older tables, which `user_version` shows; the next write continues.

Records are never rewritten. Those of formats 1 and 2 have no seals, and the hash of the newest of them stays what older
anchors know.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator

from takeback.storage.projects import derive

VERSION = 3
_BELONGING = 2  # the format since which effects belong to projects


def _columns(names: str, **others: str) -> dict[str, str]:
    """A table of today, and how each column is read from one of format 1: by its name, or as `others` say."""
    return {name: others.get(name, name) for name in names.split()}


_TALLY = _columns("name amount", amount="n")
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
    "tally": _TALLY | {"name": "CASE name WHEN 'kept' THEN 'accepted' ELSE name END"},
}
_TABLES_OF_2 = {"tally": _TALLY}

# Which format 1 has not; what is in them is derived from the targets of effects.
_NEW_TABLES = ("projects", "scopes")
# Which came with format 3: a table, and a trigger that is another one by the same name.
_REDACTION = ("redacting", "records_are_final")


def is_old(connection: sqlite3.Connection) -> bool:
    return _version(connection) < VERSION


def _version(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA main.user_version").fetchone()[0]


class OlderFormat:
    """For a connection to older tables. `state_format` writes FORMAT; `schema` gives the tables of today."""

    def __init__(self, state_format: Callable[[], None], schema: Callable[[], str]) -> None:
        self._state_format = state_format
        self._schema = schema

    def show(self, connection: sqlite3.Connection) -> None:
        """A temporary view hides the table of the same name from every statement that does not say `main.`."""
        connection.execute("PRAGMA temp_store=MEMORY")
        only_looking = connection.execute("PRAGMA query_only").fetchone()[0]
        connection.execute("PRAGMA query_only=0")
        older = _version(connection)
        for table, columns in _tables_of(older).items():
            shown = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
            connection.execute(f"CREATE TEMP VIEW {table} AS SELECT {shown} FROM main.{table}")
        if older < _BELONGING:
            for statement in _statements(self._schema(), *_NEW_TABLES):
                if found := re.search(rf"CREATE TABLE ({'|'.join(_NEW_TABLES)}) \(", statement):
                    connection.execute(statement.replace(found[0], f"CREATE TEMP TABLE {found[1]} (", 1))
            derive(connection)
        connection.execute(f"PRAGMA query_only={only_looking}")

    def hide(self, connection: sqlite3.Connection) -> None:
        shown = connection.execute(
            "SELECT type, name FROM temp.sqlite_schema WHERE type IN ('view', 'table')"
        )
        for kind, name in shown.fetchall():
            if name in _TABLES or name in _NEW_TABLES:
                connection.execute(f"DROP {kind} temp.{name}")

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
            older = _version(connection)
            if older < VERSION:
                for statement in self._steps(connection, older):
                    connection.execute(statement)
            if older < _BELONGING:
                derive(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _steps(self, connection: sqlite3.Connection, older: int) -> Iterator[str]:
        tables = _tables_of(older)
        named = ", ".join(f"'{table}'" for table in tables)
        parts = connection.execute(
            f"SELECT type, name FROM main.sqlite_schema WHERE tbl_name IN ({named}) AND type IN ('index', 'trigger')"
            " AND sql IS NOT NULL"
        ).fetchall()
        for kind, name in (*parts, ("trigger", "records_are_final")):
            yield f"DROP {kind} main.{name}"
        for table in tables:
            yield f"ALTER TABLE main.{table} RENAME TO older_{table}"
        made = _NEW_TABLES if older < _BELONGING else ()
        yield from _statements(self._schema(), *tables, *made, *_REDACTION)
        for table, columns in tables.items():
            yield (
                f"INSERT OR REPLACE INTO {table} ({', '.join(columns)})"
                f" SELECT {', '.join(columns.values())} FROM older_{table}"
            )
            yield f"DROP TABLE older_{table}"
        yield f"PRAGMA user_version = {VERSION}"


def _tables_of(older: int) -> dict[str, dict[str, str]]:
    return _TABLES if older < _BELONGING else _TABLES_OF_2


def _statements(schema: str, *names: str) -> Iterator[str]:
    """Those of the schema that make these tables and triggers, and what belongs to them."""
    wanted = re.compile(rf"(TABLE|TRIGGER|ON|INTO) ({'|'.join(names)})\b")
    statement = ""
    for line in schema.splitlines():
        if not statement and line.startswith("--"):
            continue
        statement += f"{line}\n"
        if sqlite3.complete_statement(statement):
            if wanted.search(statement):
                yield statement
            statement = ""
