"""Every kind of leases, held to the same suite."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from takeback.storage.leases import SqliteLeases
from takeback.storage.protocols import Leases
from takeback.storage.sqlite.database import SqliteDatabase
from takeback.testing.fakes import Clock, FakeProcesses
from takeback.testing.leases_suite import DurableLeasesSuite, LeasesScene, LeasesSuite
from tests.conformance.postgres_scene import PostgresScene
from tests.conformance.test_journal import new_database
from tests.memory import MemoryLeases
from tests.servers.postgres import PgDatabase


class TestSqliteLeases(DurableLeasesSuite):
    @pytest.fixture(autouse=True)
    def closes_what_it_opened(self) -> Iterator[None]:
        self.opened: list[SqliteDatabase] = []
        yield
        for database in self.opened:
            database.close()

    def make(
        self, directory: Path, processes: FakeProcesses, clock: Clock
    ) -> tuple[Leases, Callable[[], Leases]]:
        path = directory / "journal.db"
        new_database(path)

        def another() -> Leases:
            self.opened.append(SqliteDatabase(str(path)))
            return SqliteLeases(self.opened[-1], processes.alive, clock)

        return another(), another


class TestPostgresLeases(DurableLeasesSuite):
    @pytest.fixture(autouse=True)
    def server(self, pg_store_database: PgDatabase) -> Iterator[None]:
        self.postgres = PostgresScene(pg_store_database)
        yield
        self.postgres.close()

    def pass_seconds(self, scene: LeasesScene, seconds: int) -> None:
        scene.clock.pass_seconds(seconds)
        self.postgres.age_leases(seconds)

    def make(
        self, directory: Path, processes: FakeProcesses, clock: Clock
    ) -> tuple[Leases, Callable[[], Leases]]:
        another = self.postgres.leases(processes)
        return another(), another


class TestMemoryLeases(LeasesSuite):
    def make(
        self, directory: Path, processes: FakeProcesses, clock: Clock
    ) -> tuple[Leases, Callable[[], Leases]]:
        leases = MemoryLeases(processes.alive)
        return leases, lambda: leases
