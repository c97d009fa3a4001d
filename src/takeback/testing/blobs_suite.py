"""What every `Blobs` must do, and what one must that outlives its process and keeps versions as differences.

Inherit a suite in a test module and give it a `scene`:

class TestMine(DurableBlobsSuite):
    @pytest.fixture
    def scene(self, tmp_path): return MyScene(tmp_path)
"""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol

from takeback.errors import BlobDamaged, BlobMissing, TakebackError
from takeback.model.content import name_of
from takeback.storage.protocols import Blobs

MEGABYTE = 1 << 20
SEGMENT = 4 * MEGABYTE
EDGES = (
    0, 1, 7, 8, 31, 32, 4096, 65535, 65536, 65537, 262144, SEGMENT - 1, SEGMENT, SEGMENT + 1, 2 * SEGMENT
)  # fmt: skip


class BlobsScene(Protocol):
    """One store and what can happen to it."""

    @property
    def blobs(self) -> Blobs: ...

    def commit(self) -> None:
        """A transaction of the same store ends well, as `Journal.append` does."""
        ...

    def fail_to_commit(self) -> None:
        """A transaction of the same store begins, and is rolled back."""
        ...

    def other(self) -> Blobs:
        """The same store as another process sees it."""
        ...

    def damage(self, digest: str) -> None:
        """Change a byte of what is kept for this blob."""
        ...

    def wait(self, seconds: int) -> None:
        """Let the clock run."""
        ...


def noise(length: int, seed: int = 0) -> bytes:
    """Incompressible, the same every time."""
    return random.Random(seed).randbytes(length)


def text(length: int, seed: int = 0) -> bytes:
    lines = random.Random(seed)
    made = b"".join(
        b"option_%d = %d  # how long to wait\n" % (n, lines.randrange(10**6)) for n in range(length // 30)
    )
    return made[:length]


def edits(content: bytes, count: int) -> Iterator[bytes]:
    """Versions that differ from the one before in a line."""
    chooser = random.Random(1)
    for number in range(count):
        lines = content.split(b"\n")
        lines[chooser.randrange(len(lines))] = b"edited = %d" % number
        content = b"\n".join(lines)
        yield content


def name(content: bytes) -> str:
    return name_of(content).hex()


def whole(blobs: Blobs, digest: str) -> bytes:
    return b"".join(blobs.read(digest))


def committed(scene: BlobsScene, *contents: bytes, like: str = "") -> list[str]:
    digests = [scene.blobs.put(content, like=like) for content in contents]
    scene.commit()
    return digests


def raised(act: Callable[[], object]) -> TakebackError | None:
    try:
        act()
    except TakebackError as error:
        return error
    return None


class BlobsSuite:
    """For every implementation."""

    def test_content_comes_back_under_its_hash_at_every_edge_of_length(self, scene: BlobsScene) -> None:
        for length in EDGES:
            for content in (noise(length), bytes(length)):
                digest = scene.blobs.put(content)
                assert digest == name(content)
                assert whole(scene.blobs, digest) == content, length
        scene.commit()
        for length in EDGES:
            assert whole(scene.other(), name(noise(length))) == noise(length), length

    def test_content_may_come_in_pieces_of_any_length(self, scene: BlobsScene) -> None:
        content = noise(SEGMENT + 77_777)
        for step in (977, 65_536, MEGABYTE, SEGMENT, 2 * SEGMENT):
            pieces = (content[start : start + step] for start in range(0, len(content), step))
            assert scene.blobs.put(pieces) == name(content)
        assert scene.blobs.put(iter([])) == name(b"")
        assert scene.blobs.put(iter([b"", b"a", b"", b"b"])) == name(b"ab")
        scene.blobs.sync()
        assert whole(scene.blobs, name(content)) == content

    def test_a_buffer_used_again_by_the_caller_does_not_change_what_was_put(self, scene: BlobsScene) -> None:
        buffer = bytearray(1000)

        def pieces() -> Iterator[bytes]:
            for number in range(3):
                buffer[:] = bytes([number]) * 1000
                yield buffer  # type: ignore[misc]

        digest = scene.blobs.put(pieces())
        assert whole(scene.blobs, digest) == b"\0" * 1000 + b"\1" * 1000 + b"\2" * 1000

    def test_equal_content_is_kept_once(self, scene: BlobsScene) -> None:
        for like in ("", "file:///a", "file:///b"):
            committed(scene, noise(5000), like=like)
        assert [info.size for info in scene.blobs.info()] == [5000]

    def test_a_put_that_fails_half_way_leaves_nothing_to_be_found(self, scene: BlobsScene) -> None:
        def broken() -> Iterator[bytes]:
            yield noise(SEGMENT + 5)
            raise ValueError("the reader failed")

        with suppress(ValueError):
            scene.blobs.put(broken())
        scene.commit()
        assert not scene.blobs.has(name(noise(SEGMENT + 5)))
        assert list(scene.blobs.check(True)) == []

    def test_every_version_of_a_file_comes_back_exactly(self, scene: BlobsScene) -> None:
        versions = list(edits(text(10_000), 150))
        for number, version in enumerate(versions):
            scene.blobs.put(version, like="file:///config")
            if number % 7 == 0:
                scene.commit()
        scene.commit()
        other = scene.other()
        for version in reversed(versions):
            assert whole(other, name(version)) == version

    def test_versions_that_have_nothing_in_common_come_back_too(self, scene: BlobsScene) -> None:
        versions = [
            noise(3000, 1),
            b"",
            b"x",
            noise(SEGMENT + 9, 2),
            text(500),
            noise(70_000, 3),
            bytes(90_000),
        ]
        for version in versions * 2:
            committed(scene, version, like="file:///odd")
        for version in versions:
            assert whole(scene.other(), name(version)) == version

    def test_a_blob_that_was_never_put_is_missing(self, scene: BlobsScene) -> None:
        for digest in (name(b"never"), "", "zz", "ab", name(b"never").upper()):
            assert not scene.blobs.has(digest)
            error = raised(lambda digest=digest: whole(scene.blobs, digest))
            assert isinstance(error, BlobMissing) and digest in str(error) and error.hint

    def test_a_damaged_blob_is_found_and_named(self, scene: BlobsScene) -> None:
        for content in (b"small", text(3000), noise(3000), noise(100_000), noise(SEGMENT + 1)):
            (digest,) = committed(scene, content)
            scene.damage(digest)
            other = scene.other()
            error = raised(lambda other=other, digest=digest: whole(other, digest))
            assert isinstance(error, BlobDamaged), len(content)
            found = list(other.check(True))
            assert found and all(sentence.endswith(".") for sentence in found), len(content)
            assert digest in str(error)

    def test_putting_the_content_again_heals_a_damaged_blob(self, scene: BlobsScene) -> None:
        for content in (text(3000), noise(3000)):
            (digest,) = committed(scene, content)
            scene.damage(digest)
            other = scene.other()
            assert other.put(content) == digest
            other.sync()
            assert whole(scene.other(), digest) == content
            assert list(scene.other().check(True)) == []

    def test_a_damaged_piece_never_reaches_the_end_of_a_read(self, scene: BlobsScene) -> None:
        content = noise(2 * SEGMENT + 1)
        (digest,) = committed(scene, content)
        scene.damage(digest)
        handed_out = b""
        with suppress(BlobDamaged):
            for piece in scene.other().read(digest):
                handed_out += piece
        assert len(handed_out) < len(content)

    def test_sweep_keeps_what_is_live_and_removes_the_rest(self, scene: BlobsScene) -> None:
        contents = [
            *(noise(2000, seed) for seed in range(20)),
            *(noise(SEGMENT + 2000, seed) for seed in range(4)),
        ]
        digests = committed(scene, *contents)
        live = digests[::2]
        freed = scene.blobs.sweep(lambda: iter(live), 0)
        assert freed > 10 * 2000
        for digest, content in zip(digests, contents, strict=True):
            assert scene.blobs.has(digest) == (digest in live)
            if digest in live:
                assert whole(scene.other(), digest) == content
        assert list(scene.blobs.check(True)) == []
        assert scene.blobs.sweep(lambda: iter(live), 0) == 0

    def test_sweep_does_not_mind_live_names_that_are_not_there(self, scene: BlobsScene) -> None:
        assert scene.blobs.sweep(lambda: [name(b"gone"), "no name"], 0) == 0

    def test_sweep_removes_nothing_when_it_cannot_learn_what_is_live(self, scene: BlobsScene) -> None:
        (digest,) = committed(scene, noise(100))

        def unreadable() -> Iterator[str]:
            yield name(b"one")
            raise BlobDamaged("The journal cannot be read.")

        assert isinstance(raised(lambda: scene.blobs.sweep(unreadable, 0)), BlobDamaged)
        assert whole(scene.other(), digest) == noise(100)

    def test_a_blob_younger_than_the_grace_period_stays(self, scene: BlobsScene) -> None:
        (digest,) = committed(scene, noise(100))
        scene.wait(50)
        scene.blobs.sweep(lambda: (), 60)
        assert scene.blobs.has(digest)
        scene.wait(20)
        scene.blobs.sweep(lambda: (), 60)
        assert not scene.blobs.has(digest)

    def test_putting_a_blob_again_makes_it_young_again(self, scene: BlobsScene) -> None:
        small, large = committed(scene, noise(100), noise(SEGMENT + 1))
        scene.wait(100)
        committed(scene, noise(100), noise(SEGMENT + 1))
        scene.blobs.sweep(lambda: (), 60)
        assert whole(scene.other(), small) == noise(100)
        assert whole(scene.other(), large) == noise(SEGMENT + 1)

    def test_what_a_live_blob_refers_to_lives_with_it(self, scene: BlobsScene) -> None:
        leaves = [
            scene.blobs.put(one) for one in (*(noise(300, seed) for seed in range(5)), noise(SEGMENT + 1))
        ]
        inner = scene.blobs.put(b"a directory", refs=leaves)
        outer = scene.blobs.put(b"a tree", refs=[inner])
        loose = scene.blobs.put(noise(300, 99))
        scene.commit()
        scene.blobs.sweep(lambda: [outer], 0)
        assert all(scene.blobs.has(digest) for digest in (*leaves, inner, outer))
        assert not scene.blobs.has(loose)
        assert whole(scene.other(), leaves[-1]) == noise(SEGMENT + 1)
        scene.blobs.sweep(lambda: [inner], 0)
        assert scene.blobs.has(leaves[0]) and not scene.blobs.has(outer)
        scene.blobs.sweep(lambda: (), 0)
        assert list(scene.blobs.info()) == []

    def test_references_given_later_count_as_well(self, scene: BlobsScene) -> None:
        one, two = scene.blobs.put(b"one"), scene.blobs.put(b"two")
        tree = scene.blobs.put(b"tree", refs=[one])
        scene.commit()
        scene.blobs.put(b"tree", refs=[two])
        scene.commit()
        scene.blobs.sweep(lambda: [tree], 0)
        assert scene.blobs.has(one) and scene.blobs.has(two)

    def test_a_reference_to_nothing_is_refused(self, scene: BlobsScene) -> None:
        error = raised(lambda: scene.blobs.put(b"tree", refs=[name(b"never")]))
        assert isinstance(error, BlobMissing)
        assert not scene.blobs.has(name(b"tree"))

    def test_a_rolled_back_transaction_loses_no_put(self, scene: BlobsScene) -> None:
        contents = [b"small", noise(100_000), noise(SEGMENT + 1), *edits(text(5000), 5)]
        digests = [scene.blobs.put(content, like="file:///a") for content in contents]
        scene.fail_to_commit()
        assert [whole(scene.blobs, digest) for digest in digests] == contents
        scene.fail_to_commit()
        scene.commit()
        assert [whole(scene.other(), digest) for digest in digests] == contents

    def test_put_after_sweep_brings_a_blob_back(self, scene: BlobsScene) -> None:
        for content in (noise(50), noise(SEGMENT + 50)):
            (digest,) = committed(scene, content, like="file:///a")
            scene.blobs.sweep(lambda: (), 0)
            assert not scene.blobs.has(digest)
            committed(scene, content, like="file:///a")
            assert whole(scene.other(), digest) == content

    def test_info_tells_sizes_and_skips_what_is_not_there(self, scene: BlobsScene) -> None:
        digest = scene.blobs.put(noise(5000))
        assert [info.size for info in scene.blobs.info([digest, name(b"never")])] == [5000]
        scene.commit()
        (info,) = scene.blobs.info([digest])
        assert (info.digest, info.size) == (digest, 5000) and 5000 <= info.stored <= 5200


class DurableScene(BlobsScene, Protocol):
    def die(self) -> None:
        """The process ends without a word; the store is opened again."""
        ...

    def size(self) -> int:
        """Bytes on disk."""
        ...


class DurableBlobsSuite(BlobsSuite):
    def test_after_sync_everything_survives_the_process(self, scene: DurableScene) -> None:
        contents = [b"", b"small", noise(100_000), noise(SEGMENT + 1)]
        digests = [scene.blobs.put(content) for content in contents]
        scene.blobs.sync()
        scene.die()
        assert [whole(scene.blobs, digest) for digest in digests] == contents

    def test_a_process_that_dies_before_the_commit_leaves_a_sound_store(self, scene: DurableScene) -> None:
        (kept,) = committed(scene, text(9000), like="file:///a")
        lost = [scene.blobs.put(content) for content in (b"small", noise(100_000), noise(SEGMENT + 1))]
        scene.die()
        assert not any(scene.blobs.has(digest) for digest in lost)
        assert whole(scene.blobs, kept) == text(9000)
        assert list(scene.blobs.check(True)) == []
        scene.wait(10)
        before = scene.size()
        scene.blobs.sweep(lambda: [kept], 5)
        assert scene.size() < before - SEGMENT

    def test_fifty_edits_of_ten_kilobytes_cost_no_more_than_ten(self, scene: DurableScene) -> None:
        digests = committed(scene, *edits(text(10_240), 50), like="file:///a")
        scene.blobs.sweep(lambda: digests, 0)
        assert sum(info.stored for info in scene.blobs.info()) <= 10_240

    def test_an_insertion_into_a_long_file_costs_about_its_length_in_each_piece(
        self, scene: DurableScene
    ) -> None:
        first = noise(3 * SEGMENT)
        committed(scene, first, like="file:///a")
        before = sum(info.stored for info in scene.blobs.info())
        second = first[:1000] + noise(4096, 1) + first[1000:]
        committed(scene, second, like="file:///a")
        assert sum(info.stored for info in scene.blobs.info()) - before < 4 * 8192
        assert whole(scene.other(), name(second)) == second

    def test_a_difference_outlives_what_it_is_a_difference_to(self, scene: DurableScene) -> None:
        for start in (text(10_000), noise(300_000), noise(2 * SEGMENT)):
            versions = [start, *edits(start, 12)]
            digests = committed(scene, *versions, like="file:///a")
            for live in (digests[3:], digests[6::3], digests[-1:]):
                scene.blobs.sweep(lambda live=live: live, 0)
                for digest, version in zip(digests, versions, strict=True):
                    if digest in live:
                        assert whole(scene.other(), digest) == version
                assert list(scene.blobs.check(True)) == []
            assert len(list(scene.blobs.info())) <= 4
            scene.blobs.sweep(lambda: (), 0)

    def test_a_damaged_base_is_named_by_what_stands_on_it(self, scene: DurableScene) -> None:
        first, *_, last = committed(scene, *edits(text(10_000), 5), like="file:///a")
        scene.damage(first)
        other = scene.other()
        error = raised(lambda: whole(other, last))
        assert isinstance(error, BlobDamaged) and first in str(error) and last in str(error)
        assert len(list(other.check(True))) == 5

    def test_sweep_gives_the_space_back(self, scene: DurableScene) -> None:
        keep = scene.blobs.put(noise(50_000, 1))
        for seed in range(2, 40):
            committed(scene, noise(50_000, seed))
        for seed in range(100, 104):
            committed(scene, noise(SEGMENT + 1000, seed))
        scene.blobs.sweep(lambda: [keep], 0)
        assert scene.size() < 300_000
        assert whole(scene.other(), keep) == noise(50_000, 1)

    def test_a_sweep_elsewhere_between_put_and_commit_takes_nothing_away(self, scene: DurableScene) -> None:
        scene.blobs.put(text(10_000), like="file:///a")
        scene.blobs.put(noise(5000))
        scene.commit()
        elsewhere = scene.other()
        again = scene.blobs.put(noise(5000))
        difference = scene.blobs.put(text(10_000) + b"more", like="file:///a")
        large = scene.blobs.put(noise(SEGMENT + 1))
        elsewhere.sweep(lambda: (), 0)
        scene.commit()
        assert whole(scene.other(), again) == noise(5000)
        assert whole(scene.other(), difference) == text(10_000) + b"more"
        assert whole(scene.other(), large) == noise(SEGMENT + 1)
        assert list(scene.other().check(True)) == []

    def test_what_cannot_be_saved_from_a_sweep_elsewhere_fails_loudly_until_put_again(
        self, scene: DurableScene
    ) -> None:
        content = noise(2 * SEGMENT)
        committed(scene, content)
        digest = scene.blobs.put(content)
        scene.other().sweep(lambda: (), 0)
        assert isinstance(raised(scene.commit), TakebackError)
        assert isinstance(raised(scene.commit), TakebackError)
        assert committed(scene, content) == [digest]
        assert whole(scene.other(), digest) == content

    def test_sweep_spares_what_this_process_has_put_and_not_committed(self, scene: DurableScene) -> None:
        digests = [scene.blobs.put(content) for content in (b"small", noise(100_000), noise(SEGMENT + 1))]
        scene.blobs.sweep(lambda: (), 0)
        scene.commit()
        assert all(scene.other().has(digest) for digest in digests)
        assert list(scene.other().check(True)) == []

    def test_two_writers_of_the_same_content_agree(self, scene: DurableScene) -> None:
        other = scene.other()
        for content in (b"small", noise(100_000), noise(SEGMENT + 1)):
            assert scene.blobs.put(content) == other.put(content)
        other.sync()
        scene.commit()
        assert len({info.digest for info in scene.blobs.info()}) == len(list(scene.blobs.info())) == 5
        assert list(scene.other().check(True)) == []
