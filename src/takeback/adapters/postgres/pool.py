"""Connections that are kept for the next use: one undo asks the server at several moments."""

import os
import select
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from takeback.adapters.database import USUAL, Keyring, Waiting
from takeback.adapters.postgres.connection import PLAINLY, Connection, connect, driver
from takeback.adapters.postgres.transactions import identity, refuse_another
from takeback.model.database import Database

# Long enough for the steps of one undo. After that a firewall may have forgotten it, and others may want the place; the
# server ends it if it is not used again.
FRESH = 5.0
_ENDED_BY_SERVER = "set idle_session_timeout = '10s'"


class PostgresLink(NamedTuple):
    connection: Connection
    identity: str  # of the server and the database
    since: float  # when it was used last


class PostgresLinks:
    """At most one idle connection for each address; closed with the adapter."""

    def __init__(self, keyring: Keyring, waiting: Waiting = USUAL) -> None:
        self._keyring = keyring
        self._waiting = waiting
        self._lock = threading.Lock()
        # By process: a child has the same connections, and would speak in the name of its parent.
        self._idle: dict[tuple[int, str], PostgresLink] = {}
        weakref.finalize(self, _close_all, self._idle)

    @contextmanager
    def to(self, database: Database) -> Iterator[Connection]:
        """To that very database and no other. Whatever transaction is left open is rolled back."""
        url = self._keyring.url(database)
        link = self._taken(url) or _made(url, self._waiting)
        connection = link.connection
        try:
            refuse_another(link.identity, database)
            yield connection
            if connection.info.transaction_status != driver().pq.TransactionStatus.IDLE:
                connection.give_up()
        except BaseException:
            connection.close()
            raise
        self._give_back(url, link._replace(since=time.monotonic()))

    def _taken(self, url: str) -> PostgresLink | None:
        with self._lock:
            link = self._idle.pop((os.getpid(), url), None)
        if link and not _usable(link):
            link.connection.close()
            return None
        return link

    def _give_back(self, url: str, link: PostgresLink) -> None:
        place = (os.getpid(), url)
        with self._lock:
            if not link.connection.closed and place not in self._idle:
                self._idle[place] = link
                return
        link.connection.close()

    def close(self) -> None:
        with self._lock:
            _close_all(self._idle)


def _made(url: str, waiting: Waiting) -> PostgresLink:
    connection = connect(url, waiting, f"{PLAINLY}; {_ENDED_BY_SERVER}")
    try:
        return PostgresLink(connection, identity(connection), time.monotonic())
    except BaseException:
        connection.close()
        raise


def _usable(link: PostgresLink) -> bool:
    """The server says nothing to one who does not ask, except that it ends."""
    if link.connection.closed or time.monotonic() - link.since > FRESH:
        return False
    waiting = select.poll()
    waiting.register(link.connection.fileno(), select.POLLIN)
    return not waiting.poll(0)


def _close_all(idle: dict[tuple[int, str], PostgresLink]) -> None:
    for process, url in list(idle):
        if process == os.getpid():
            idle.pop((process, url)).connection.close()
