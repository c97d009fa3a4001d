"""Every door to a database keeps the laws of doors: statements one by one, transactions, held ones, programs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from takeback.testing.door_suite import DoorSuite
from tests.doors.databases import (
    ALTER,
    CASCADE,
    INSERT,
    SCRAPS,
    SEVERAL,
    TRUNCATE,
    UPDATE,
    DatabaseDoor,
    Door,
    RedisDoor,
    door_of,
    program,
    reviewed,
    statement,
    transaction,
)
from tests.servers.redis import RedisDatabase
from tests.sql.redis_cases import named

STORIES = (CASCADE, UPDATE, INSERT, SCRAPS, ALTER)
_WAYS = ((transaction, SEVERAL), (reviewed, SEVERAL), (program, SEVERAL))


def doors(engine: str, *more: Door) -> tuple[Door, ...]:
    singly = tuple(Door(engine, statement, story) for story in STORIES)
    return (*singly, *(Door(engine, make, story) for make, story in _WAYS), *more)


@pytest.mark.sampled(
    3, always=("sqlite, one statement: delete with cascade", "sqlite, a transaction: several statements")
)
class TestSqlite(DoorSuite):
    @pytest.fixture(params=doors("sqlite", Door("sqlite in delete mode", transaction, SEVERAL)), ids=str)
    def scene(self, request: pytest.FixtureRequest, swift_path: Path) -> Iterator[DatabaseDoor]:
        yield from door_of(request, swift_path)


@pytest.mark.sampled(20, always=("postgres, one statement: delete with cascade",))
class TestPostgres(DoorSuite):
    @pytest.fixture(params=doors("postgres", Door("postgres", statement, TRUNCATE)), ids=str)
    def scene(self, request: pytest.FixtureRequest, swift_path: Path) -> Iterator[DatabaseDoor]:
        yield from door_of(request, swift_path)


@pytest.mark.sampled(20, always=("mariadb, one statement: delete with cascade",))
@pytest.mark.needs("mariadbd", "mariadb-install-db")
class TestMariaDB(DoorSuite):
    @pytest.fixture(params=doors("mariadb"), ids=str)
    def scene(self, request: pytest.FixtureRequest, swift_path: Path) -> Iterator[DatabaseDoor]:
        yield from door_of(request, swift_path)


@pytest.mark.sampled(6, always=("SET with an expiry",))
class TestRedis(DoorSuite):
    @pytest.fixture(
        params=named(
            "SET with an expiry", "DEL of several", "SORT … STORE", "FLUSHDB ASYNC", "RENAME over another"
        ),
        ids=lambda case: case.name,
    )
    def scene(
        self, request: pytest.FixtureRequest, redis_database: RedisDatabase, swift_path: Path
    ) -> RedisDoor:
        return RedisDoor(swift_path, redis_database, statement, request.param)


@pytest.mark.sampled(2)
class TestRedisTransactions(DoorSuite):
    @pytest.fixture(params=named("a transaction of several"), ids=lambda case: case.name)
    def scene(
        self, request: pytest.FixtureRequest, redis_database: RedisDatabase, swift_path: Path
    ) -> RedisDoor:
        return RedisDoor(swift_path, redis_database, transaction, request.param)
