"""A wire between a client and a server that can be cut, also so that what the server answers never arrives."""

import re
import selectors
import socket
import threading
import time
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit

_DEAF = 0.2  # seconds from the first answer that is lost until the connection is gone
# What makes a transaction hold, in the words of PostgreSQL, MariaDB and Redis, as they go over the wire.
_COMMIT = re.compile(rb"[\x00-\x1f]commit(?:\x00|$)|\r\nexec\r\n", re.IGNORECASE)


class Wire:
    """Listens on a port of its own and passes on to that of the server, in a thread. A connection that is cut is gone;
    new ones can be made at once."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._wake, self._woken = socket.socketpair()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._clients: set[socket.socket] = set()
        self._deaf: dict[
            socket.socket, float
        ] = {}  # clients that hear nothing more, and until when they live
        self._asked: list[str] = []
        self._waits = ""  # for a commit: "deaf", "lost", or "seen" for one who wants to know
        self._words = _COMMIT
        self.close_after = False  # after somebody was deafened nobody gets through any more
        self._seen = threading.Event()
        self._selector = selectors.DefaultSelector()
        for one in (self._listener, self._woken):
            self._selector.register(one, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        self._thread.start()

    def through(self, url: str) -> str:
        """The same address, by way of this wire."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}"))

    def cut(self) -> None:
        """Every connection that there is."""
        self._ask("cut")

    def deafen(self, words: bytes = b"") -> None:
        """Whoever commits next, or says these words: it arrives, the answer does not, soon the connection is gone."""
        self._words = re.compile(re.escape(words)) if words else _COMMIT
        self._waits = "deaf"

    def lose(self, words: bytes) -> None:
        """Whoever says these words next: they do not arrive, and the connection is gone."""
        self._words = re.compile(re.escape(words))
        self._waits = "lost"

    def wait_for_commit(self, most: float) -> None:
        """Until one is on its way to the server, or so many seconds."""
        self._seen.clear()
        self._words = _COMMIT
        self._waits = "seen"
        self._seen.wait(most)
        self._waits = ""

    def close(self) -> None:
        self._ask("close")
        self._thread.join()

    def _ask(self, what: str) -> None:
        self._asked.append(what)
        with suppress(OSError):  # it may have seen it already, and be gone
            self._wake.send(b".")

    def _pass_on(self) -> None:
        while True:
            for key, _ in self._selector.select(0.05 if self._deaf else None):
                one = key.fileobj
                assert isinstance(one, socket.socket)
                if one is self._woken:
                    one.recv(100)
                elif one is self._listener:
                    self._accept()
                elif one in self._pairs:
                    self._carry(one)
            while self._asked:
                if not self._obey(self._asked.pop(0)):
                    return
            for client in [client for client, until in self._deaf.items() if until < time.monotonic()]:
                self._drop(client)

    def _obey(self, what: str) -> bool:
        for client in list(self._clients):
            self._drop(client)
        if what == "close":
            self._selector.close()
            for one in (self._listener, self._wake, self._woken):
                one.close()
        return what != "close"

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self.close_after and not self._waits:
            client.close()
            return
        try:
            server = socket.create_connection(("127.0.0.1", self._to))
        except OSError:
            client.close()
            return
        self._clients.add(client)
        for one, other in ((client, server), (server, client)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _carry(self, one: socket.socket) -> None:
        other = self._pairs[one]
        try:
            data = one.recv(1 << 16)
            if not data:
                self._drop(one)
            elif other not in self._deaf:
                waited_for = self._waits and one in self._clients and self._words.search(data)
                if waited_for and self._waits == "lost":
                    self._waits = ""
                    self._drop(one)
                    return
                other.sendall(data)
                if waited_for:
                    self._a_commit(one)
        except OSError:
            self._drop(one)

    def _a_commit(self, client: socket.socket) -> None:
        if self._waits == "deaf":
            self._deaf[client] = time.monotonic() + _DEAF
        self._waits = ""
        self._seen.set()

    def _drop(self, one: socket.socket) -> None:
        other = self._pairs.get(one)
        if other is None:
            return
        for each in (one, other):
            self._selector.unregister(each)
            del self._pairs[each]
            self._clients.discard(each)
            self._deaf.pop(each, None)
            # With what was not read: the other side gets a reset, as when a machine on the way forgets it.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            each.close()
