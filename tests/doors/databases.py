"""Doors to databases: single statements, transactions, held ones, programs with a driver of their own."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import takeback
from takeback.adapters.database import Databases
from takeback.api import opened_of
from takeback.testing.door_suite import FAILED, INTENT, ONLOOKER, TWICE, DoorScene
from tests.doors.files import APPLIED, BY_ITSELF, NO_KEY
from tests.servers.process import PASSWORD
from tests.sql.pg_bench import PgBench
from tests.sql.redis_cases import Case
from tests.sql.redis_world import picture, send
from tests.sql.sqlite_world import World
from tests.sql.test_mariadb_matrix import Bench

TABLES = (
    "CREATE TABLE people (id INT PRIMARY KEY, name VARCHAR(40), age INT)",
    "CREATE TABLE orders (no INT PRIMARY KEY, person INT, what VARCHAR(20),"
    " FOREIGN KEY (person) REFERENCES people (id) ON DELETE CASCADE)",
    "CREATE TABLE scraps (what VARCHAR(20), many INT)",
    "INSERT INTO people VALUES (1, 'ann', 36), (2, 'bob', NULL), (3, 'cy', 7)",
    "INSERT INTO orders VALUES (1, 1, 'tea'), (2, 2, 'ink'), (3, 2, 'wax')",
    "INSERT INTO scraps VALUES ('a', 1), ('a', 1), ('b', 2)",
)
STAYS = "what a watched program did is recorded and stays"
_LOCKED = "who reads the table waits until the commit"
_LOCKS = {INTENT: _LOCKED, ONLOOKER: _LOCKED}


class Server(NamedTuple):
    """One database, and what anybody else does there."""

    engine: str
    url: str
    world: Callable[[], Any]
    plain: Callable[[Sequence[str]], None]


class Story(NamedTuple):
    name: str
    statements: tuple[str, ...]
    disturb: str
    exempt: Mapping[str, str] = {}
    given: tuple[str, ...] = ()  # more that is there before


CASCADE = Story(
    "delete with cascade", ("DELETE FROM people WHERE id = 2",), "INSERT INTO people VALUES (2, 'eve', 1)"
)
UPDATE = Story(
    "update", ("UPDATE people SET age = 1 WHERE id < 3",), "UPDATE people SET age = 99 WHERE id = 1"
)
INSERT = Story(
    "insert", ("INSERT INTO people VALUES (9, 'dora', 3)",), "UPDATE people SET age = 98 WHERE id = 9"
)
SCRAPS = Story(
    "rows without a key",
    ("UPDATE scraps SET many = 5 WHERE what = 'a'",),
    "DELETE FROM scraps WHERE many = 5",
)
ALTER = Story(
    "alter",
    ("ALTER TABLE people ADD COLUMN born DATE",),
    "UPDATE people SET born = '2020-02-02' WHERE id = 1",
    _LOCKS,
)
TRUNCATE = Story("truncate", ("TRUNCATE people CASCADE",), "INSERT INTO people VALUES (2, 'eve', 1)", _LOCKS)
SEVERAL = Story(
    "several statements",
    ("UPDATE people SET name = 'x' WHERE id = 1", "DELETE FROM orders WHERE no = 2", *INSERT.statements),
    INSERT.disturb,
)

Make = Callable[["DatabaseDoor", takeback.Run, str], Any]


def statement(scene: "DatabaseDoor", run: takeback.Run, key: str) -> Any:
    (text,) = scene.statements
    with scene.opened(run) as db:
        return db.execute(text, key=key).effect


def transaction(scene: "DatabaseDoor", run: takeback.Run, key: str) -> Any:
    with scene.opened(run) as db, db.transaction("several", key=key) as made:
        for text in scene.statements:
            db.execute(text)
    return made.effect


def reviewed(scene: "DatabaseDoor", run: takeback.Run, key: str) -> Any:
    with scene.opened(run, review=True) as db:
        with db.transaction("several", key=key) as made:
            for text in scene.statements:
                db.execute(text)
        run.apply(made.effect)
    return next(one for one in run.effects() if one.id == made.effect.id)


def program(scene: "DatabaseDoor", run: takeback.Run, key: str) -> Any:
    with run.program(scene.address, summary="a program") as seen:
        words = [sys.executable, "-c", _DRIVERS[scene.engine], *scene.statements]
        subprocess.run(words, env={**os.environ, **seen.environment}, check=True)
    (effect,) = seen.effects
    return effect


_CONNECTED = "for text in sys.argv[1:]:\n    cursor.execute(text)\nconnection.commit()\nconnection.close()\n"
_DRIVERS = {
    "postgres": "import os, psycopg, sys\nconnection = psycopg.connect(os.environ['APP_DB'])\n"
                "cursor = connection.cursor()\n" + _CONNECTED,
    "mariadb": "import os, pymysql, sys\nfrom urllib.parse import unquote, urlsplit\n"
               "url = urlsplit(os.environ['APP_DB'])\nconnection = pymysql.connect(host=url.hostname, port=url.port,"
               " user=url.username, password=unquote(url.password), database=url.path[1:])\n"
               "cursor = connection.cursor()\n" + _CONNECTED,
    "sqlite": "import os, sqlite3, sys\nconnection = sqlite3.connect(os.environ['APP_DB'].removeprefix('sqlite:///'))\n"
              "cursor = connection.cursor()\ncursor.execute('PRAGMA foreign_keys = on')\n" + _CONNECTED,
}  # fmt: skip
_WAYS: dict[Make, tuple[str, Mapping[str, str]]] = {
    statement: ("one statement", {}),
    transaction: ("a transaction", {}),
    reviewed: ("a transaction that is held and applied", {FAILED: APPLIED}),
    program: ("a program with its own driver", {TWICE: NO_KEY, ONLOOKER: BY_ITSELF, FAILED: STAYS}),
}


class DatabaseDoor(DoorScene):
    """One engine, one way to reach it, one story."""

    secret = PASSWORD
    address = "env:APP_DB"

    def __init__(self, place: Path, server: Server, make: Make, story: Story) -> None:
        way, exempt = _WAYS[make]
        self.engine, self.door = server.engine, f"{server.engine}, {way}"
        self.exempt = {**exempt, **story.exempt}
        self.store = os.fspath(place / "store")
        self.statements, self._disturbance = story.statements, story.disturb
        self._server, self._make, self._given = server, make, story.given
        if server.engine == "sqlite":
            self.secret = ""
        os.environ["APP_DB"] = server.url  # each test has surroundings of its own
        self._set_up()

    def _set_up(self) -> None:
        self._server.plain([*TABLES, *self._given])
        with takeback.open(self.store) as tb:
            adapter = opened_of(tb).parts.adapters[self.engine]
            assert isinstance(adapter, Databases)
            adapter.protect(opened_of(tb).parts.named(self.address), ())

    @contextmanager
    def opened(self, run: takeback.Run, review: bool = False) -> Iterator[Any]:
        with run.sql(self.address, hold=review) as db:
            if self.engine == "sqlite":
                db.execute("PRAGMA foreign_keys = on")
            yield db

    def make(self, run: takeback.Run, key: str) -> takeback.Effect:
        effect = self._make(self, run, key)
        assert effect is not None
        return effect

    def world(self) -> Any:
        return self._server.world()

    def disturb(self) -> None:
        self._server.plain([self._disturbance])


class RedisDoor(DatabaseDoor):
    def __init__(self, place: Path, database: Any, make: Make, case: Case) -> None:
        self._database, self.case = database, case
        server = Server("redis", database.url, self._picture, lambda statements: None)
        super().__init__(place, server, make, Story(case.name, (), ""))

    def _set_up(self) -> None:
        with closing(self._database.connect()) as client:
            send(client, self.case.before)

    def make(self, run: takeback.Run, key: str) -> takeback.Effect:
        commands = [(words[0], words[1:]) for words in self.case.commands]
        with run.sql(self.address) as db:
            if self._make is statement:
                ((word, rest),) = commands
                effect = db.execute(word, rest, key=key).effect
            else:
                with db.transaction("several", key=key) as made:
                    for word, rest in commands:
                        db.execute(word, rest)
                effect = made.effect
        assert effect
        return effect

    def _picture(self) -> Any:
        with closing(self._database.connect()) as client:
            return picture(client)

    def disturb(self) -> None:
        with closing(self._database.connect()) as client:
            send(client, self.case.disturb)


def sqlite_server(place: Path, mode: str = "wal") -> Server:
    world = World(place / "app.db", mode)
    world.make("")

    def plain(statements: Sequence[str]) -> None:
        with closing(sqlite3.connect(world.file, timeout=120, isolation_level=None)) as connection:
            for each in statements:
                connection.execute(each)

    return Server("sqlite", f"sqlite:///{world.file}", world.state, plain)


def _seen(bench: PgBench) -> Any:
    """With what no trigger sees."""
    unseen = (
        "select loid, pageno, data from pg_largeobject order by 1, 2",
        "select rolname from pg_roles where rolname like '%nobody' order by 1",
    )
    return bench.world(), [bench.rows(query) for query in unseen]


@contextmanager
def served(request: pytest.FixtureRequest, place: Path, engine: str) -> Iterator[Server]:
    if engine.startswith("sqlite"):
        yield sqlite_server(place, "delete" if "delete" in engine else "wal")
    elif engine == "postgres":
        bench = PgBench(request.getfixturevalue("pg_database").url)
        yield Server("postgres", bench.url, lambda: _seen(bench), lambda statements: bench.run(*statements))
        bench.close()
    else:
        maria = Bench(request.getfixturevalue("maria_database"))
        yield Server("mariadb", maria.place.url, maria.world, maria.plain)


class Door(NamedTuple):
    engine: str
    make: Make
    story: Story

    def __str__(self) -> str:
        return f"{self.engine}, {_WAYS[self.make][0]}: {self.story.name}"


def door_of(request: pytest.FixtureRequest, place: Path) -> Iterator[DatabaseDoor]:
    """The scene of a fixture that has a `Door` as its parameter."""
    engine, make, story = request.param
    with served(request, place, engine) as server:
        yield DatabaseDoor(place, server, make, story)
