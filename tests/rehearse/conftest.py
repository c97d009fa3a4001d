"""A store and a world, and the pictures that show that a rehearsal touched neither."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.api import Takeback
from takeback.model.rehearsal import Rehearsal, Viability
from tests.world import World


@pytest.fixture
def tb(store: Path) -> Iterator[Takeback]:
    with takeback.open(store) as opened:
        yield opened


class Untouched:
    """What a rehearsal must leave as it is: each property of the world, with the inodes, and every record."""

    def __init__(self, tb: Takeback, world: World) -> None:
        self.tb, self.world = tb, world
        self.before = self.seen()

    def seen(self) -> Any:
        paths = sorted(self.world.root.rglob("*"))
        inodes = [(str(one), os.lstat(one).st_ino, os.lstat(one).st_ctime_ns) for one in paths]
        return self.world.picture(directory_times=True), inodes

    def records(self) -> list[str]:
        return [record.kind.value for record in self.tb.store.journal.records()]


def proofs(found: Rehearsal) -> list[Viability]:
    return [one.outcome for one in found.rehearsed]


def lose_blob(store: Path, digest: str) -> None:
    """As a disk that lost it would."""
    with closing(sqlite3.connect(store / "journal.db")) as connection:
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            if any(row[1] == "digest" for row in connection.execute(f"PRAGMA table_info({name})"))
        ]
        gone = 0
        for name in tables:
            gone += connection.execute(
                f"DELETE FROM {name} WHERE digest = ? OR digest = ?", (digest, bytes.fromhex(digest))
            ).rowcount
        connection.commit()
    assert gone
