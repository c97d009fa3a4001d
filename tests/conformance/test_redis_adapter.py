"""The adapter of Redis keeps every law."""

from pathlib import Path

import pytest

from takeback.testing.adapter_suite import AdapterSuite
from tests.servers.redis import RedisDatabase
from tests.sql.redis_cases import named
from tests.sql.redis_world import RedisScene

_FEW = named("SET with an expiry", "DEL of several", "a transaction of several", "FLUSHDB ASYNC")
_MORE = named("RENAME over another", "XADD", "SADD to a large set", "SORT … STORE", "PERSIST")


@pytest.mark.sampled(6, always=("a transaction of several",), only=("killed", "let_go_of"))
class TestRedisAdapter(AdapterSuite):
    stride = 601  # more kill points are taken by the slow class below

    @pytest.fixture(params=_FEW, ids=lambda case: case.name)
    def scene(
        self, request: pytest.FixtureRequest, redis_database: RedisDatabase, tmp_path: Path
    ) -> RedisScene:
        return RedisScene(redis_database, tmp_path, request.param)


@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestRedisAdapterAtManyPoints(TestRedisAdapter):
    stride = 41

    @pytest.fixture(params=[*_FEW, *_MORE], ids=lambda case: case.name)
    def scene(
        self, request: pytest.FixtureRequest, redis_database: RedisDatabase, tmp_path: Path
    ) -> RedisScene:
        return RedisScene(redis_database, tmp_path, request.param)
