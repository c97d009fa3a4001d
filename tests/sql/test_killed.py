"""Whoever works on a database is killed, the connection, the server, the wire between them: it is settled, once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sql.killing import Victim, killed
from tests.sql.victims import MariaVictim, PostgresVictim, RedisVictim, SqliteVictim

WAYS = ("client", "connection", "server", "cut", "deaf")
ENGINES = ("postgres", "sqlite", "mariadb", "redis")


@pytest.fixture
def victim(engine: str, request: pytest.FixtureRequest, swift_path: Path) -> Victim:
    if engine == "sqlite":
        return SqliteVictim(swift_path / "file.db")
    made, database = {
        "postgres": (PostgresVictim, "pg_database"),
        "mariadb": (MariaVictim, "maria_database"),
        "redis": (RedisVictim, "redis_database"),
    }[engine]
    return made(request.getfixturevalue(database))


def ways(victim: Victim, rounds: int) -> tuple[str, ...]:
    return (WAYS if victim.port else WAYS[:2]) * rounds


@pytest.mark.sampled(6, always=("postgres",))
@pytest.mark.parametrize(
    "engine", [one if one != "mariadb" else pytest.param(one, marks=pytest.mark.slow) for one in ENGINES]
)
def test_one_of_each(
    victim: Victim, swift_path: Path, record_property: Callable[[str, object], None]
) -> None:
    killed(victim, swift_path, 1, ways(victim, 1), record_property)


@pytest.mark.parametrize(
    "seed",
    [
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3)),
        *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 10)),
    ],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_often(
    victim: Victim, swift_path: Path, record_property: Callable[[str, object], None], seed: int
) -> None:
    killed(victim, swift_path, seed, ways(victim, 2 if victim.port else 5), record_property)
