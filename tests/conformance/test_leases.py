"""Both kinds of leases, held to the same suite."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from takeback.storage.database import Database
from takeback.storage.leases import SqliteLeases
from takeback.storage.memory import MemoryLeases
from takeback.storage.protocols import Leases
from takeback.testing.fakes import Clock, Processes
from takeback.testing.leases_suite import DurableLeasesSuite, LeasesSuite
from tests.conformance.test_journal import new_database


class TestSqliteLeases(DurableLeasesSuite):
    @pytest.fixture(autouse=True)
    def closes_what_it_opened(self) -> Iterator[None]:
        self.opened: list[Database] = []
        yield
        for database in self.opened:
            database.close()

    def make(
        self, directory: Path, processes: Processes, clock: Clock
    ) -> tuple[Leases, Callable[[], Leases]]:
        path = directory / "journal.db"
        new_database(path)

        def another() -> Leases:
            self.opened.append(Database(str(path)))
            return SqliteLeases(self.opened[-1], processes.alive, clock)

        return another(), another


class TestMemoryLeases(LeasesSuite):
    def make(
        self, directory: Path, processes: Processes, clock: Clock
    ) -> tuple[Leases, Callable[[], Leases]]:
        leases = MemoryLeases(processes.alive)
        return leases, lambda: leases
