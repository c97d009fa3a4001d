"""What recovery asks of the adapters of databases, of an effect that a session has made."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from takeback.adapters.database import Keyring
from takeback.adapters.mariadb.adapter import MariaAdapter
from takeback.adapters.postgres.adapter import PostgresAdapter
from takeback.adapters.sqlite.adapter import SqliteAdapter
from takeback.errors import Refused
from takeback.model.plan import Standing
from tests.doors.databases import SEVERAL, TABLES, Server, served
from tests.memory import MemoryBlobs
from tests.sql.engines import made
from tests.sql.redis_cases import named
from tests.sql.redis_world import RedisScene

_ADAPTERS: dict[str, Any] = {"sqlite": SqliteAdapter, "postgres": PostgresAdapter, "mariadb": MariaAdapter}


class Scene(NamedTuple):
    """A world with one effect that can be made in it."""

    server: Server
    adapter: Any
    database: Any
    statements: tuple[tuple[str, Any], ...]
    disturbance: str

    def do(self) -> Any:
        effect = made(self.adapter, self.database, *self.statements)
        assert effect
        return effect


@pytest.fixture(params=["sqlite", "postgres", pytest.param("mariadb", marks=pytest.mark.needs("mariadbd"))])
def scene(request: pytest.FixtureRequest, swift_path: Path) -> Iterator[Scene]:
    keyring = Keyring()
    with served(request, swift_path, request.param) as server:
        server.plain(TABLES)
        adapter, database = _ADAPTERS[request.param](MemoryBlobs(), keyring), keyring.named(server.url)
        adapter.protect(database, ())
        statements = tuple((text, None if request.param == "mariadb" else ()) for text in SEVERAL.statements)
        yield Scene(server, adapter, database, statements, SEVERAL.disturb)
        if close := getattr(adapter, "close", None):
            close()


def test_taken_back_twice_by_recovery_is_taken_back_once(scene: Scene) -> None:
    before = scene.server.world()
    effect = scene.do()
    assert scene.server.world() != before
    for _ in range(2):
        scene.adapter.undo(effect)
        scene.adapter.tidy(effect)
        assert scene.server.world() == before
        assert scene.adapter.verify(effect).standing is Standing.BEFORE


def test_recovery_takes_nothing_back_over_what_someone_changed_since(scene: Scene) -> None:
    effect = scene.do()
    scene.server.plain([scene.disturbance])
    disturbed = scene.server.world()
    assert scene.adapter.verify(effect).standing is Standing.AFTER  # its mark is there, whatever came later
    with pytest.raises(Refused):
        scene.adapter.undo(effect)
    assert scene.server.world() == disturbed


def test_in_redis_too(redis_database: Any) -> None:
    (case,) = named("a transaction of several")
    redis = RedisScene(redis_database, case)
    before = redis.world()
    effect = redis.do()
    assert effect
    for _ in range(2):
        redis.adapter().undo(effect)
        assert redis.world() == before
        assert redis.adapter().verify(effect).standing is Standing.BEFORE
    effect = redis.do()
    assert effect
    redis.disturb()
    disturbed = redis.world()
    assert redis.adapter().verify(effect).standing is Standing.AFTER
    with pytest.raises(Refused):
        redis.adapter().undo(effect)
    assert redis.world() == disturbed
