"""Random histories on every SQL engine: an undo brings back exactly what it must, or is refused and changes nothing."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from takeback.adapters.database import Keyring
from takeback.adapters.registry import Registry
from takeback.model.database import Database
from tests.memory import MemoryBlobs
from tests.sql.engines import MARIADB, POSTGRES, SQLITE, DatabaseAdapter, ThroughAdapter
from tests.sql.history import Counts, histories
from tests.sql.plain import PlainMariaDB, PlainPostgres, PlainSqlite
from tests.sql.statements import Dialect

ENGINES = ("postgres", "postgres_other", "sqlite", "mariadb")


def adapters(dialect: Dialect, keyring: Keyring) -> Callable[[], DatabaseAdapter]:
    blobs = MemoryBlobs()
    return lambda: Registry(lambda: None, blobs, keyring=keyring)[dialect.name]  # pyright: ignore


@contextmanager
def engine_on(name: str, request: pytest.FixtureRequest, directory: Path) -> Iterator[ThroughAdapter]:
    keyring = Keyring()
    if name == "sqlite":
        file = directory / "file.db"
        plain, dialect, url = PlainSqlite(file), SQLITE, f"sqlite:///{file}"
    elif name == "mariadb":
        found = request.getfixturevalue("maria_database")
        plain, dialect, url = PlainMariaDB(found.connect), MARIADB, found.url
    else:
        found = request.getfixturevalue({"postgres": "pg_database"}.get(name, "pg_other_database"))
        plain, dialect, url = PlainPostgres(found.connect), POSTGRES, found.url
    database: Database = keyring.named(url)
    with (
        closing(plain),
        closing(ThroughAdapter(dialect, database, adapters(dialect, keyring), plain, plain.empty)) as engine,
    ):
        yield engine


@pytest.fixture
def engine(name: str, request: pytest.FixtureRequest, swift_path: Path) -> Iterator[ThroughAdapter]:
    with engine_on(name, request, swift_path) as found:
        yield found


def counted(name: str, counts: Counts, count: Callable[[str, object], None]) -> None:
    for kind, number in zip(Counts._fields, counts, strict=True):
        count(f"random histories, {name}: {kind}", number)


@pytest.mark.parametrize("name", ENGINES)
def test_a_few(name: str, engine: ThroughAdapter, record_property: Callable[[str, object], None]) -> None:
    counted(name, histories(engine, range(3)), record_property)


@pytest.mark.parametrize(
    "name", ["postgres", *(pytest.param(name, marks=pytest.mark.slow) for name in ENGINES[1:])]
)
def test_those_that_were_wrong_once(name: str, engine: ThroughAdapter) -> None:
    """Skipped rows whose next effect wrote what was there already, or was an undo by force."""
    histories(engine, (1235, 1474, 1614))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("name", ENGINES)
def test_many(
    name: str, part: int, engine: ThroughAdapter, record_property: Callable[[str, object], None]
) -> None:
    counted(name, histories(engine, range(100 + 20 * part, 120 + 20 * part)), record_property)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("name", ENGINES)
def test_a_thousand(
    name: str, part: int, engine: ThroughAdapter, record_property: Callable[[str, object], None]
) -> None:
    counted(name, histories(engine, range(1000 + 200 * part, 1200 + 200 * part)), record_property)
