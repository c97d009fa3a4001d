"""A small bank on loopback: a process of its own, HTTP in front, a ledger in SQLite behind it. It can misbehave.

    python -m examples.bank --ledger DIR/ledger.db       prints its address, then serves until it is ended

    POST /transfers {"source", "target", "cents"}        one transfer; the header Idempotency-Key names it
    GET  /transfers?key=K                                 those with that key, oldest first
    POST /transfers/ID/reversal                           gives the money back
    GET  /accounts/NAME                                   {"cents": …}
    GET  /ledger                                          everything
    POST /misbehave {"path": "/transfers", "how": [...]}  what the next posts to that path do, one after the other
    GET  /misbehave                                       how many of those are left for transfers; and what is at work

How it can misbehave: "reset" (hangs up before it acts), "lost" (acts, then hangs up), "500" (says no), "500 after"
(acts, then says no), "hollow" (says yes and does nothing), "wrong" (moves another amount), "late 3" (acts after that
many seconds), "answer late 3" (acts, and answers after that many seconds), "ok". With --honours-keys a second transfer
with the same key is the first; with --reverses-again money is given back as often as it is asked for.
"""

import argparse
import json
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

SCHEMA = """
CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, cents INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS transfers (
  id INTEGER PRIMARY KEY, key TEXT NOT NULL, source TEXT NOT NULL, target TEXT NOT NULL, cents INTEGER NOT NULL,
  reverses INTEGER REFERENCES transfers (id)
);
"""


class Ledger:
    def __init__(self, path: str, honours_keys: bool, reverses_again: bool) -> None:
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        self._connection.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + SCHEMA)
        self._honours_keys, self._reverses_again = honours_keys, reverses_again
        self._lock = threading.RLock()

    def rows(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        with self._lock:
            return [dict(row) for row in self._connection.execute(sql, values)]

    def move(
        self, key: str, source: str, target: str, cents: int, reverses: int | None = None
    ) -> dict[str, Any]:
        with self._lock:
            if self._honours_keys and key:
                for earlier in self.rows("SELECT * FROM transfers WHERE key = ?", key):
                    return earlier
            if reverses and not self._reverses_again:
                for earlier in self.rows("SELECT * FROM transfers WHERE reverses = ?", reverses):
                    return earlier
            self._connection.execute("BEGIN IMMEDIATE")
            for name, by in ((source, -cents), (target, cents)):
                self._connection.execute(
                    "INSERT INTO accounts VALUES (?, ?)"
                    " ON CONFLICT (name) DO UPDATE SET cents = cents + excluded.cents",
                    (name, by),
                )
            made = self._connection.execute(
                "INSERT INTO transfers (key, source, target, cents, reverses) VALUES (?, ?, ?, ?, ?)",
                (key, source, target, cents, reverses),
            )
            self._connection.execute("COMMIT")
            return self.rows("SELECT * FROM transfers WHERE id = ?", made.lastrowid)[0]


class Manners:
    """How the next posts to a path are answered."""

    def __init__(self) -> None:
        self._coming: dict[str, list[str]] = {}
        self._lock = threading.Lock()
        self.busy = 0  # requests that are being carried out

    @contextmanager
    def at_work(self) -> Iterator[None]:
        with self._lock:
            self.busy += 1
        try:
            yield
        finally:
            with self._lock:
                self.busy -= 1

    def expect(self, path: str, how: list[str]) -> None:
        with self._lock:
            self._coming[path] = list(how)

    def left(self, path: str) -> int:
        return len(self._coming.get(path, []))

    def next(self, path: str) -> str:
        with self._lock:
            coming = self._coming.get(path, [])
            if coming and coming[0].startswith("always "):
                return coming[0].removeprefix("always ")
            return coming.pop(0) if coming else "ok"


class Counter(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ledger: Ledger
    manners: Manners

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        parts = url.path.strip("/").split("/")
        if parts[0] == "transfers" and "key" in asked:
            found = self.ledger.rows("SELECT * FROM transfers WHERE key = ? ORDER BY id", asked["key"])
            return self._say(200, found)
        if parts[0] == "reversals":
            found = self.ledger.rows("SELECT * FROM transfers WHERE reverses = ?", int(asked["of"]))
            return self._say(200, found)
        if parts[0] == "accounts":
            found = self.ledger.rows("SELECT cents FROM accounts WHERE name = ?", parts[1])
            return self._say(200, found[0] if found else {"cents": 0})
        if parts[0] == "misbehave":
            return self._say(200, {"left": self.manners.left("/transfers"), "busy": self.manners.busy})
        if parts[0] == "ledger":
            return self._say(200, self.ledger.rows("SELECT * FROM transfers ORDER BY id"))
        return self._say(404, {"error": "there is no such page"})

    def do_POST(self) -> None:
        with self.manners.at_work():
            self._post()

    def _post(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        parts = self.path.strip("/").split("/")
        if parts[0] == "misbehave":
            self.manners.expect(body["path"], body["how"])
            return self._say(200, {})
        kind = "/reversals" if parts[-1] == "reversal" else "/transfers"
        how = self.manners.next(kind)
        if how.startswith("late "):
            time.sleep(float(how.split()[1]))
        if how == "reset":
            return self._hang_up()
        if how == "500":
            return self._say(500, {"error": "the bank is busy"})
        if how == "hollow":
            return self._say(201, {"id": 0, "cents": body.get("cents", 0)})
        key = self.headers.get("Idempotency-Key", "")
        if parts[-1] == "reversal":
            found = self.ledger.rows("SELECT * FROM transfers WHERE id = ?", int(parts[1]))
            if not found:
                return self._say(404, {"error": "there is no such transfer"})
            first = found[0]
            made = self.ledger.move(key, first["target"], first["source"], first["cents"], first["id"])
        else:
            if body["cents"] <= 0:
                return self._say(422, {"error": "that is no amount"})
            cents = body["cents"] * 10 if how == "wrong" else body["cents"]
            made = self.ledger.move(key, body["source"], body["target"], cents)
        if how.startswith("answer late "):
            time.sleep(float(how.split()[2]))
        if how == "lost":
            return self._hang_up()
        if how == "500 after":
            return self._say(500, {"error": "the bank is busy"})
        return self._say(201, made)

    def _hang_up(self) -> None:
        import socket

        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _say(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        with suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


class Bank(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever hung up on us knows."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ledger", required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--honours-keys", action="store_true")
    parser.add_argument("--reverses-again", action="store_true")
    options = parser.parse_args()
    ledger = Ledger(options.ledger, options.honours_keys, options.reverses_again)
    counter = type("Open", (Counter,), {"ledger": ledger, "manners": Manners()})
    bank = Bank((options.host, options.port), counter)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(f"http://{options.host}:{bank.server_address[1]}", flush=True)
    bank.serve_forever(poll_interval=0.05)


if __name__ == "__main__":
    main()
