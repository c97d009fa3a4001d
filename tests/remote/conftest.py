"""A store in PostgreSQL, reached by way of a wire that can be cut."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from takeback.storage.postgres.store import PostgresStore, open_remote
from tests.servers.postgres import PgDatabase
from tests.servers.wire import Wire


@pytest.fixture
def wire(pg_database: PgDatabase) -> Iterator[Wire]:
    wire = Wire(pg_database.server.port)
    yield wire
    wire.close()


@pytest.fixture
def store(wire: Wire, pg_database: PgDatabase, tmp_path: Path) -> Iterator[PostgresStore]:
    store = open_remote(wire.through(pg_database.url), os.fspath(tmp_path / "beside"), "")
    yield store
    store.close()
