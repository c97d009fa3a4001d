"""Waiting for work: the server tells when a run was submitted, got its signal, or was put to sleep."""

import time
from threading import Lock

from takeback.errors import Unavailable
from takeback.storage.postgres.connecting import driver
from takeback.storage.postgres.database import PostgresDatabase, Session


class Waking:
    """What was told before one began to wait counts as well: it is not forgotten between two waits."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._lock = Lock()
        self._ear: Session | None = None

    def wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        if not self._lock.acquire(timeout=max(0.0, seconds)):
            return
        try:
            self._listen(until)
        finally:
            self._lock.release()

    def _listen(self, until: float) -> None:
        psycopg = driver()
        try:
            if self._ear is None:
                self._ear = self._database.another()
                self._ear.execute(f'LISTEN "{self._database.address.schema}.work"')
                return  # what came before we had an ear for it nobody has told us
            left = max(0.0, until - time.monotonic())
            for _ in self._ear.connection.notifies(timeout=left, stop_after=1):
                return
        except (psycopg.Error, Unavailable):
            self.close()
            time.sleep(max(0.0, min(1.0, until - time.monotonic())))

    def close(self) -> None:
        if self._ear:
            self._ear.connection.close()
            self._ear = None
