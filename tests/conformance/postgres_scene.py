"""A store in PostgreSQL for the suites, in a database that one test has (`pg_store_database`)."""

from collections.abc import Callable

import psycopg

from takeback.storage.postgres.connection import Address
from takeback.storage.postgres.database import PostgresDatabase
from takeback.storage.postgres.journal import PostgresJournal, PostgresLeases
from takeback.testing.fakes import Clock, FakeProcesses
from tests.servers.postgres import PgDatabase


class PostgresScene:
    def __init__(self, server: PgDatabase) -> None:
        self.server = server
        self.address = Address(server.url)
        self.opened: list[PostgresDatabase] = []

    def database(self) -> PostgresDatabase:
        self.opened.append(PostgresDatabase(self.address))
        return self.opened[-1]

    def books(self, clock: Clock, processes: FakeProcesses) -> tuple[PostgresJournal, PostgresLeases]:
        database = self.database()
        return PostgresJournal(database, clock), PostgresLeases(database, processes.alive)

    def leases(self, processes: FakeProcesses) -> Callable[[], PostgresLeases]:
        return lambda: PostgresLeases(self.database(), processes.alive)

    def behind_its_back(self, sql: str, values: tuple[object, ...] = ()) -> None:
        """As the owner of the server could: with no trigger in the way."""
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute("set session_replication_role = replica; set search_path = takeback_store")
            connection.execute(sql.encode(), values)

    def as_anyone(self, sql: str) -> None:
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(sql.encode())

    def age_leases(self, seconds: int) -> None:
        self.behind_its_back("UPDATE leases SET expires_at = expires_at - %s", (seconds * 1_000_000,))

    def close(self) -> None:
        for database in self.opened:
            database.close()
