"""The SQLite adapter keeps the laws: for changes of rows and of tables, with a rollback journal and with WAL."""

import json
import os
import sqlite3

import pytest

from takeback.adapters.database import Keyring
from takeback.adapters.sqlite.adapter import SqliteAdapter
from takeback.model.change import Change
from takeback.model.database import resource_of, to_json
from takeback.testing.adapter_suite import AdapterSuite
from tests.memory import MemoryBlobs

SET_UP = """
    CREATE TABLE people (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, age);
    CREATE TABLE orders (no INTEGER PRIMARY KEY, person REFERENCES people ON DELETE CASCADE, what);
    CREATE TABLE words (word TEXT COLLATE NOCASE PRIMARY KEY, count) WITHOUT ROWID;
    INSERT INTO people (name, age) VALUES ('ada', 36), ('bob', 1.5), ('cy', NULL);
    INSERT INTO orders VALUES (1, 1, 'tea'), (2, 2, X'00ff');
    INSERT INTO words VALUES ('one', 1), ('Two', 2);
"""
# What is done, and what someone else does to the same thing.
SCRIPTS = {
    "update": (
        ["UPDATE people SET age = age + 1, name = upper(name)"],
        "UPDATE people SET age = 99 WHERE id = 1",
    ),
    "insert": (
        ["INSERT INTO people (name) VALUES ('dora')"],
        "UPDATE people SET age = 99 WHERE name = 'dora'",
    ),
    "delete with cascade": (
        ["PRAGMA foreign_keys = ON", "DELETE FROM people WHERE id = 2"],
        "INSERT INTO people VALUES (2, 'eve', 1)",
    ),
    "without rowid": (
        ["UPDATE words SET word = 'ONE' WHERE word = 'one'", "DELETE FROM words WHERE word = 'two'"],
        "UPDATE words SET count = 7",
    ),
    "tables": (
        [
            "DROP TABLE orders",
            "CREATE TABLE notes (n)",
            "INSERT INTO notes VALUES (1)",
            "ALTER TABLE words ADD COLUMN x DEFAULT 3",
            "CREATE INDEX by_age ON people (age)",
            "PRAGMA user_version = 7",
        ],
        "INSERT INTO notes VALUES (2)",
    ),
}


class Scene:
    def __init__(self, directory, name, mode):
        self.blobs = MemoryBlobs()
        self._keyring = Keyring()
        self._directory = directory
        self._statements, self._disturbance = SCRIPTS[name]
        self._mode = mode
        self.reset()

    def reset(self):
        """Another file each time: whoever was killed may have left a process that has the last one open."""
        self._file = self._directory / str(len(os.listdir(self._directory))) / "app.db"
        self._file.parent.mkdir()
        self._database = self._keyring.named(f"sqlite:///{self._file}")
        # The log is there from the start: that it is made is not part of the world.
        with self._plain() as connection:
            connection.execute(f"PRAGMA journal_mode = {self._mode}")
            connection.executescript(SET_UP)
        adapter = self.adapter()
        adapter.protect(self._database, ())
        adapter.close()

    def _plain(self):
        return Plain(self._file)

    def adapter(self):
        return SqliteAdapter(self.blobs, self._keyring)

    def change(self):
        script = self.blobs.put(json.dumps([[one, []] for one in self._statements]).encode())
        args = {"database": to_json(self._database), "script": script}
        return Change("sqlite", "script", resource_of(self._database), "a script", args)

    def world(self):
        with self._plain() as connection:
            schema = connection.execute(
                "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'takeback%' ORDER BY 1, 2"
            ).fetchall()
            rows = {
                name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
                for kind, name, _ in schema
                if kind == "table"
            }
            version = connection.execute("PRAGMA user_version").fetchone()
        return {"schema": schema, "rows": rows, "version": version}

    def disturb(self):
        with self._plain() as connection:
            connection.execute(self._disturbance)


class Plain:
    """Someone else, with the sqlite3 of Python."""

    def __init__(self, file):
        self._file = file

    def __enter__(self):
        self._connection = sqlite3.connect(self._file, timeout=120)
        return self._connection

    def __exit__(self, *error):
        self._connection.commit()
        self._connection.close()


class TestSqlite(AdapterSuite):
    stride = 401

    @pytest.fixture(params=[("update", "delete"), ("tables", "wal")], ids="-".join)
    def scene(self, request, tmp_path):
        return Scene(tmp_path, *request.param)


@pytest.mark.slow
class TestSqliteWhole(AdapterSuite):
    stride = 67

    @pytest.fixture(params=[(name, mode) for name in SCRIPTS for mode in ("delete", "wal")], ids="-".join)
    def scene(self, request, tmp_path):
        return Scene(tmp_path, *request.param)
