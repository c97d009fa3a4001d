"""A statement that is sent and not waited for, on a connection of its own."""

import time
from collections.abc import Sequence

from takeback.errors import Unavailable
from takeback.storage.postgres.connecting import driver
from takeback.storage.postgres.database import PostgresDatabase, Session
from takeback.storage.postgres.speaking import Statement


class Aside:
    """One at a time. Whatever goes wrong with it is not told: it is only asked for what can as well be done later."""

    def __init__(self, database: PostgresDatabase, statement: Statement) -> None:
        self._database = database
        self._statement = statement
        self._session: Session | None = None
        self._asked = False

    def ask(self, values: Sequence[bytes | None]) -> bool:
        """Whether it was sent; not while the one before is not answered."""
        psycopg = driver()
        try:
            if self._asked and self.answered() is None:
                return False
            self._session = self._session or self._database.kept(time.monotonic())
            self._statement.send(self._session.connection, self._session.prepared, values)
        except (psycopg.Error, Unavailable):
            self._give_up()
            return False
        self._asked = True
        return True

    def answered(self) -> bool | None:
        """Whether what was sent has been carried out; None: it is not answered yet."""
        psycopg = driver()
        if not self._session or not self._asked:
            return False
        try:
            found = self._statement.received(self._session.connection)
        except psycopg.Error:
            self._give_up()
            return False
        if found is not None:
            self._asked = False
        return found

    def _give_up(self) -> None:
        if self._session:
            self._session.connection.close()
        self._session, self._asked = None, False
