"""The MariaDB adapter keeps the laws, killed anywhere too."""

import json
import re
from contextlib import closing

import pytest

from takeback.adapters.database import Keyring
from takeback.adapters.mariadb.adapter import MariaAdapter
from takeback.model.change import Change
from takeback.model.database import resource_of, to_json
from takeback.testing.adapter_suite import AdapterSuite
from tests.memory import MemoryBlobs

TABLES = (
    "CREATE TABLE people (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(40) UNIQUE, age DOUBLE)",
    "CREATE TABLE orders (no INT PRIMARY KEY, person INT, what BLOB,"
    " FOREIGN KEY (person) REFERENCES people (id) ON DELETE CASCADE)",
    "CREATE TABLE words (word VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY, count INT)",
    "CREATE TABLE lines_ (text VARCHAR(20))",
)
ROWS = (
    "DELETE FROM orders",
    "DELETE FROM people",
    "DELETE FROM words",
    "DELETE FROM lines_",
    "INSERT INTO people VALUES (1, 'ada', 36), (2, 'bob', 1.5), (3, 'cy', NULL)",
    "INSERT INTO orders VALUES (1, 1, 'tea'), (2, 2, x'00ff')",
    "INSERT INTO words VALUES ('one', 1), ('Two', 2)",
    "INSERT INTO lines_ VALUES ('a'), ('a'), ('b')",
)
# What is done, and what someone else does to the same thing.
SCRIPTS = {
    "update": (
        ["UPDATE people SET age = IFNULL(age, 0) + 1, name = UPPER(name)"],
        "UPDATE people SET age = 99 WHERE id = 1",
    ),
    "insert": (
        ["INSERT INTO people (id, name) VALUES (9, 'dora')"],
        "UPDATE people SET age = 99 WHERE name = 'dora'",
    ),
    "delete with cascade": (["DELETE FROM people WHERE id = 2"], "INSERT INTO people VALUES (2, 'eve', 1)"),
    "no number, no key": (
        [
            "UPDATE words SET word = 'ONE' WHERE word = 'one'",
            "DELETE FROM lines_ WHERE text = 'a' LIMIT 1",
            "INSERT INTO lines_ VALUES ('c')",
        ],
        "UPDATE words SET count = 7",
    ),
    "drop": (["DROP TABLE orders, lines_"], "CREATE TABLE orders (no INT)"),
    "create": (
        ["CREATE TABLE more (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES people (id))"],
        "INSERT INTO more VALUES (1, NULL)",
    ),
    "alter": (
        ["ALTER TABLE people DROP COLUMN age, ADD COLUMN born DATE, MODIFY name VARCHAR(90)"],
        "UPDATE people SET born = NOW() WHERE id = 1",
    ),
    "alter without a key": (["ALTER TABLE lines_ ADD COLUMN n INT"], "UPDATE lines_ SET n = 1"),
}
DEFINITIONS = ("drop", "create", "alter", "alter without a key")
NAMES = {"people", "orders", "words", "lines_", "more"}


class Scene:
    def __init__(self, database, name):
        self.blobs = MemoryBlobs()
        self._place = database
        self._keyring = Keyring()
        self._database = self._keyring.named(database.url)
        self._statements, self._disturbance = SCRIPTS[name]
        self._plain(TABLES)
        self.adapter().protect(self._database, ())
        self.reset()

    def _plain(self, statements):
        """Whoever was killed in the middle may hold its locks for a moment."""
        with closing(self._place.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SET innodb_lock_wait_timeout = 120")
            for statement in statements:
                cursor.execute(statement)

    def reset(self):
        if any("TABLE" in one for one in self._statements):
            with closing(self._place.connect()) as connection, connection.cursor() as cursor:
                cursor.execute("SHOW TABLES LIKE '\\_tb\\_%'")
                kinds = tuple(f"_tb_{kind}_" for kind in ("trash", "new", "try", "kept", "left"))
                left = [name for (name,) in cursor.fetchall() if name.startswith(kinds)]
            dropped = ", ".join([*NAMES, *left])
            self._plain(
                [
                    "SET foreign_key_checks = 0",
                    "DELETE FROM _tb_plan",
                    f"DROP TABLE IF EXISTS {dropped}",
                    "SET foreign_key_checks = 1",
                    *TABLES,
                ]
            )
            self.adapter().protect(self._database, ())
        self._plain(ROWS)

    def adapter(self):
        return MariaAdapter(self.blobs, self._keyring)

    def change(self):
        script = self.blobs.put(json.dumps([[one, []] for one in self._statements]).encode())
        args = {"database": to_json(self._database), "script": script}
        return Change("mariadb", "script", resource_of(self._database), "a script", args)

    def world(self):
        found = {}
        with closing(self._place.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW TABLES")
            for name in NAMES & {name for (name,) in cursor.fetchall()}:
                cursor.execute(f"SELECT * FROM {name}")
                rows = sorted(cursor.fetchall(), key=repr)
                cursor.execute(f"SHOW CREATE TABLE {name}")
                made = re.sub(r" AUTO_INCREMENT=\d+", "", cursor.fetchone()[1])
                found[name] = (made, rows)
        return found

    def disturb(self):
        self._plain([self._disturbance])


@pytest.mark.needs("mariadbd", "mariadb-install-db")
class TestMariaDB(AdapterSuite):
    stride = 997

    @pytest.fixture(params=["delete with cascade"])
    def scene(self, request, maria_database):
        return Scene(maria_database, request.param)


@pytest.mark.slow
@pytest.mark.needs("mariadbd", "mariadb-install-db")
class TestMariaDBWhole(AdapterSuite):
    stride = 397

    @pytest.fixture(params=[name for name in SCRIPTS if name not in DEFINITIONS])
    def scene(self, request, maria_database):
        return Scene(maria_database, request.param)


@pytest.mark.slow
@pytest.mark.needs("mariadbd", "mariadb-install-db")
class TestMariaDBDefinitions(AdapterSuite):
    """Made in several steps, of which one counts."""

    stride = 2503

    @pytest.fixture(params=["alter"])
    def scene(self, request, maria_database):
        return Scene(maria_database, request.param)


@pytest.mark.long
@pytest.mark.needs("mariadbd", "mariadb-install-db")
class TestMariaDBDefinitionsWhole(AdapterSuite):
    stride = 997

    @pytest.fixture(params=DEFINITIONS)
    def scene(self, request, maria_database):
        return Scene(maria_database, request.param)
