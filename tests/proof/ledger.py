"""A journal with anchors, and a hand that changes it past takeback: with the rights of whoever owns the store."""

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import takeback
from takeback import Takeback
from takeback.api import opened_of, proof
from takeback.audit import keys
from takeback.audit.anchors import AnchorCheck
from takeback.model.record import GENESIS, HASH, STORE, Draft, Kind, chained, covered
from takeback.storage.bodies import deflated, shortened, whole
from tests.servers.postgres import PgDatabase

RECORDS = 8  # before each anchor
ANCHORS = 3
COLUMNS = "seq, kind, run, effect, at, body, hash"


_SELECT = f"SELECT {COLUMNS} FROM takeback_store.records ORDER BY seq"
_INSERT = f"INSERT INTO takeback_store.records ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s)"


class Row(NamedTuple):
    seq: int
    kind: str
    run: str
    effect: str
    at: int
    body: bytes
    hash: bytes

    def hashed(self, previous: bytes) -> "Row":
        seal = self.hash[HASH:]
        of_body = covered(seal, self.body)
        new = chained(previous[:HASH], self.seq, self.at, self.kind, self.run, self.effect, of_body)
        return self._replace(hash=new + seal)


class Ledger(NamedTuple):
    path: str  # of the store
    place: Path  # for everything beside it
    read: Callable[[], list[Row]]
    write: Callable[[Sequence[Row]], None]

    @property
    def anchors(self) -> Path:
        return self.place / "anchors"

    @property
    def key(self) -> Path:
        return self.place / "audit.key"

    def change(self, tamper: Callable[[list[Row]], list[Row]]) -> None:
        self.write(tamper(self.read()))

    def verified(self, *places: str, key: bool = True) -> AnchorCheck:
        with takeback.open(self.path, recover=False) as tb:
            trusted = [f"{self.key}.pub"] if key else []
            return proof.check_anchors(opened_of(tb), *places, keys=trusted)


def filled(path: str, place: Path, records: int = RECORDS, anchors: int = ANCHORS) -> None:
    keys.make(os.fspath(place / "audit.key"), path)
    with takeback.open(path) as tb:
        for number in range(anchors):
            recorded(tb, records, number)
            made = proof.anchor(
                opened_of(tb), f"file:{place / 'anchors'}", key=os.fspath(place / "audit.key")
            )
            assert made.anchor.number == number + 1
            assert not made.failed
        recorded(tb, 3, anchors)


def recorded(tb: Takeback, count: int, series: int) -> None:
    drafts = [
        Draft(Kind.STOP, STORE, "", {"agent": f"a{series}-{number}", "why": "x" * 80})
        for number in range(count)
    ]
    tb.store.journal.append(None, drafts)


def chain_again(rows: Sequence[Row], start: int = 1) -> list[Row]:
    """As whoever knows the formula writes it: numbered and hashed again from there on."""
    previous = rows[start - 2].hash if start > 1 else GENESIS
    found = list(rows[: start - 1])
    for seq, row in enumerate(rows[start - 1 :], start):
        row = row._replace(seq=seq).hashed(previous)
        found.append(row)
        previous = row.hash
    return found


# On disk, and in PostgreSQL.


def _row(values: Sequence[Any]) -> Row:
    seq, kind, run, effect, at, body, hash = values
    return Row(seq, kind, run, effect, at, whole(body if isinstance(body, str) else bytes(body)), bytes(hash))


def on_disk(path: Path, place: Path) -> Ledger:
    def connected() -> sqlite3.Connection:
        return sqlite3.connect(path / "journal.db", isolation_level=None)

    def read() -> list[Row]:
        connection = connected()
        try:
            return [_row(one) for one in connection.execute(f"SELECT {COLUMNS} FROM records ORDER BY seq")]
        finally:
            connection.close()

    def write(rows: Sequence[Row]) -> None:
        connection = connected()
        try:
            connection.execute("DROP TRIGGER IF EXISTS records_are_final")
            connection.execute("DROP TRIGGER IF EXISTS records_stay")
            connection.execute("BEGIN")
            connection.execute("DELETE FROM records")
            connection.executemany(
                f"INSERT INTO records ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(*one[:5], shortened(one.body), one.hash) for one in rows],
            )
            connection.execute("COMMIT")
        finally:
            connection.close()

    return Ledger(os.fspath(path), place, read, write)


def in_postgres(database: PgDatabase, place: Path) -> Ledger:
    def read() -> list[Row]:
        with database.connect() as connection:
            return [_row(one) for one in connection.execute(_SELECT.encode())]

    def write(rows: Sequence[Row]) -> None:
        with database.connect() as connection:
            connection.execute("ALTER TABLE takeback_store.records DISABLE TRIGGER ALL")
            connection.execute("DELETE FROM takeback_store.records")
            with connection.cursor() as cursor:
                cursor.executemany(
                    _INSERT.encode(),
                    [(*one[:5], deflated(one.body), one.hash) for one in rows],
                )

    return Ledger(database.url, place, read, write)
