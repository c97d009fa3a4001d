"""Both journals, held to the same suite."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from takeback.model.effect import State
from takeback.model.run import NEVER
from takeback.storage import store
from takeback.storage.database import Database
from takeback.storage.leases import SqliteLeases
from takeback.storage.memory import MemoryJournal, MemoryLeases
from takeback.storage.protocols import Journal, Leases
from takeback.storage.sqlite import SqliteJournal
from takeback.testing.fakes import Clock, Processes, submitting
from takeback.testing.fakes import closing as ended
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
        return SqliteJournal(database, clock), SqliteLeases(database, processes.alive, clock)

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

    @pytest.mark.parametrize(
        "lie",
        ["due_at = 5", "awaits = 'paid'", "workflow = 'pay'", "key = ''", "note = 'x'", "on_death = 'keep'"],
    )
    def test_a_run_that_is_listed_otherwise_than_its_records_say_is_found(
        self, tmp_path: Path, lie: str
    ) -> None:
        journal, _ = self.make(tmp_path, Clock(), Processes())
        journal.append(None, [submitting("run", "deploy", key="k")])
        assert not list(journal.check())
        self._behind_its_back(tmp_path, f"UPDATE runs SET {lie}", ())
        (finding,) = journal.check()
        assert lie.split(maxsplit=1)[0] in finding

    @pytest.mark.parametrize(
        "sql",
        [
            "UPDATE runs SET state = 'open'",
            "UPDATE runs SET state = 'nonsense'",
            "DELETE FROM runs",
            "UPDATE leases SET generation = 1",
            "UPDATE leases SET pid = 7",
            "DELETE FROM leases",
            "INSERT INTO runs (id, name, agent, state, on_death, opened_at, key)"
            " VALUES ('x', '', '', 'open', 'resume', 1, 'k')",
        ],
    )
    def test_the_database_itself_holds_what_must_hold_for_runs_and_leases(
        self, tmp_path: Path, sql: str
    ) -> None:
        clock, processes = Clock(), Processes()
        journal, leases = self.make(tmp_path, clock, processes)
        journal.append(None, [submitting("run", "deploy", key="k")])
        leases.release(leases.acquire("run", processes.start(), clock(), 1))
        journal.append(leases.acquire("run", processes.start(), clock(), 1), [ended("run")])
        with (
            closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as connection,
            pytest.raises(sqlite3.IntegrityError),
        ):
            connection.execute(sql)

    def test_a_claim_reads_neither_ended_runs_nor_those_that_are_not_due(self, tmp_path: Path) -> None:
        """Counted in steps of SQLite's machine, which no clock disturbs."""
        clock, processes = Clock(), Processes()
        journal, leases = self.make(tmp_path, clock, processes)

        def steps() -> int:
            taken = [0]

            def step() -> None:
                taken[0] += 1

            connection = self.opened[0]._connection  # pyright: ignore[reportPrivateUsage]
            connection.set_progress_handler(step, 1)
            try:
                journal.append(None, [submitting(f"new-{clock()}", "deploy")])
                taken[0] = 0
                lease = leases.claim(processes.start(), clock(), 1000, ("deploy",))
            finally:
                connection.set_progress_handler(None, 1)
            assert lease is not None
            journal.append(lease, [ended(lease.run)])
            leases.release(lease)
            return taken[0]

        def add(state: str, due_at: int) -> None:
            with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as connection:
                connection.execute(
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)"
                    " INSERT INTO runs (id, name, agent, state, on_death, opened_at, workflow, due_at)"
                    " SELECT ?1 || i, '', '', ?1, 'resume', 1, 'deploy', ?2 FROM n",
                    (state, due_at),
                )

        alone = steps()
        add("kept", 0)
        add("suspended", NEVER)
        assert steps() <= 1.5 * alone


class TestMemoryJournal(JournalQueriesSuite):
    def make(self, directory: Path, clock: Clock, processes: Processes) -> tuple[Journal, Leases]:
        leases = MemoryLeases(processes.alive)
        return MemoryJournal(leases, clock), leases
