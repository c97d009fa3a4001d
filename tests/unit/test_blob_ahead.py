"""Many blobs read in the order they were put cost few questions, and never a wrong answer."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from takeback.errors import BlobMissing
from takeback.storage.blobs.stored import StoredBlobs, create
from takeback.storage.sqlite.database import SqliteDatabase

MANY = 600


class Counting(SqliteDatabase):
    """Counts what is asked of it."""

    asked = 0

    def read(self, sql, values=()):
        self.asked += 1
        return super().read(sql, values)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Counting]:
    database = Counting(str(tmp_path / "journal.db"))
    create(database, str(tmp_path / "blobs"))
    yield database
    database.close()


@pytest.fixture
def blobs(database: Counting, tmp_path: Path) -> Iterator[StoredBlobs]:
    blobs = StoredBlobs(database, str(tmp_path / "blobs"))
    yield blobs
    blobs.close()


def contents(number: int = MANY) -> list[bytes]:
    """Too much to be held for the next commit, so it goes to a pack."""
    return [os.urandom(1000) for _ in range(number)]


def put(blobs: StoredBlobs, several: list[bytes]) -> list[str]:
    digests = [blobs.put(content) for content in several]
    blobs.sync()
    return digests


def read(blobs: StoredBlobs, digests: list[str]) -> list[bytes]:
    return [b"".join(blobs.read(digest)) for digest in digests]


def fresh(database: Counting, tmp_path: Path) -> StoredBlobs:
    database.asked = 0
    return StoredBlobs(database, str(tmp_path / "blobs"))


def test_in_the_order_of_putting_a_read_asks_far_less_than_once_a_blob(
    database: Counting, blobs: StoredBlobs, tmp_path: Path
) -> None:
    several = contents()
    digests = put(blobs, several)
    other = fresh(database, tmp_path)
    assert read(other, digests) == several
    assert database.asked < MANY / 10


def test_in_any_other_order_it_asks_hardly_more_than_once_a_blob(
    database: Counting, blobs: StoredBlobs, tmp_path: Path
) -> None:
    several = contents()
    digests = put(blobs, several)
    order = [number * 7919 % MANY for number in range(MANY)]
    other = fresh(database, tmp_path)
    assert read(other, [digests[number] for number in order]) == [several[number] for number in order]
    assert database.asked < MANY * 1.4


def test_one_read_costs_one_question(database: Counting, blobs: StoredBlobs, tmp_path: Path) -> None:
    digests = put(blobs, contents())
    other = fresh(database, tmp_path)
    read(other, digests[:1])
    assert database.asked == 1


def test_what_a_sweep_elsewhere_moved_or_took_since_is_looked_up_again(
    database: Counting, blobs: StoredBlobs, tmp_path: Path
) -> None:
    several = contents()
    digests = put(blobs, several)
    other = fresh(database, tmp_path)
    reading = 40  # in the middle of what was looked up ahead
    assert read(other, digests[:reading]) == several[:reading]
    kept = [digest for number, digest in enumerate(digests) if number % 2]
    assert blobs.sweep(lambda: kept, 0) > 0
    gone = 0
    for number in range(reading, MANY):
        try:
            assert read(other, [digests[number]]) == [several[number]]
        except BlobMissing:
            gone += 1
            assert number % 2 == 0
    assert gone > MANY // 3
