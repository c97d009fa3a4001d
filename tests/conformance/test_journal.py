"""Every journal, held to the same suite."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path

import psycopg
import pytest

from takeback.model.effect import TRANSITIONS, State
from takeback.model.record import Kind
from takeback.model.run import NEVER
from takeback.storage.bodies import deflated
from takeback.storage.leases import SqliteLeases
from takeback.storage.protocols import Journal, Leases
from takeback.storage.sqlite import store
from takeback.storage.sqlite.database import SqliteDatabase
from takeback.storage.sqlite.journal import SqliteJournal
from takeback.testing.fakes import Clock, FakeProcesses, submitting
from takeback.testing.fakes import closing as ended
from takeback.testing.journal_queries_suite import DurableJournalSuite, JournalQueriesSuite
from takeback.testing.journal_suite import JournalBooks
from tests.conformance.postgres_scene import PostgresScene
from tests.damage import unguarded
from tests.memory import MemoryJournal, MemoryLeases
from tests.servers.postgres import PgDatabase


def new_database(path: Path) -> None:
    schemas = Path(store.__file__).parent / "schema"
    with closing(sqlite3.connect(path)) as connection:
        for name in ("blobs.sql", "journal.sql", "projects.sql"):
            connection.executescript((schemas / name).read_text())


class TestSqliteJournal(DurableJournalSuite):
    @pytest.fixture(autouse=True)
    def closes_what_it_opened(self) -> Iterator[None]:
        self.opened: list[SqliteDatabase] = []
        yield
        for database in self.opened:
            database.close()

    def make(self, directory: Path, clock: Clock, processes: FakeProcesses) -> tuple[Journal, Leases]:
        new_database(directory / "journal.db")
        return self.again(directory, clock, processes)

    def again(self, directory: Path, clock: Clock, processes: FakeProcesses) -> tuple[Journal, Leases]:
        database = SqliteDatabase(str(directory / "journal.db"))
        self.opened.append(database)
        return SqliteJournal(database, clock), SqliteLeases(database, processes.alive, clock)

    def damage(self, directory: Path, seq: int, column: str, value: object) -> None:
        self._behind_its_back(directory, f"UPDATE records SET {column} = ? WHERE seq = ?", (value, seq))

    def remove(self, directory: Path, seq: int) -> None:
        self._behind_its_back(directory, "DELETE FROM records WHERE seq = ?", (seq,))

    def lie(self, directory: Path, effect: str, state: State) -> None:
        self._behind_its_back(directory, "UPDATE effects SET state = ? WHERE id = ?", (state, effect))

    def _behind_its_back(self, directory: Path, sql: str, values: tuple[object, ...]) -> None:
        database = sqlite3.connect(directory / "journal.db", isolation_level=None)
        with closing(database) as connection, unguarded(connection):
            connection.execute(sql, values)

    def test_the_database_itself_refuses_to_change_or_remove_a_record(self, tmp_path: Path) -> None:
        journal, leases = self.make(tmp_path, Clock(), FakeProcesses())
        lease = leases.acquire("run", FakeProcesses().start(), 1, 1)
        from takeback.testing.fakes import opening

        journal.append(lease, [opening("run")])
        with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as connection:
            for sql in ("UPDATE records SET at = 1", "DELETE FROM records"):
                with pytest.raises(sqlite3.IntegrityError):
                    connection.execute(sql)

    @pytest.mark.parametrize(
        "lie",
        [
            "due_at = 5",
            "awaits = 'paid'",
            "workflow = 'pay'",
            "key = ''",
            "note = 'x'",
            "on_death = 'accept'",
        ],
    )
    def test_a_run_that_is_listed_otherwise_than_its_records_say_is_found(
        self, tmp_path: Path, lie: str
    ) -> None:
        journal, _ = self.make(tmp_path, Clock(), FakeProcesses())
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
        clock, processes = Clock(), FakeProcesses()
        journal, leases = self.make(tmp_path, clock, processes)
        journal.append(None, [submitting("run", "deploy", key="k")])
        leases.release(leases.acquire("run", processes.start(), clock(), 1))
        journal.append(leases.acquire("run", processes.start(), clock(), 1), [ended("run")])
        with (
            closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as connection,
            pytest.raises(sqlite3.IntegrityError),
        ):
            connection.execute(sql)

    def test_what_is_said_of_a_run_is_read_without_the_rest_of_the_journal(self, tmp_path: Path) -> None:
        journal, _ = self.make(tmp_path, Clock(), FakeProcesses())
        said: list[str] = []
        connection = self.opened[0]._connection  # pyright: ignore[reportPrivateUsage]
        connection.set_trace_callback(said.append)
        of_a_run = (Kind.OPEN, Kind.CLOSE, Kind.REMEMBER, Kind.CHECKPOINT, Kind.SIGNAL)
        assert list(journal.records(run="run", kinds=of_a_run)) == []
        (plan,) = connection.execute(f"EXPLAIN QUERY PLAN {said[-1]}").fetchall()
        assert "INDEX records_of_runs (run=" in plan[3]

    def test_a_claim_reads_neither_ended_runs_nor_those_that_are_not_due(self, tmp_path: Path) -> None:
        """Counted in steps of SQLite's machine, which no clock disturbs."""
        clock, processes = Clock(), FakeProcesses()
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
        add("accepted", 0)
        add("suspended", NEVER)
        assert steps() <= 1.5 * alone


@pytest.mark.sampled(4, whole=True)
class TestPostgresJournal(DurableJournalSuite):
    @pytest.fixture(autouse=True)
    def server(self, pg_store_database: PgDatabase) -> Iterator[None]:
        self.scene = PostgresScene(pg_store_database)
        yield
        self.scene.close()

    def make(self, directory: Path, clock: Clock, processes: FakeProcesses) -> tuple[Journal, Leases]:
        return self.scene.books(clock, processes)

    def again(self, directory: Path, clock: Clock, processes: FakeProcesses) -> tuple[Journal, Leases]:
        return self.scene.books(clock, processes)

    def pass_seconds(self, books: JournalBooks, seconds: int) -> None:
        books.clock.pass_seconds(seconds)
        self.scene.age_leases(seconds)

    def damage(self, directory: Path, seq: int, column: str, value: object) -> None:
        if column == "body":
            value = deflated(str(value).encode())
        self.scene.behind_its_back(f"UPDATE records SET {column} = %s WHERE seq = %s", (value, seq))

    def remove(self, directory: Path, seq: int) -> None:
        self.scene.behind_its_back("DELETE FROM records WHERE seq = %s", (seq,))

    def lie(self, directory: Path, effect: str, state: State) -> None:
        self.scene.behind_its_back("UPDATE effects SET state = %s WHERE id = %s", (state.value, effect))

    @pytest.mark.parametrize(
        "lie",
        [
            "due_at = 5",
            "awaits = 'paid'",
            "workflow = 'pay'",
            "key = ''",
            "note = 'x'",
            "on_death = 'accept'",
        ],
    )
    def test_a_run_that_is_listed_otherwise_than_its_records_say_is_found(
        self, books: JournalBooks, lie: str
    ) -> None:
        books.journal.append(None, [submitting("run", "deploy", key="k")])
        assert not list(books.journal.check())
        self.scene.behind_its_back(f"UPDATE runs SET {lie}")
        (finding,) = books.journal.check()
        assert lie.split(maxsplit=1)[0] in finding

    @pytest.mark.parametrize(
        "sql",
        [
            "UPDATE takeback_store.records SET at = 1",
            "DELETE FROM takeback_store.records",
            "TRUNCATE takeback_store.records",
            "INSERT INTO takeback_store.records SELECT 99, at, 'done', run, 'e', NULL, hash, body"
            " FROM takeback_store.records WHERE kind = 'done'",
            "INSERT INTO takeback_store.records SELECT 99, at, 'abort', run, 'e', NULL, hash, body"
            " FROM takeback_store.records WHERE kind = 'done'",
            "INSERT INTO takeback_store.records SELECT 99, at, kind, run, effect, token, hash, body"
            " FROM takeback_store.records WHERE seq = 1",
            "UPDATE takeback_store.effects SET key = 'k' WHERE id = 'f'",
            "UPDATE takeback_store.runs SET state = 'open'",
            "UPDATE takeback_store.runs SET state = 'nonsense'",
            "DELETE FROM takeback_store.runs",
            "TRUNCATE takeback_store.runs",
            "UPDATE takeback_store.leases SET generation = 1",
            "UPDATE takeback_store.leases SET pid = 7",
            "DELETE FROM takeback_store.leases",
            "INSERT INTO takeback_store.runs (id, name, agent, state, on_death, opened_at, key)"
            " VALUES ('x', '', '', 'open', 'resume', 1, 'k')",
        ],
    )
    def test_the_database_itself_holds_what_must_hold(self, books: JournalBooks, sql: str) -> None:
        books.journal.append(None, [submitting("run", "deploy", key="k")])
        books.leases.release(books.lease("run"))
        lease = books.lease("run")
        books.make(lease, "e", key="k")
        books.make(lease, "f", "file:///b")
        books.journal.append(lease, [ended("run")])
        before = books.picture()
        with pytest.raises(psycopg.errors.IntegrityError):
            self.scene.as_anyone(sql)
        assert books.picture() == before

    def test_the_function_moves_states_exactly_as_the_model_does(self, books: JournalBooks) -> None:
        """One table in Python, one function there: they must not drift."""
        states = [None, *State]
        events = [*dict.fromkeys(event for _, event in TRANSITIONS)]
        with psycopg.connect(self.scene.server.url, autocommit=True) as connection:
            for state, event in product(states, events):
                asked = "select takeback_store.moved(%s, %s, 1)"
                after = TRANSITIONS.get((state, event))
                if after:
                    (found,) = connection.execute(asked, (state and state.value, str(event))).fetchone() or ()
                    assert found == after
                else:
                    with pytest.raises(psycopg.Error, match="cannot follow"):
                        connection.execute(asked, (state and state.value, str(event)))


class TestMemoryJournal(JournalQueriesSuite):
    def make(self, directory: Path, clock: Clock, processes: FakeProcesses) -> tuple[Journal, Leases]:
        leases = MemoryLeases(processes.alive)
        return MemoryJournal(leases, clock), leases


def test_a_project_is_listed_without_reading_the_effects_of_others(tmp_path: Path) -> None:
    """The statement is answered by the index of the project, whatever else the store holds."""
    from takeback.model.resource import Scope
    from takeback.storage.protocols import Query
    from takeback.storage.sqlite.journal import select_effects

    new_database(tmp_path / "journal.db")
    late = {"before": 9, "told_after": 9}
    with closing(sqlite3.connect(tmp_path / "journal.db")) as connection:
        for more in ({}, late):
            query = Query(scope=Scope(("file:///p",)), newest=True, limit=20)._replace(**more)
            sql, values = select_effects(query)
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
            assert not [line for line in plan if line.startswith("SCAN")], plan
