"""What every `Blobs` must do that outlives its process and keeps versions as differences."""

from typing import Protocol

from takeback.errors import BlobDamaged, TakebackError
from takeback.testing.blobs_suite import (
    SEGMENT,
    BlobsScene,
    BlobsSuite,
    edits,
    name,
    noise,
    raised,
    text,
    whole,
)


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
        kept = scene.blobs.put(text(9000), like="file:///a")
        scene.commit()
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
        digests = [scene.blobs.put(version, like="file:///a") for version in edits(text(10_240), 50)]
        scene.commit()
        scene.blobs.sweep(lambda: digests, 0)
        assert sum(info.stored for info in scene.blobs.info()) <= 10_240

    def test_an_insertion_into_a_long_file_costs_about_its_length_in_each_piece(
        self, scene: DurableScene
    ) -> None:
        first = noise(3 * SEGMENT)
        scene.blobs.put(first, like="file:///a")
        scene.commit()
        before = sum(info.stored for info in scene.blobs.info())
        second = first[:1000] + noise(4096, 1) + first[1000:]
        scene.blobs.put(second, like="file:///a")
        scene.commit()
        assert sum(info.stored for info in scene.blobs.info()) - before < 4 * 8192
        assert whole(scene.other(), name(second)) == second

    def test_a_difference_outlives_what_it_is_a_difference_to(self, scene: DurableScene) -> None:
        for start in (text(10_000), noise(300_000), noise(2 * SEGMENT)):
            versions = [start, *edits(start, 12)]
            digests = [scene.blobs.put(version, like="file:///a") for version in versions]
            scene.commit()
            for live in (digests[3:], digests[6::3], digests[-1:]):
                scene.blobs.sweep(lambda live=live: live, 0)
                for digest, version in zip(digests, versions, strict=True):
                    if digest in live:
                        assert whole(scene.other(), digest) == version
                assert list(scene.blobs.check(True)) == []
            assert len(list(scene.blobs.info())) <= 4
            scene.blobs.sweep(lambda: (), 0)

    def test_a_damaged_base_is_named_by_what_stands_on_it(self, scene: DurableScene) -> None:
        first, *_, last = (scene.blobs.put(one, like="file:///a") for one in edits(text(10_000), 5))
        scene.commit()
        scene.damage(first)
        other = scene.other()
        error = raised(lambda: whole(other, last))
        assert isinstance(error, BlobDamaged) and first in str(error) and last in str(error)
        assert len(list(other.check(True))) == 5

    def test_sweep_gives_the_space_back(self, scene: DurableScene) -> None:
        keep = scene.blobs.put(noise(50_000, 1))
        for seed in range(2, 40):
            scene.blobs.put(noise(50_000, seed))
            scene.commit()
        for seed in range(100, 104):
            scene.blobs.put(noise(SEGMENT + 1000, seed))
            scene.commit()
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
        scene.blobs.put(content)
        scene.commit()
        digest = scene.blobs.put(content)
        scene.other().sweep(lambda: (), 0)
        assert isinstance(raised(scene.commit), TakebackError)
        assert isinstance(raised(scene.commit), TakebackError)
        assert scene.blobs.put(content) == digest
        scene.commit()
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
