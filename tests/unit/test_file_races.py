"""Nobody's work is lost, however unlucky the moment."""

import os
import shutil
from collections.abc import Callable

import pytest

from takeback.adapters.file import changes, swap
from takeback.adapters.file.adapter import FileAdapter
from takeback.adapters.file.assess import survey
from takeback.adapters.file.build import Tools
from takeback.adapters.file.paths import open_place
from takeback.errors import Drifted
from takeback.model.plan import Standing
from takeback.model.resource import file_resource
from takeback.testing.adapter_suite import Desk, settle
from takeback.testing.crash import killed_at
from tests.files import leftovers, write
from tests.memory import MemoryBlobs
from tests.world import World


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


@pytest.mark.parametrize("kind", ["file", "dir"])
def test_what_vanishes_while_it_is_looked_at_is_not_called_unreadable(
    world: World, blobs: MemoryBlobs, kind: str
) -> None:
    path = world / "x"
    path.mkdir() if kind == "dir" else path.write_bytes(b"x")
    with open_place(file_resource(path)) as place:
        status = place.stat()
        assert status
        path.rmdir() if kind == "dir" else path.unlink()
        with pytest.raises(Drifted, match="was removed"):
            survey(place, status, Tools(blobs))


class TestTheMomentBeforeTheSwap:
    """Someone writes between the last look and the exchange."""

    @pytest.fixture
    def at_the_last_moment(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
        def arrange(act: Callable[[], None]) -> None:
            def glance(*args: object) -> bool:
                act()
                return True

            monkeypatch.setattr(swap, "unchanged_at_a_glance", glance)

        return arrange

    def test_an_edit_is_put_back_and_the_write_refused(self, world, blobs, at_the_last_moment) -> None:
        (world / "f").write_bytes(b"before")
        desk = Desk(FileAdapter(blobs))
        effect = desk.intend(write(blobs, world / "f"))
        at_the_last_moment(lambda: (world / "f").write_bytes(b"foreign") and None)
        with pytest.raises(Drifted):
            desk.adapter.apply(effect)
        assert (world / "f").read_bytes() == b"foreign" and not leftovers(world)

    def test_a_file_created_there_stays(self, world, blobs, at_the_last_moment) -> None:
        desk = Desk(FileAdapter(blobs))
        effect = desk.intend(write(blobs, world / "f"))
        at_the_last_moment(lambda: (world / "f").write_bytes(b"foreign") and None)
        with pytest.raises(Drifted):
            desk.adapter.apply(effect)
        assert (world / "f").read_bytes() == b"foreign" and not leftovers(world)

    @pytest.mark.parametrize("where", ["tree/new", "tree/sub/old"])
    def test_an_edit_inside_a_tree_being_deleted_is_put_back(
        self, world, blobs, at_the_last_moment, where
    ) -> None:
        (world / "tree" / "sub").mkdir(parents=True)
        (world / "tree" / "sub" / "old").write_bytes(b"before")
        desk = Desk(FileAdapter(blobs))
        effect = desk.intend(changes.delete_change(world / "tree"))
        at_the_last_moment(lambda: (world / where).write_bytes(b"foreign") and None)
        with pytest.raises(Drifted):
            desk.adapter.apply(effect)
        assert (world / where).read_bytes() == b"foreign" and not leftovers(world)

    def test_a_file_that_appears_while_the_tree_is_removed_brings_all_of_it_back(
        self, world, blobs, monkeypatch
    ) -> None:
        for number in range(20):
            (world / "tree" / f"d{number:02}").mkdir(parents=True)
            (world / "tree" / f"d{number:02}" / "f").write_bytes(b"%d" % number)
        inside = os.open(world / "tree" / "d15", os.O_RDONLY)  # someone whose shell stands there
        before = world.picture()
        desk = Desk(FileAdapter(blobs))
        effect = desk.intend(changes.delete_change(world / "tree"))
        unlink, count = os.unlink, 0

        def slow_unlink(*args, **kwargs):
            nonlocal count
            count += 1
            if count == 5:
                os.close(os.open("late", os.O_CREAT | os.O_WRONLY, dir_fd=inside))
            return unlink(*args, **kwargs)

        monkeypatch.setattr(os, "unlink", slow_unlink)
        with pytest.raises(Drifted):
            desk.adapter.apply(effect)
        monkeypatch.undo()
        after = world.picture()
        assert after.pop(b"tree/d15/late")
        assert after == before and not leftovers(world)
        os.close(inside)


def test_foreign_bytes_displaced_by_a_killed_process_are_given_back(world: World, blobs: MemoryBlobs) -> None:
    """Exchange, then SIGKILL, and what came out was not what was captured: recovery must not delete it."""
    (world / "f").write_bytes(b"before")
    desk = Desk(FileAdapter(blobs))
    effect = desk.intend(write(blobs, world / "f"))
    (world / f".takeback-{effect.id}-0").write_bytes(b"foreign")
    (world / "f").write_bytes(b"after")
    fresh = FileAdapter(blobs)
    assert fresh.verify(effect).standing is Standing.BETWEEN

    with pytest.raises(Drifted):
        fresh.undo(effect)
    fresh.tidy(effect)

    assert (world / "f").read_bytes() == b"foreign" and not leftovers(world)


def test_tidy_leaves_scratch_that_is_in_no_store(world: World, blobs: MemoryBlobs) -> None:
    (world / "f").write_bytes(b"before")
    effect = Desk(FileAdapter(blobs)).intend(write(blobs, world / "f"))
    (world / f".takeback-{effect.id}-0").write_bytes(b"foreign")
    FileAdapter(blobs).tidy(effect)
    assert (world / f".takeback-{effect.id}-0").read_bytes() == b"foreign"


def test_killed_while_a_large_tree_is_removed_it_settles(world: World, blobs: MemoryBlobs) -> None:
    def begin() -> None:
        shutil.rmtree(world / "tree", ignore_errors=True)
        for number in range(30):
            (world / "tree" / str(number % 3)).mkdir(parents=True, exist_ok=True)
            (world / "tree" / str(number % 3) / f"f{number}").write_bytes(b"%d" % number)
            os.utime(world / "tree" / str(number % 3) / f"f{number}", ns=(5, 5))

    begin()
    before = world.picture()
    for point in range(1, 10_000, 23):
        shutil.rmtree(world / "tree", ignore_errors=True)
        begin()
        adapter = FileAdapter(blobs)
        effect = Desk(adapter).intend(changes.delete_change(world / "tree"))
        dead = killed_at(point, lambda adapter=adapter, effect=effect: adapter.apply(effect))
        fresh = FileAdapter(blobs)
        standing = settle(fresh, effect)
        if standing is Standing.AFTER:
            assert not os.listdir(world.root)
            fresh.undo(effect)
        assert world.picture() == before and not leftovers(world)
        if not dead:
            return
    raise AssertionError("the sweep did not end")
