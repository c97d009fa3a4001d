"""Both journals, held to the same suite."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from takeback.model.effect import State
from takeback.storage import store
from takeback.storage.database import Database
from takeback.storage.leases import SqliteLeases
from takeback.storage.memory import MemoryJournal, MemoryLeases
from takeback.storage.protocols import Journal, Leases
from takeback.storage.sqlite import SqliteJournal
from takeback.testing.fakes import Clock, Processes
from takeback.testing.journal_queries_suite import DurableJournalSuite, JournalQueriesSuite


def new_database(path: Path) -> None:
    schemas = Path(store.__file__).parent / "schema"
    with closing(sqlite3.connect(path)) as connection:
        for name in ("blobs.sql", "journal.sql"):
            connection.executescript((schemas / name).read_text())


class TestSqliteJournal(DurableJournalSuite):
    @pytest.fixture(autouse=True)
    def closes_what_it_opened(self) -> Iterator[None]:
        self.opened: list[Database] = []
        yield
        for database in self.opened:
            database.close()

    def make(self, directory: Path, clock: Clock, processes: Processes) -> tuple[Journal, Leases]:
        new_database(directory / "journal.db")
        return self.again(directory, clock, processes)

    def again(self, directory: Path, clock: Clock, processes: Processes) -> tuple[Journal, Leases]:
        database = Database(str(directory / "journal.db"))
        self.opened.append(database)
        return SqliteJournal(database, clock), SqliteLeases(database, processes.alive)

    def damage(self, directory: Path, seq: int, column: str, value: object) -> None:
        self._behind_its_back(directory, f"UPDATE records SET {column} = ? WHERE seq = ?", (value, seq))

    def remove(self, directory: Path, seq: int) -> None:
        self._behind_its_back(directory, "DELETE FROM records WHERE seq = ?", (seq,))

    def lie(self, directory: Path, effect: str, state: State) -> None:
        self._behind_its_back(directory, "UPDATE effects SET state = ? WHERE id = ?", (state, effect))

    def _behind_its_back(self, directory: Path, sql: str, values: tuple[object, ...]) -> None:
        with closing(sqlite3.connect(directory / "journal.db", isolation_level=None)) as connection:
            connection.execute("DROP TRIGGER records_are_final")
            connection.execute("DROP TRIGGER records_stay")
            connection.execute(sql, values)

    def test_the_database_itself_refuses_to_change_or_remove_a_record(self, tmp_path: Path) -> None:
        journal, leases = self.make(tmp_path, Clock(), Processes())
        lease = leases.acquire("run", Processes().start(), 1, 1)
        from takeback.testing.fakes import opening

        journal.append(lease, [opening("run")])
        with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as connection:
            for sql in ("UPDATE records SET at = 1", "DELETE FROM records"):
                with pytest.raises(sqlite3.IntegrityError):
                    connection.execute(sql)


class TestMemoryJournal(JournalQueriesSuite):
    def make(self, directory: Path, clock: Clock, processes: Processes) -> tuple[Journal, Leases]:
        leases = MemoryLeases(processes.alive)
        return MemoryJournal(leases, clock), leases
