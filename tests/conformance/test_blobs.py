"""The shipped suite for every implementation, and random histories against a plain dictionary."""

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from takeback.errors import StoreBusy
from takeback.storage.blobs.stored import StoredBlobs, create
from takeback.storage.postgres.blobs import BlobObjectStore, Objects, PostgresShelf, name_of
from takeback.storage.postgres.database import PostgresDatabase
from takeback.storage.protocols import Blobs
from takeback.storage.sqlite.database import SqliteDatabase
from takeback.testing.blobs_suite import BlobsSuite, DurableBlobsSuite, name, noise, text, whole
from tests.conformance.postgres_scene import PostgresScene
from tests.memory import MemoryBlobs
from tests.servers.postgres import PgDatabase


class Clock:
    def __init__(self) -> None:
        self.seconds = 1_700_000_000

    def __call__(self) -> int:
        return self.seconds * 1_000_000


class MemoryScene:
    def __init__(self) -> None:
        self.clock = Clock()
        self.blobs = MemoryBlobs(self.clock)

    def commit(self) -> None: ...

    def fail_to_commit(self) -> None: ...

    def other(self) -> Blobs:
        return self.blobs

    def damage(self, digest: str) -> None:
        kept = self.blobs.kept[digest]
        self.blobs.kept[digest] = kept._replace(content=flipped(kept.content))

    def wait(self, seconds: int) -> None:
        self.clock.seconds += seconds


class StoredScene:
    def __init__(self, directory: Path) -> None:
        self.directory = str(directory / "store")
        self.clock = Clock()
        os.mkdir(self.directory, 0o700)
        database = SqliteDatabase(f"{self.directory}/journal.db")
        create(database, f"{self.directory}/blobs")
        database.close()
        self.opened: list[tuple[SqliteDatabase, StoredBlobs]] = []
        self.database, self.blobs = self.open()

    def open(self) -> tuple[SqliteDatabase, StoredBlobs]:
        database = SqliteDatabase(f"{self.directory}/journal.db")
        blobs = StoredBlobs(database, f"{self.directory}/blobs", self.clock)
        self.opened.append((database, blobs))
        return database, blobs

    def commit(self) -> None:
        with self.database.write():
            pass

    def fail_to_commit(self) -> None:
        with pytest.raises(ZeroDivisionError), self.database.write():
            raise ZeroDivisionError

    def other(self) -> StoredBlobs:
        return self.open()[1]

    def die(self) -> None:
        self.close()
        self.database, self.blobs = self.open()

    def damage(self, digest: str) -> None:
        connection = sqlite3.connect(f"{self.directory}/journal.db")
        id, form, data, pack, position = connection.execute(
            "SELECT blobs.id, form, data, pack, position FROM blobs LEFT JOIN blob_places USING (id) "
            "WHERE digest = ?",
            (bytes.fromhex(digest),),
        ).fetchone()
        if form == 3:
            connection.close()
            return self.damage(data[32:64].hex())
        if data is not None:
            connection.execute("UPDATE blobs SET data = ? WHERE id = ?", (flipped(data), id))
            connection.commit()
        else:
            with open(f"{self.directory}/blobs/packs/{pack:012x}.pack", "r+b") as file:
                file.seek(position + 92 + 10)
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(flipped(byte))
        connection.close()

    def wait(self, seconds: int) -> None:
        self.clock.seconds += seconds
        for pack in Path(self.directory, "blobs", "packs").iterdir():
            times = pack.stat()
            os.utime(pack, (times.st_atime, min(times.st_mtime, self.clock.seconds) - seconds))

    def size(self) -> int:
        return sum(
            os.path.getsize(os.path.join(folder, file))
            for folder, _, files in os.walk(self.directory)
            for file in files
            if not file.endswith("-shm")
        )

    def close(self) -> None:
        for database, blobs in self.opened:
            blobs.close()
            database.close()
        self.opened.clear()


class PostgresBlobsScene:
    def __init__(self, server: PgDatabase) -> None:
        self.postgres = PostgresScene(server)
        self.clock = Clock()
        self.made: list[StoredBlobs] = []
        self.database, self.blobs = self.open()

    def objects(self) -> Objects | None:
        return None

    def open(self) -> tuple[PostgresDatabase, StoredBlobs]:
        database = self.postgres.database()
        shelf = PostgresShelf(database, self.objects(), self.clock)
        self.made.append(StoredBlobs(database, "", self.clock, shelf))
        return database, self.made[-1]

    def commit(self) -> None:
        with self.database.write():
            pass

    def fail_to_commit(self) -> None:
        with pytest.raises(ZeroDivisionError), self.database.write():
            raise ZeroDivisionError

    def other(self) -> StoredBlobs:
        return self.open()[1]

    def die(self) -> None:
        self.close()
        self.database, self.blobs = self.open()

    def damage(self, digest: str) -> None:
        ((id, form, data, pack, position),) = self.database.read(
            "SELECT blobs.id, form, data, pack, position FROM blobs LEFT JOIN blob_places USING (id) WHERE digest = ?",
            (bytes.fromhex(digest),),
        )
        if form == 3:
            self.damage(data[32:64].hex())
        elif data is not None:
            self.postgres.behind_its_back("UPDATE blobs SET data = %s WHERE id = %s", (flipped(data), id))
        else:
            self.damage_on_shelf(pack, position)

    def damage_on_shelf(self, pack: int, position: int) -> None:
        self.postgres.behind_its_back(
            "UPDATE shelf SET data = set_byte(data, 102, 255 - get_byte(data, 102)) WHERE pack = %s AND position = %s",
            (pack, position),
        )

    def wait(self, seconds: int) -> None:
        self.clock.seconds += seconds

    def size(self) -> int:
        """What the server keeps for it, without what it will use again."""
        ((kept,),) = self.database.read(
            "SELECT (SELECT coalesce(sum(octet_length(data)), 0) FROM blobs)"
            " + (SELECT coalesce(sum(length), 0) FROM shelf)"
        )
        return int(kept)

    def close(self) -> None:
        for blobs in self.made:
            blobs.close()
        self.made.clear()
        self.postgres.close()


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


class TestMemoryBlobs(BlobsSuite):
    @pytest.fixture
    def scene(self) -> MemoryScene:
        return MemoryScene()


@pytest.mark.sampled(6, whole=True)
class TestPostgresBlobs(DurableBlobsSuite):
    @pytest.fixture
    def scene(self, pg_store_database: PgDatabase) -> Iterator[PostgresBlobsScene]:
        scene = PostgresBlobsScene(pg_store_database)
        yield scene
        scene.close()


class ObjectsScene(PostgresBlobsScene):
    def __init__(self, server: PgDatabase, bucket: str) -> None:
        self.bucket = bucket
        super().__init__(server)

    def objects(self) -> BlobObjectStore:
        return BlobObjectStore(self.bucket)

    def damage_on_shelf(self, pack: int, position: int) -> None:
        name = name_of(pack, position)
        data = bytearray(self.objects().get(name))
        data[102] ^= 255
        self.objects().put(name, bytes(data))


@pytest.mark.sampled(8, whole=True)
class TestBlobsInAnObjectStore(DurableBlobsSuite):
    @pytest.fixture
    def scene(self, pg_store_database: PgDatabase, bucket: str) -> Iterator[ObjectsScene]:
        scene = ObjectsScene(pg_store_database, bucket)
        yield scene
        scene.close()

    def test_large_blobs_are_there_and_nowhere_else_and_go_with_a_sweep(self, scene: ObjectsScene) -> None:
        digest = scene.blobs.put(noise(300_000))
        scene.commit()
        ((pack, position, data),) = scene.database.read("SELECT pack, position, data FROM shelf")
        assert data is None
        assert len(scene.objects().get(name_of(pack, position))) > 300_000
        assert whole(scene.other(), digest) == noise(300_000)
        scene.blobs.sweep(lambda: (), 0)
        with pytest.raises(FileNotFoundError):
            scene.objects().get(name_of(pack, position))


class TestStoredBlobs(DurableBlobsSuite):
    @pytest.fixture
    def scene(self, tmp_path: Path) -> Iterator[StoredScene]:
        scene = StoredScene(tmp_path)
        yield scene
        scene.close()


CONTENTS = st.one_of(
    st.binary(max_size=200),
    st.builds(noise, st.sampled_from([5000, 70_000, 300_000]), st.integers(0, 3)),
    st.builds(text, st.integers(0, 40_000), st.integers(0, 2)),
    st.builds(lambda a, b: text(9000)[:a] + b + text(9000)[a:], st.integers(0, 9000), st.binary(max_size=30)),
    st.builds(lambda at: noise(4 << 20)[:at] + b"!" + noise(4 << 20)[at:], st.integers(0, 4 << 20)),
)


class Histories(RuleBasedStateMachine):
    """In whatever order: what was committed and is live can be read, and the store is always sound."""

    put_before = Bundle("put_before")

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.scene = StoredScene(Path(self.directory.name))
        self.held: dict[str, bytes] = {}
        self.committed: dict[str, bytes] = {}
        self.parents: dict[str, set[str]] = {}
        self.held_parents: dict[str, set[str]] = {}

    @rule(target=put_before, content=CONTENTS, like=st.sampled_from(["", "a", "b"]))
    def put(self, content: bytes, like: str) -> str:
        digest = self.scene.blobs.put(content, like)
        assert digest == name(content)
        self.held[digest] = content
        return digest

    @rule(target=put_before, content=st.binary(max_size=20), ref=put_before)
    def put_with_a_reference(self, content: bytes, ref: str) -> str:
        if not self.scene.blobs.has(ref) or name(content) == ref:
            return self.put(content, "")
        digest = self.scene.blobs.put(content, refs=[ref])
        self.held[digest] = content
        self.held_parents.setdefault(digest, set()).add(ref)
        return digest

    @rule()
    def commit(self) -> None:
        try:
            self.scene.commit()
        except StoreBusy:
            self.put_anew()
            self.scene.commit()
        self.committed |= self.held
        for digest, refs in self.held_parents.items():
            self.parents.setdefault(digest, set()).update(refs)
        self.held.clear()
        self.held_parents.clear()

    def put_anew(self) -> None:
        """A sweep elsewhere took away what a put relied on: giving up and putting again must always help."""
        self.scene.blobs.discard()
        self.held_parents.clear()
        for content in self.held.values():
            self.scene.blobs.put(content)

    @rule()
    def fail_to_commit(self) -> None:
        try:
            self.scene.fail_to_commit()
        except StoreBusy:
            self.put_anew()
            self.scene.fail_to_commit()

    @rule()
    def die(self) -> None:
        self.scene.die()
        self.held.clear()
        self.held_parents.clear()

    @rule(data=st.data(), elsewhere=st.booleans())
    def sweep(self, data: st.DataObject, elsewhere: bool) -> None:
        if not elsewhere:
            self.commit()
        live = (
            set(data.draw(st.lists(st.sampled_from(sorted(self.committed)), unique=True)))
            if self.committed
            else set()
        )
        blobs: Any = self.scene.other() if elsewhere else self.scene.blobs
        held = {one.digest for one in blobs.info()}
        least = blobs.sweep(lambda: live, 0, dry_run=True)
        assert {one.digest for one in blobs.info()} == held
        assert blobs.sweep(lambda: live, 0) >= least
        waiting, needed = list(live), set[str]()
        while waiting:
            one = waiting.pop()
            if one not in needed:
                needed.add(one)
                waiting += self.parents.get(one, set())
        self.committed = {digest: content for digest, content in self.committed.items() if digest in needed}
        # What was swept and is put again refers only to what it is put with then.
        self.parents = {digest: refs for digest, refs in self.parents.items() if digest in needed}

    @invariant()
    def everything_committed_is_there(self) -> None:
        for digest, content in self.committed.items():
            assert whole(self.scene.blobs, digest) == content

    def teardown(self) -> None:
        assert list(self.scene.other().check(True)) == []
        for digest, content in self.committed.items():
            assert whole(self.scene.other(), digest) == content
        self.scene.close()
        self.directory.cleanup()


SETTINGS = settings(stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
TestHistories = Histories.TestCase
TestHistories.settings = settings(SETTINGS, max_examples=10)


@pytest.mark.slow
class TestManyHistories(Histories.TestCase):
    settings = settings(SETTINGS, max_examples=100)
