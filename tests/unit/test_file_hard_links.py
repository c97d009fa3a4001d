"""Files with several names: undo makes the group whole, and leaves no name of ours in it."""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from takeback.adapters.file import changes
from takeback.adapters.file.adapter import FileAdapter
from takeback.adapters.protocol import Adapter
from takeback.model.change import Change
from takeback.model.effect import Effect
from takeback.model.plan import Standing
from takeback.testing.adapter_suite import Desk, undo_of
from takeback.testing.crash import killed_at
from tests.files import Files
from tests.world import Picture, World


@pytest.fixture
def files() -> Iterator[Files]:
    """In memory where possible: a sweep syncs thousands of times, and a kill is not a power cut."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as place:
        for name in ("world", "held"):
            os.mkdir(os.path.join(place, name))
        yield Files(World(Path(place, "world")), Path(place, "held"))


def two_names(files: Files) -> Path:
    path = files.make()
    os.link(path, files / "other")
    return path


def tree_with_names_outside(files: Files) -> None:
    (files / "tree" / "sub").mkdir(parents=True)
    for name in ("tree/inside", "tree/sub/deep"):
        files.make(name, name.encode())
        os.link(files / name, files / f"outside {os.path.basename(name)}")
    os.link(files / "tree/inside", files / "tree/second")
    files.make("tree/single")


def with_link_counts(files: Files) -> Picture:
    """The picture, and how many names each file has, wherever they are."""
    seen = files.world.picture()
    for path, properties in seen.items():
        if not properties["mode"].startswith("d"):
            properties["names"] = os.lstat(files / path).st_nlink
    return seen


Begin = Callable[[Files], object]
Ask = Callable[[Files], Change]


def overwrite(files: Files) -> Change:
    return changes.write_change(files / "file", files.blobs.put(b"after"), 5)


STORIES: dict[str, tuple[Begin, Ask]] = {
    "overwrite": (two_names, overwrite),
    "delete": (two_names, lambda files: changes.delete_change(files / "file")),
    "delete a tree": (tree_with_names_outside, lambda files: changes.delete_change(files / "tree")),
    "move over it": (
        lambda files: (two_names(files), files.make("mover", b"mover"))[0],
        lambda files: changes.move_change(files / "mover", files / "file", replace=True),
    ),
    "write several": (
        lambda files: (two_names(files), files.make("single"))[0],
        lambda files: changes.write_all_change(
            [changes.NewFile(files / name, files.blobs.put(b"after"), 5) for name in ("file", "single")]
        ),
    ),
}


@pytest.mark.parametrize(("begin", "ask"), STORIES.values(), ids=STORIES.keys())
class TestEveryWay:
    def test_undo_leaves_as_many_names_as_there_were(self, files: Files, begin: Begin, ask: Ask) -> None:
        begin(files)
        before = with_link_counts(files)

        files.undo(files.do(ask(files)))

        assert with_link_counts(files) == before and os.listdir(files.held) == []

    def test_undo_and_redo_again_and_again(self, files: Files, begin: Begin, ask: Ask) -> None:
        begin(files)
        before = with_link_counts(files)
        effect = files.do(ask(files))
        after = with_link_counts(files)
        for _ in range(3):
            taken_back = files.undo(effect)
            assert with_link_counts(files) == before and os.listdir(files.held) == []
            files.undo(taken_back)
            assert with_link_counts(files) == after
        # After a redo the journal calls the first effect done again: undoing that one must work as well as undoing
        # the redo, which is the next round.
        for _ in range(3):
            taken_back = files.undo(effect)
            assert with_link_counts(files) == before and os.listdir(files.held) == []
            redone = files.undo(taken_back)
            taken_back = files.undo(redone)
            assert with_link_counts(files) == before and os.listdir(files.held) == []
            files.undo(taken_back)
            assert with_link_counts(files) == after

    def test_an_effect_taken_back_at_once_leaves_none_either(
        self, files: Files, begin: Begin, ask: Ask
    ) -> None:
        begin(files)
        before = with_link_counts(files)
        desk = files.desk()
        effect = desk.intend(ask(files))
        desk.adapter.apply(effect)
        desk.adapter.undo(effect)
        desk.adapter.tidy(effect)
        assert with_link_counts(files) == before and os.listdir(files.held) == []

    @pytest.mark.sampled(5)
    @pytest.mark.parametrize("step", ["undo", "redo", "undo again"])
    def test_killed_anywhere_it_settles(self, files: Files, begin: Begin, ask: Ask, step: str) -> None:
        """Apply and tidy of the undo, the redo and the second undo die at every few points."""

        def reset() -> None:
            for directory in (files.world.root, files.held):
                shutil.rmtree(directory)
                directory.mkdir()
            begin(files)

        reset()
        before = with_link_counts(files)
        done = files.do(ask(files))
        after = with_link_counts(files)
        for point in range(1, 100_000, 11):
            reset()
            done = files.do(ask(files))
            of = done
            if step != "undo":
                of = files.undo(of)
            if step == "undo again":
                files.undo(of)
                of = done
            adapter = files.desk().adapter
            effect = Desk(adapter).intend(undo_of(of), of=of)
            dead = killed_at(point, lambda adapter=adapter, effect=effect: _to_the_end(adapter, effect))
            fresh = files.desk().adapter
            if fresh.verify(effect).standing is not Standing.AFTER:
                fresh.apply(effect)
            fresh.tidy(effect)
            if step == "redo":
                assert without_times(with_link_counts(files)) == without_times(after), point
                files.undo(done)
            assert with_link_counts(files) == before and os.listdir(files.held) == [], point
            if not dead:
                return
        raise AssertionError("the sweep did not end")


def _to_the_end(adapter: Adapter, effect: Effect) -> None:
    adapter.apply(effect)
    adapter.tidy(effect)


def without_times(picture: Picture) -> Picture:
    return {
        path: {name: value for name, value in properties.items() if name != "mtime"}
        for path, properties in picture.items()
    }


def test_overwriting_one_name_and_undo_makes_the_group_whole(files: Files) -> None:
    path = two_names(files)
    inode = path.stat().st_ino

    files.undo(files.write("file"))

    assert path.stat().st_ino == (files / "other").stat().st_ino == inode


def test_both_names_deleted_one_after_the_other_come_back_as_one_file(files: Files) -> None:
    two_names(files)
    before = with_link_counts(files)
    first, second = files.delete("file"), files.delete("other")

    files.undo(second)
    files.undo(first)

    assert with_link_counts(files) == before


def test_a_group_changed_through_its_other_name_is_not_joined_again(files: Files) -> None:
    path = two_names(files)
    effect = files.write("file")
    (files / "other").write_bytes(b"edited through the other name")

    assert "other names" in files.told(effect)
    files.undo(effect)

    assert path.read_bytes() == b"before\n"
    assert (files / "other").read_bytes() == b"edited through the other name"


def test_what_is_still_held_of_an_edited_group_is_not_overwritten_by_a_redo(files: Files) -> None:
    """The first file could not be joined again; the second one gets a further name of its own before the redo."""
    path = two_names(files)
    effect = files.write("file")
    (files / "other").write_bytes(b"edited")
    undo = files.undo(effect)
    os.link(path, files / "third")
    before = with_link_counts(files)

    redo = files.undo(undo)
    assert path.read_bytes() == b"after" and (files / "other").read_bytes() == b"edited"
    files.undo(redo)

    assert with_link_counts(files) == before


def test_undo_says_when_a_group_stays_apart(files: Files) -> None:
    two_names(files)
    effect = files.write("file")
    assert "other names" not in files.told(effect)
    for name in os.listdir(files.held):
        (files.held / name).unlink()
    assert "other names" in files.told(effect)


def test_undo_of_a_tree_says_how_many_files_stay_apart(files: Files) -> None:
    tree_with_names_outside(files)
    effect = files.delete("tree")
    assert "other names" not in files.told(effect)
    (files / "outside deep").write_bytes(b"edited meanwhile")
    assert "1 file in it stays apart from other names outside" in files.told(effect)
    for name in os.listdir(files.held):
        (files.held / name).unlink()
    assert "2 files in it stay apart from other names outside" in files.told(effect)


def test_without_a_place_to_hold_the_inode_the_remedy_says_what_is_lost(files: Files) -> None:
    path = two_names(files)
    desk = Desk(FileAdapter(files.blobs))
    change = changes.write_change(path, files.blobs.put(b"x"), 1)
    assert not desk.adapter.assess(change).offers[0].exact

    effect = desk.do(change)

    assert effect.remedy and not effect.remedy.exact and "other names" in effect.remedy.residue
    assert "other names" in files.told(effect)
    desk.undo(effect)
    assert path.read_bytes() == b"before\n"


def test_a_tree_whose_inodes_could_not_be_held_says_so_at_undo(files: Files) -> None:
    tree_with_names_outside(files)
    desk = Desk(FileAdapter(files.blobs))
    effect = desk.do(changes.delete_change(files / "tree"))
    assert "2 files in it stay apart from other names outside" in files.told(effect)


def test_nothing_is_held_any_more_once_the_effect_is_released(files: Files) -> None:
    two_names(files)
    effect = files.write("file")
    assert len(os.listdir(files.held)) == 1
    FileAdapter(files.blobs, held=str(files.held)).release(effect)
    assert os.listdir(files.held) == []


def test_chmod_reaches_all_names_and_undo_too(files: Files) -> None:
    path = two_names(files)
    before = with_link_counts(files)
    effect = files.do(changes.chmod_change(path, 0o400))
    assert stat.S_IMODE((files / "other").stat().st_mode) == 0o400
    files.undo(effect)
    assert with_link_counts(files) == before
