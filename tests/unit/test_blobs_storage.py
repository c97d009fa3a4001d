"""The stored blobs under trouble: failing disks, processes that die anywhere, several at once."""

import errno
import itertools
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from takeback.errors import BlobDamaged, Corrupt, ResourceUnreachable, StoreBusy
from takeback.storage.blobs.codec import SEGMENT
from takeback.storage.blobs.packs import HEADER, packs_in
from takeback.storage.blobs.stored import StoredBlobs, create
from takeback.storage.sqlite.database import SqliteDatabase
from takeback.testing.blobs_suite import edits, name, noise, raised, text, whole

KILLED = 137


@pytest.fixture
def store(tmp_path: Path) -> str:
    database = SqliteDatabase(str(tmp_path / "journal.db"))
    create(database, str(tmp_path / "blobs"))
    database.close()
    return str(tmp_path)


Open = Callable[[str], tuple[SqliteDatabase, StoredBlobs]]


@pytest.fixture
def opened() -> Iterator[Open]:
    made: list[tuple[SqliteDatabase, StoredBlobs]] = []

    def open_store(store: str) -> tuple[SqliteDatabase, StoredBlobs]:
        database = SqliteDatabase(f"{store}/journal.db")
        made.append((database, StoredBlobs(database, f"{store}/blobs")))
        return made[-1]

    yield open_store
    for database, blobs in made:
        blobs.close()
        database.close()


@pytest.fixture
def blobs(store: str, opened: Open) -> StoredBlobs:
    return opened(store)[1]


def packs(store: str) -> list[int]:
    return packs_in(f"{store}/blobs/packs")


def rows(store: str, sql: str) -> list[Any]:
    connection = sqlite3.connect(f"{store}/journal.db")
    try:
        with connection:
            return connection.execute(sql).fetchall()
    finally:
        connection.close()


class Nth:
    """The n-th of these calls does not go through; which one it was is counted over all of them."""

    def __init__(self, n: int, act: Callable[[str], None], persistent: bool = False) -> None:
        self.left = n
        self.act = act
        self.persistent = persistent
        self.fired = False

    def patch(self, patch: pytest.MonkeyPatch, calls: tuple[str, ...]) -> None:
        for call in calls:
            patch.setattr(os, call, self.wrapped(call, getattr(os, call)))

    def wrapped(self, call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == 0 or (self.persistent and self.left < 0):
                self.fired = True
                self.act(call)
            return real(*arguments, **named)

        return instead


CALLS = ("write", "fsync", "open", "pread", "unlink", "mkdir")
OLD = [*edits(text(9000), 6), noise(100_000, 1), noise(SEGMENT + 9, 2), noise(3 << 20, 3), noise(200_000, 4)]
NEW = [b"small", noise(90_000, 10), noise(SEGMENT + 5, 11), *edits(text(9000), 3)]


def fill(blobs: StoredBlobs) -> list[str]:
    digests = [blobs.put(content, like=f"file:///{number // 6}") for number, content in enumerate(OLD)]
    blobs.sync()
    return digests


def everything(blobs: StoredBlobs, live: list[str]) -> None:
    """Put, commit, sweep: each part of what touches the disk."""
    for content in NEW:
        blobs.put(content, like="file:///0")
    blobs.sync()
    blobs.sweep(lambda: live, 0)


@pytest.fixture
def copies(opened: Open, store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same store again and again, with something to sweep; the live ones are OLD[3:8]."""
    database, blobs = opened(store)
    fill(blobs)
    blobs.close()
    database.close()
    return (shutil.copytree(store, tmp_path_factory.mktemp("copy") / "store") for _ in itertools.count())


LIVE = [name(content) for content in OLD[3:8]]


def assert_sound_after_the_next_sweep(opened: Open, store: str) -> None:
    database, blobs = opened(store)
    for read_data in (False, True):
        assert list(blobs.check(read_data)) == []
        for digest, content in zip(LIVE, OLD[3:8], strict=True):
            assert whole(blobs, digest) == content
        blobs.sweep(lambda: LIVE, 0)
    assert set(packs(store)) == {row[0] for row in rows(store, "SELECT DISTINCT pack FROM blob_places")}
    blobs.close()
    database.close()
    shutil.rmtree(store)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("code", "persistent"),
    [(errno.EIO, False), (errno.EIO, True), (errno.ENOSPC, True), (errno.EACCES, False)],
)
def test_whichever_call_to_the_disk_fails_nothing_live_is_lost(
    opened: Open, copies: Iterator[str], code: int, persistent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(call: str) -> None:
        raise OSError(code, os.strerror(code))

    failures = 0
    for n in itertools.count(1):
        store = next(copies)
        database, blobs = opened(store)
        nth = Nth(n, fail, persistent)
        with monkeypatch.context() as patch:
            nth.patch(patch, CALLS)
            error = raised(lambda blobs=blobs: everything(blobs, LIVE))
        if error:
            failures += 1
            assert isinstance(error, (ResourceUnreachable, Corrupt)) and error.hint
        blobs.close()
        database.close()
        assert_sound_after_the_next_sweep(opened, store)
        if not nth.fired:
            break
    assert n > 20, "the loop must have reached the disk"
    assert failures > (10 if code == errno.ENOSPC else 20)  # a sweep on a full disk does without copying


def test_killed_at_any_call_of_put_or_sweep_the_next_sweep_finishes_the_work(
    opened: Open, copies: Iterator[str]
) -> None:
    for n in itertools.count(1):
        store = next(copies)
        child = os.fork()
        if child == 0:
            Nth(n, lambda _: os._exit(KILLED)).patch(pytest.MonkeyPatch(), CALLS)
            everything(opened(store)[1], LIVE)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert_sound_after_the_next_sweep(opened, store)
        if status == 0:
            break
        assert status == KILLED
    assert n > 30, "every call must have been a point to die at"


def test_a_failed_fsync_refuses_the_commit_and_marks_the_store_suspect(
    opened: Open, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, blobs = opened(store)
    alarms: list[str] = []
    database.on_io_error = lambda: alarms.append("suspect")
    digest = blobs.put(noise(100_000))

    def failing(handle: int) -> None:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(ResourceUnreachable):
            blobs.sync()
    assert alarms == ["suspect"]
    # The kernel would now say yes to an fsync of the same file; the store must not believe it.
    with pytest.raises(ResourceUnreachable):
        blobs.sync()
    assert rows(store, "SELECT count(*) FROM blobs") == [(0,)]
    blobs.put(noise(100_000))
    blobs.sync()
    assert whole(opened(store)[1], digest) == noise(100_000)


def test_what_could_not_be_made_durable_can_be_given_up(
    opened: Open, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, blobs = opened(store)
    blobs.put(noise(100_000))

    def failing(handle: int) -> None:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(ResourceUnreachable):
            blobs.sync()
    blobs.discard()
    with database.write():
        pass
    assert not blobs.has(name(noise(100_000)))


def test_a_small_put_costs_no_file_and_no_commit_of_its_own(store: str, blobs: StoredBlobs) -> None:
    for version in edits(text(4096), 20):
        blobs.put(version, like="file:///a")
    assert packs(store) == [] and rows(store, "SELECT count(*) FROM blobs") == [(0,)]


def test_many_small_puts_go_to_one_pack(opened: Open, store: str, blobs: StoredBlobs) -> None:
    contents = [noise(2000, seed) for seed in range(1000)]
    digests = [blobs.put(content) for content in contents]
    assert [whole(blobs, digest) for digest in digests] == contents
    blobs.sync()
    assert len(packs(store)) == 1
    other = opened(store)[1]
    assert [whole(other, digest) for digest in digests] == contents


def test_a_read_that_a_sweep_elsewhere_overtakes_still_succeeds(
    opened: Open, store: str, blobs: StoredBlobs
) -> None:
    """Every row moves to another pack between two reads of one long blob."""
    keep, loose = noise(3 * SEGMENT, 1), noise(3 * SEGMENT, 2)
    digest = blobs.put(keep)
    blobs.put(loose)
    blobs.sync()
    reading = blobs.read(digest)
    first = next(reading)
    before = packs(store)
    opened(store)[1].sweep(lambda: [digest], 0)
    assert packs(store) != before
    assert first + b"".join(reading) == keep


def test_only_one_sweep_at_a_time(opened: Open, store: str, blobs: StoredBlobs) -> None:
    other = opened(store)[1]

    def live() -> list[str]:
        with pytest.raises(StoreBusy):
            other.sweep(lambda: (), 0)
        return []

    blobs.sweep(live, 0)


def test_small_packs_are_put_together(opened: Open, store: str, blobs: StoredBlobs) -> None:
    digests: list[str] = []
    for seed in range(6):
        database, one = opened(store)
        digests.append(one.put(noise(100_000, seed)))
        one.sync()
        one.close()
        database.close()
    assert len(packs(store)) == 6
    blobs.sweep(lambda: digests, 0)
    assert len(packs(store)) == 1
    assert [whole(blobs, digest) for digest in digests] == [noise(100_000, seed) for seed in range(6)]


def test_sweep_stays_away_from_a_pack_that_holds_a_damaged_needed_blob(
    opened: Open, store: str, blobs: StoredBlobs
) -> None:
    """It is reported, and what can still be read of it is not thrown away."""
    needed, loose = blobs.put(noise(100_000, 1)), blobs.put(noise(300_000, 2))
    blobs.sync()
    (pack,) = packs(store)
    with open(f"{store}/blobs/packs/{pack:012x}.pack", "r+b") as file:
        file.seek(5000)
        file.write(b"????")
    other = opened(store)[1]
    other.sweep(lambda: [needed], 0)
    assert not other.has(loose) and other.has(needed) and packs(store) == [pack]
    assert [needed in sentence for sentence in other.check(True)] == [True]
    other.put(noise(100_000, 1))


def test_sweep_refuses_to_judge_by_a_damaged_list(opened: Open, store: str, blobs: StoredBlobs) -> None:
    leaf = blobs.put(b"leaf")
    tree = blobs.put(b"tree", refs=[leaf])
    long = blobs.put(noise(SEGMENT + 1))
    blobs.sync()
    for damage in (
        "UPDATE blob_refs SET digests = zeroblob(40)",
        "UPDATE blobs SET data = zeroblob(72) WHERE form = 3",
    ):
        rows(store, damage)
        other = opened(store)[1]
        with pytest.raises(BlobDamaged) as error:
            other.sweep(lambda: [tree, long], 0)
        assert "Nothing was swept" in error.value.hint or "verify" in error.value.hint
        assert other.has(leaf) and list(other.check(False))
        rows(store, "DELETE FROM blob_refs")


def test_every_loss_is_reported_without_reading_the_data(
    opened: Open, store: str, blobs: StoredBlobs
) -> None:
    lost = [blobs.put(noise(100_000, seed)) for seed in range(3)]
    piece = noise(SEGMENT, 9)
    long = blobs.put(piece + b"end")
    base, *_, last = (blobs.put(version, like="file:///a") for version in edits(text(9000), 4))
    leaf = blobs.put(b"leaf")
    tree = blobs.put(b"tree", refs=[leaf])
    blobs.sync()
    for pack in packs(store):
        os.unlink(f"{store}/blobs/packs/{pack:012x}.pack")
    for digest in (name(b"end"), base, leaf):
        rows(store, f"DELETE FROM blobs WHERE digest = x'{digest}'")
    found = list(opened(store)[1].check(False))
    for digest in (*lost, long, name(piece), tree):
        assert any(digest in sentence for sentence in found), digest
    assert len(found) == len(lost) + 4
    assert len(list(opened(store)[1].check(True))) == len(lost) + 4 + 2
    assert last


def test_rows_that_stand_on_each_other_in_a_circle_are_damage_not_a_hang(
    opened: Open, store: str, blobs: StoredBlobs
) -> None:
    one, two = (blobs.put(version, like="file:///a") for version in edits(text(9000), 2))
    blobs.sync()
    rows(
        store,
        f"UPDATE blobs SET form = 2, base = (SELECT id FROM blobs WHERE digest = x'{two}') WHERE digest = x'{one}'",
    )
    with pytest.raises(BlobDamaged):
        whole(opened(store)[1], two)


def test_a_store_opened_for_reading_refuses_a_put(store: str, blobs: StoredBlobs) -> None:
    digest = blobs.put(b"x")
    blobs.sync()
    reading = StoredBlobs(SqliteDatabase(f"{store}/journal.db", read_only=True), f"{store}/blobs")
    assert whole(reading, digest) == b"x"
    with pytest.raises(ResourceUnreachable):
        reading.put(b"y")


def test_a_deleted_store_is_not_made_again_by_a_put(store: str, blobs: StoredBlobs) -> None:
    os.rename(f"{store}/blobs", f"{store}/elsewhere")
    with pytest.raises(ResourceUnreachable):
        blobs.put(noise(100_000))
    assert not os.path.exists(f"{store}/blobs")


def test_the_space_a_long_history_takes_stays_close_to_its_differences(
    opened: Open, store: str, blobs: StoredBlobs
) -> None:
    """Thirty versions of 12 MB of noise that differ in 4 KB each, overwritten or inserted."""
    content = noise(12 << 20)
    for seed in range(1, 31):
        at = seed * 300_000
        replaced = 0 if seed % 3 == 0 else 4096
        content = content[:at] + noise(4096, seed) + content[at + replaced :]
        digest = blobs.put(content, like="file:///big")
        blobs.sync()
    assert whole(opened(store)[1], digest) == content
    assert sum(info.stored for info in blobs.info()) < (12 << 20) * 1.3


def test_memory_does_not_grow_with_the_length_of_the_content(store: str, blobs: StoredBlobs) -> None:
    import resource

    piece = noise(1 << 20)
    digest = blobs.put(piece + bytes([number]) for number in range(20))
    blobs.sync()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    digest = blobs.put(piece + bytes([number]) for number in range(200))
    blobs.sync()
    assert sum(len(part) for part in blobs.read(digest)) == 200 * (len(piece) + 1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_several_processes_put_and_sweep_at_once(opened: Open, store: str) -> None:
    """Each keeps what it put in mind and finds it again; one sweeps all the time, and everything is live."""
    started = os.pipe()
    children: list[int] = []
    for worker in range(3):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.read(started[0], 1)
                _, blobs = opened(store)
                put = {}
                for turn in range(30):
                    content = noise([50, 4000, 100_000][turn % 3], turn % 10 * 10 + worker % 2)
                    put[blobs.put(content, like=f"file:///{turn % 2}")] = content
                    blobs.sync()
                    if worker == 2:
                        blobs.sweep(lambda blobs=blobs: [info.digest for info in blobs.info()], 0)
                status = 0 if all(whole(blobs, digest) == content for digest, content in put.items()) else 2
            finally:
                os._exit(status)
        children.append(child)
    os.write(started[1], b"go!")
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    assert list(opened(store)[1].check(True)) == []


def test_a_version_is_kept_as_the_difference_to_the_one_right_before_it(blobs: StoredBlobs) -> None:
    """A write puts the new content, then what is there; the next one must not build on what was there then."""
    lines = "".join(f"option {number} = {os.urandom(8).hex()}\n" for number in range(300))
    versions = [f"{lines}version {number} {os.urandom(8).hex()}\n".encode() for number in range(4)]
    put = [blobs.put(versions[0], like="file:///a")]
    blobs.sync()
    for before, new in itertools.pairwise(versions):
        put.append(blobs.put(new, like="file:///a"))
        blobs.put(before, like="file:///a")
        blobs.sync()
    assert [next(blobs.info([digest])).base for digest in put] == ["", *put[:-1]]


def test_what_another_process_swept_is_written_anew_though_it_was_put_here_lately(
    store: str, opened: Open
) -> None:
    _, here = opened(store)
    digest = here.put(b"lately" * 100, like="file:///a")
    here.sync()
    _, elsewhere = opened(store)
    assert elsewhere.sweep(lambda: (), grace=0) > 0

    assert here.put(b"lately" * 100, like="file:///a") == digest
    here.sync()
    _, later = opened(store)
    assert b"".join(later.read(digest)) == b"lately" * 100


def flip(store: str, blob: str) -> None:
    """One bit in the middle of its data; the header stays right."""
    ((pack, position, length),) = rows(
        store,
        f"SELECT pack, position, length FROM blob_places JOIN blobs USING (id) WHERE digest = x'{blob}'",
    )
    with open(f"{store}/blobs/packs/{pack:012x}.pack", "r+b") as file:
        file.seek(position + HEADER.size + length // 2)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes((byte ^ 1,)))


@pytest.mark.parametrize("length", [70_000, 300_000, 1_500_000, SEGMENT + 70_000])
def test_content_put_again_replaces_a_stored_copy_whose_bytes_are_damaged(
    store: str, opened: Open, length: int
) -> None:
    content = noise(length)
    _, first = opened(store)
    digest = first.put(content)
    first.sync()
    flip(store, name(content[:SEGMENT]))
    assert list(opened(store)[1].check(True))

    _, second = opened(store)
    assert second.put(content) == digest
    second.sync()

    _, third = opened(store)
    assert whole(third, digest) == content
    assert list(third.check(True)) == []


def test_a_difference_to_a_damaged_blob_is_kept_anew_when_its_content_is_put_again(
    store: str, opened: Open
) -> None:
    _, first = opened(store)
    base, new = noise(300_000), noise(300_000)[:200_000] + noise(100_000, 1)
    below, above = first.put(base, like="file:///a"), first.put(new, like="file:///a")
    first.sync()
    assert next(first.info([above])).base == below
    flip(store, below)

    _, second = opened(store)
    second.put(new, like="file:///a")
    newest = second.put(new + b"and another", like="file:///a")
    second.sync()

    _, third = opened(store)
    assert whole(third, above) == new
    assert whole(third, newest) == new + b"and another"


def test_a_blob_that_is_healed_never_stands_on_a_difference_to_itself(store: str, opened: Open) -> None:
    _, blobs = opened(store)
    base, new = noise(300_000), noise(300_000) + b"one more line"
    below, above = blobs.put(base, like="file:///a"), blobs.put(new, like="file:///a")
    blobs.sync()
    flip(store, below)
    for seed in range(1, 5):  # until the base is out of memory; the difference to it is not
        assert whole(blobs, above) == new
        blobs.put(noise(SEGMENT, seed), like=f"file:///{seed}")

    blobs.put(base, like="file:///a")
    blobs.sync()

    _, later = opened(store)
    assert whole(later, below) == base and whole(later, above) == new


def test_what_was_put_for_nothing_is_swept_at_once_unless_someone_else_put_it_too(
    store: str, opened: Open
) -> None:
    _, blobs = opened(store)
    refused, again = blobs.put(noise(100_000, 1)), blobs.put(noise(100_000, 2))
    other: list[str] = []
    for seed in (3, 2):
        thread = Thread(target=lambda seed=seed: other.append(blobs.put(noise(100_000, seed))))
        thread.start()
        thread.join()
    blobs.disown()
    retried = blobs.put(b"retried")
    blobs.disown()
    assert blobs.put(b"retried") == retried
    blobs.sync()

    assert opened(store)[1].sweep(lambda: (), grace=600) > 90_000

    _, later = opened(store)
    assert [later.has(one) for one in (refused, again, other[0], retried)] == [False, True, True, True]
