"""Connections that are kept for the next use: one effect asks the server at several moments."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from takeback.adapters.database.keyring import Keyring
from takeback.adapters.redis.identity import refuse_another
from takeback.adapters.redis.link import Link, open_link
from takeback.model.database import Database

IDLE = 2  # of each database


class Links:
    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        self._lock = threading.Lock()
        self._idle: dict[str, list[Link]] = {}

    @contextmanager
    def to(self, database: Database) -> Iterator[Link]:
        link = self.take(database)
        try:
            yield link
        except BaseException:
            # It may still watch keys, or owe an answer.
            link.close()
            raise
        self.give_back(database, link)

    def take(self, database: Database) -> Link:
        url = self._keyring.url(database)
        link = self._waiting(url) or open_link(url, database.url)
        try:
            refuse_another(link, database, url)
        except BaseException:
            link.close()
            raise
        return link

    def _waiting(self, url: str) -> Link | None:
        with self._lock:
            idle = self._idle.get(url, [])
            while idle:
                link = idle.pop()
                if link.usable and not link.is_stale:
                    return link
                link.close()
        return None

    def give_back(self, database: Database, link: Link) -> None:
        url = self._keyring.url(database)
        with self._lock:
            idle = self._idle.setdefault(url, [])
            if link.usable and len(idle) < IDLE:
                idle.append(link)
                return
        link.close()

    def close(self) -> None:
        with self._lock:
            for idle in self._idle.values():
                for link in idle:
                    link.close()
            self._idle = {}
