"""What has no way back is refused at every door: by a single statement as well as in a transaction.

The loss of large objects (finding 5) lived where only `transaction()` was tested.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback
from takeback.testing.door_suite import RefusingDoorSuite, assert_settled, in_force
from tests.doors.databases import (
    DatabaseDoor,
    Door,
    RedisDoor,
    Story,
    door_of,
    program,
    reviewed,
    statement,
    transaction,
)
from tests.servers.redis import RedisDatabase
from tests.sql.redis_cases import named

LARGE = (
    "create table large (id int primary key, lo oid)",
    "insert into large values (1, lo_from_bytea(0, 'mine'))",
)
WRITES = tuple(
    Story(text, (text,), "", given=LARGE)
    for text in (
        "select lo_unlink(lo) from large",
        "select lo_put(lo, 0, 'spoilt') from large",
        "select lo_create(0)",
        "do $$ begin perform lo_unlink(lo) from large; end $$",
        "with gone as (select lo_unlink(lo) from large) select count(*) from gone",
        "update people set age = lo_unlink(lo) from large where people.id = 1",
    )
)
ROLE = Story("create role", ("create role takeback_test_nobody",), "")
ATTACH = Story("attach", ("ATTACH ':memory:' AS other",), "")
LOG = Story("the log itself", ("DELETE FROM takeback_op",), "")
OLD = ("CREATE TABLE old (id INT PRIMARY KEY) ENGINE = MyISAM", "INSERT INTO old VALUES (1)")
BARE = Story("a table that cannot be captured", ("DELETE FROM old",), "", given=OLD)
ELSEWHERE = Story("another database", ("DELETE FROM mysql.user",), "")


def doors(engine: str, *stories: Story) -> list[Door]:
    return [Door(engine, make, story) for story in stories for make in (statement, transaction, reviewed)]


class TestSqlite(RefusingDoorSuite):
    @pytest.fixture(params=doors("sqlite", ATTACH, LOG), ids=str)
    def scene(self, request: pytest.FixtureRequest, swift_path: Path) -> Iterator[DatabaseDoor]:
        yield from door_of(request, swift_path)


@pytest.mark.sampled(8, always=("postgres, one statement: select lo_put(lo, 0, 'spoilt') from large",))
class TestPostgres(RefusingDoorSuite):
    @pytest.fixture(params=doors("postgres", *WRITES, ROLE), ids=str)
    def scene(self, request: pytest.FixtureRequest, swift_path: Path) -> Iterator[DatabaseDoor]:
        yield from door_of(request, swift_path)


@pytest.mark.sampled(3, always=("mariadb, one statement: a table that cannot be captured",))
@pytest.mark.needs("mariadbd", "mariadb-install-db")
class TestMariaDB(RefusingDoorSuite):
    @pytest.fixture(params=doors("mariadb", BARE, ELSEWHERE), ids=str)
    def scene(self, request: pytest.FixtureRequest, swift_path: Path) -> Iterator[DatabaseDoor]:
        yield from door_of(request, swift_path)


class TestRedis(RefusingDoorSuite):
    @pytest.fixture(params=[statement, transaction], ids=lambda make: make.__name__)
    def scene(
        self, request: pytest.FixtureRequest, redis_database: RedisDatabase, swift_path: Path
    ) -> RedisDoor:
        (case,) = named("EVAL return redis.call('SET', 'hidden', 1)")
        return RedisDoor(swift_path, redis_database, request.param, case)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    "scene", [Door("postgres", program, one) for one in (*WRITES, ROLE)], ids=str, indirect=True
)
def test_a_program_with_its_own_driver_is_stopped_before_it_does(scene: DatabaseDoor) -> None:
    before = scene.world()
    with (
        takeback.open(scene.store) as tb,
        tb.run("a program") as run,
        pytest.raises(subprocess.CalledProcessError),
    ):
        scene.make(run, "")
    assert scene.world() == before
    assert not in_force(scene)
    assert_settled(scene, "stopped")


@pytest.fixture
def scene(request: pytest.FixtureRequest, swift_path: Path) -> Iterator[DatabaseDoor]:
    yield from door_of(request, swift_path)
