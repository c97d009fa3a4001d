"""Killed at any boundary of any door, of its undo and of its recovery: it settles, and nothing is left behind.

The laws are those of `takeback.testing.door_suite`; what makes the change is what users call.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from takeback.testing.door_suite import KilledDoorSuite
from tests.doors.calls import CallDoor
from tests.doors.databases import (
    ALTER,
    CASCADE,
    SEVERAL,
    DatabaseDoor,
    Door,
    RedisDoor,
    door_of,
    program,
    reviewed,
    statement,
    transaction,
)
from tests.doors.files import PROGRAMS, VERBS, FileDoor
from tests.servers.redis import RedisDatabase
from tests.sql.redis_cases import named

_WAYS = (
    (statement, CASCADE),
    (statement, ALTER),
    (transaction, SEVERAL),
    (reviewed, SEVERAL),
    (program, SEVERAL),
)
DOORS = [Door(engine, *way) for engine in ("sqlite", "postgres", "mariadb") for way in _WAYS]


@pytest.mark.sampled(14, always=("run.write",))
class TestVerbs(KilledDoorSuite):
    @pytest.fixture(params=VERBS, ids=lambda story: story.door)
    def scene(self, request: pytest.FixtureRequest, swift_path: Path) -> FileDoor:
        return FileDoor(swift_path, request.param)


@pytest.mark.sampled(16)
class TestPrograms(KilledDoorSuite):
    @pytest.fixture(params=PROGRAMS, ids=lambda story: story.door)
    def scene(self, request: pytest.FixtureRequest, tmp_path: Path) -> FileDoor:
        return FileDoor(tmp_path, request.param)


class TestCalls(KilledDoorSuite):
    """On both sides of the call: it was made once."""

    @pytest.fixture
    def scene(self, swift_path: Path) -> CallDoor:
        return CallDoor(swift_path)


@pytest.mark.sampled(48, always=("sqlite, one statement: delete with cascade",))
class TestDatabases(KilledDoorSuite):
    @pytest.fixture(params=DOORS, ids=str)
    def scene(self, request: pytest.FixtureRequest, swift_path: Path) -> Iterator[DatabaseDoor]:
        yield from door_of(request, swift_path)


@pytest.mark.sampled(8)
class TestRedis(KilledDoorSuite):
    @pytest.fixture(params=[statement, transaction], ids=lambda make: make.__name__)
    def scene(
        self, request: pytest.FixtureRequest, redis_database: RedisDatabase, swift_path: Path
    ) -> RedisDoor:
        case = "a transaction of several" if request.param is transaction else "RENAME over another"
        return RedisDoor(swift_path, redis_database, request.param, *named(case))
