"""Taking back what a command did: each path by itself, nothing lost that someone else made since."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from takeback.adapters.file import kernel
from takeback.adapters.tree import swap
from takeback.adapters.tree.adapter import TreeAdapter
from takeback.errors import Conflict, Drifted
from takeback.model.change import OnConflict
from takeback.model.effect import Effect
from takeback.model.plan import Outcome
from takeback.model.resource import display
from takeback.testing.adapter_suite import Desk, undo_of
from tests.trees.unit.scene import OLD, Story, TreeScene
from tests.trees.unit.stories import PARAMETERS, many_things, odd_things, small_tree
from tests.world import Picture, World


class Trees(TreeScene):
    def do(self) -> Effect:
        return Desk(self.adapter()).do(self.change())

    def undo(self, effect: Effect, on_conflict: OnConflict = OnConflict.REFUSE) -> Effect:
        return Desk(self.adapter()).undo(effect, on_conflict)

    def told(
        self, effect: Effect, on_conflict: OnConflict = OnConflict.REFUSE
    ) -> dict[str, tuple[Outcome, str]]:
        """What an undo would do to each path."""
        found = self.adapter().assess(undo_of(effect, on_conflict), effect).outcomes
        return {os.path.relpath(display(one.resource), self.root): (one.outcome, one.detail) for one in found}

    def conflicts(self, effect: Effect, on_conflict: OnConflict = OnConflict.REFUSE) -> dict[str, str]:
        told = self.told(effect, on_conflict)
        return {path: detail for path, (outcome, detail) in told.items() if outcome is Outcome.CONFLICT}

    def exactly(self) -> Picture:
        return World(self.root).picture(directory_times=True)


Begin = Callable[[Path], object]


@pytest.fixture
def trees(quick_place: Path) -> Callable[[Begin, Begin], Trees]:
    return lambda begin, command: Trees(quick_place, Story("", begin, command, lambda root: None))


def new_directory(root: Path) -> None:
    (root / "new" / "deep").mkdir(parents=True)
    (root / "new" / "deep" / "file").write_bytes(b"new\n")
    (root / "new" / "other").write_bytes(b"other\n")


@pytest.mark.parametrize("story", PARAMETERS)
def test_directories_have_their_times_again(quick_place: Path, story: Story) -> None:
    scene = Trees(quick_place, story)
    before = scene.exactly()
    effect = scene.do()
    after = scene.exactly()
    taken_back = scene.undo(effect)
    assert scene.exactly() == before
    scene.undo(taken_back)
    assert scene.exactly() == after


def test_a_time_that_someone_elses_file_moved_is_not_turned_back(trees) -> None:
    scene = trees(small_tree, lambda root: (root / "tree" / "new").write_bytes(b"new"))
    effect = scene.do()
    (scene.root / "tree" / "theirs").write_bytes(b"theirs")
    scene.undo(effect)
    assert (scene.root / "tree").stat().st_mtime_ns != OLD
    assert not (scene.root / "tree" / "new").exists()


def test_a_file_of_someone_else_in_a_new_directory_is_a_conflict_named_by_path(trees) -> None:
    scene = trees(lambda root: None, new_directory)
    effect = scene.do()
    (scene.root / "new" / "deep" / "theirs").write_bytes(b"theirs\n")
    disturbed = scene.world()

    conflicts = scene.conflicts(effect)

    assert set(conflicts) == {"new", "new/deep"}
    assert "new/deep/theirs" in conflicts["new/deep"]
    with pytest.raises(Conflict):
        scene.undo(effect)
    assert scene.world() == disturbed


def test_skipping_leaves_the_directory_and_what_is_theirs_and_removes_the_rest(trees) -> None:
    scene = trees(lambda root: None, new_directory)
    effect = scene.do()
    after = scene.world()
    (scene.root / "new" / "deep" / "theirs").write_bytes(b"theirs\n")

    taken_back = scene.undo(effect, OnConflict.SKIP)

    assert set(scene.world()) == {b".", b"new", b"new/deep", b"new/deep/theirs"}
    scene.undo(taken_back)
    (scene.root / "new" / "deep" / "theirs").unlink()
    assert scene.world() == after


def test_force_takes_along_what_is_theirs_and_redo_brings_it_back(trees) -> None:
    scene = trees(lambda root: None, new_directory)
    before = scene.world()
    effect = scene.do()
    (scene.root / "new" / "deep" / "theirs" / "inner").mkdir(parents=True)
    (scene.root / "new" / "deep" / "theirs" / "inner" / "file").write_bytes(b"theirs\n")
    (scene.root / "new" / "other").write_bytes(b"edited\n")
    disturbed = scene.world()

    taken_back = scene.undo(effect, OnConflict.FORCE)

    assert scene.world() == before
    scene.undo(taken_back)
    assert scene.world() == disturbed


def test_force_replaces_a_directory_that_someone_made_of_a_file(trees) -> None:
    scene = trees(small_tree, lambda root: (root / "tree" / "one").write_bytes(b"after"))
    before = scene.world()
    effect = scene.do()
    (scene.root / "tree" / "one").unlink()
    (scene.root / "tree" / "one" / "theirs").mkdir(parents=True)
    (scene.root / "tree" / "one" / "theirs" / "file").write_bytes(b"theirs\n")
    disturbed = scene.world()

    assert set(scene.conflicts(effect)) == {"tree/one"}
    taken_back = scene.undo(effect, OnConflict.FORCE)

    assert scene.world() == before
    scene.undo(taken_back)
    assert scene.world() == disturbed


def lines(root: Path) -> None:
    (root / "text").write_bytes(b"".join(b"%d\n" % number for number in range(20)))
    (root / "other").write_bytes(b"before\n")


def edit_first_line(root: Path) -> None:
    (root / "text").write_bytes(b"changed by the command\n" + (root / "text").read_bytes()[2:])
    (root / "other").write_bytes(b"after\n")


def test_merging_keeps_what_was_edited_since(trees) -> None:
    scene = trees(lines, edit_first_line)
    before = (scene.root / "text").read_bytes()
    effect = scene.do()
    with (scene.root / "text").open("ab") as file:
        file.write(b"theirs\n")

    assert set(scene.conflicts(effect)) == {"text"}
    scene.undo(effect, OnConflict.MERGE)

    assert (scene.root / "text").read_bytes() == before + b"theirs\n"
    assert (scene.root / "other").read_bytes() == b"before\n"


def test_what_was_taken_back_by_hand_is_told_and_the_rest_is_done(trees) -> None:
    scene = trees(small_tree, many_things)
    before = scene.world()
    effect = scene.do()
    shutil.rmtree(scene.root / "tree" / "a")
    assert scene.told(effect)["tree/a/b"][0] is Outcome.ALREADY
    scene.undo(effect)
    assert scene.world() == before


def test_what_comes_back_needs_its_directory(trees) -> None:
    scene = trees(small_tree, lambda root: (root / "tree" / "deep" / "two").unlink())
    effect = scene.do()
    shutil.rmtree(scene.root / "tree" / "deep")
    assert scene.conflicts(effect) == {"tree/deep/two": "cannot come back: the directory it was in is gone"}


def test_a_link_someone_put_in_place_of_a_directory_leads_nothing_outside(trees, quick_place: Path) -> None:
    scene = trees(small_tree, lambda root: (root / "tree" / "deep" / "two").write_bytes(b"after"))
    effect = scene.do()
    outside = quick_place / "outside"
    (scene.root / "tree" / "deep").rename(outside)
    os.symlink(outside, scene.root / "tree" / "deep")
    with pytest.raises(Conflict, match="deep/two cannot be reached"):
        scene.undo(effect)
    assert (outside / "two").read_bytes() == b"after"


def test_a_path_that_drifted_takes_everything_back(trees) -> None:
    scene = trees(small_tree, many_things)
    adapter = scene.adapter()
    effect = Desk(adapter).intend(scene.change())
    (scene.root / "tree" / "one").write_bytes(b"someone else's\n")
    disturbed = scene.exactly()
    with pytest.raises(Drifted):
        adapter.apply(effect)
    assert scene.exactly() == disturbed


def test_a_write_into_what_was_just_displaced_is_given_back(trees, monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone has the file open, and writes after it was compared and before it is removed."""
    scene = trees(small_tree, many_things)
    adapter = scene.adapter()
    effect = Desk(adapter).intend(scene.change())
    real = monkeypatch_of_flush(monkeypatch)
    with (scene.root / "tree" / "one").open("r+b") as held_open:
        real.then = lambda: (held_open.write(b"late"), held_open.flush())
        with pytest.raises(Drifted):
            adapter.apply(effect)
    assert (scene.root / "tree" / "one").read_bytes().startswith(b"late")
    assert (scene.root / "tree" / "deep" / "two").read_bytes() == b"22\n"
    assert not list(scene.root.rglob(".takeback-*"))


def test_a_file_made_in_a_directory_while_it_is_removed_is_given_back_with_it(trees, monkeypatch) -> None:
    scene = trees(small_tree, lambda root: shutil.rmtree(root / "tree"))
    adapter = scene.adapter()
    before = scene.world()
    effect = Desk(adapter).intend(scene.change())
    handle = os.open(scene.root / "tree" / "deep", os.O_RDONLY | os.O_DIRECTORY)
    real = monkeypatch_of_flush(monkeypatch)

    def intrude() -> None:
        os.close(os.open("theirs", os.O_CREAT | os.O_WRONLY, dir_fd=handle))

    real.then = intrude
    try:
        with pytest.raises(Drifted):
            adapter.apply(effect)
    finally:
        os.close(handle)
    found = scene.world()
    assert found.pop(b"tree/deep/theirs")
    assert found == before


class After:
    """Something happens when everything is in place and nothing was removed yet."""

    then: Callable[[], object] = staticmethod(lambda: None)


def monkeypatch_of_flush(monkeypatch: pytest.MonkeyPatch) -> After:
    from takeback.adapters.tree.apply import Carrier

    after, real = After(), Carrier._clear

    def clear(self: Carrier, units: list, builder: object, swapped: list) -> None:
        after.then()
        real(self, units, builder, swapped)  # pyright: ignore

    monkeypatch.setattr(Carrier, "_clear", clear)
    return after


def test_what_was_not_captured_is_never_touched(trees) -> None:
    scene = trees(lambda root: None, new_directory)
    effect = scene.do()
    assert effect.remedy is not None
    targets = tuple(
        target._replace(after=target.after | {"excluded": "it is regenerable"})
        if target.resource.endswith("other")
        else target
        for target in effect.targets
    )
    effect = effect._replace(remedy=effect.remedy._replace(targets=targets))

    told = scene.told(effect)
    assert told["new/other"] == (Outcome.EXCLUDED, "it was not captured: it is regenerable")
    assert told["new"][0] is Outcome.EXCLUDED
    scene.undo(effect)

    assert set(scene.world()) == {b".", b"new", b"new/other"}


def test_files_that_belong_together_stay_together(trees) -> None:
    scene = trees(lines, edit_first_line)
    effect = scene.do()
    assert effect.remedy is not None
    unit = effect.targets[0].resource
    targets = tuple(
        target._replace(before=target.before | {"unit": unit}, after=target.after | {"unit": unit})
        for target in effect.targets
    )
    effect = effect._replace(remedy=effect.remedy._replace(targets=targets))
    (scene.root / "text").write_bytes(b"theirs\n")
    disturbed = scene.world()

    assert set(scene.conflicts(effect)) == {"text", "other"}
    assert set(scene.conflicts(effect, OnConflict.MERGE)) == {"text", "other"}
    scene.undo(effect, OnConflict.SKIP) if scene.told(effect) == {} else None
    assert scene.world() == disturbed


def test_a_socket_that_someone_listens_on_keeps_its_inode(trees, tmp_path: Path) -> None:
    import socket

    def listening(root: Path) -> None:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(root / "s"))

    scene = trees(listening, lambda root: (root / "s").chmod(0o600))
    inode = (scene.root / "s").stat().st_ino
    effect = scene.do()
    assert (scene.root / "s").stat().st_ino == inode
    assert stat.S_IMODE((scene.root / "s").stat().st_mode) == 0o600
    scene.undo(effect)
    assert stat.S_IMODE((scene.root / "s").stat().st_mode) == 0o755


def test_the_power_to_undo_can_be_given_up(trees) -> None:
    def two_names(root: Path) -> None:
        (root / "one").write_bytes(b"1")
        os.link(root / "one", root / "two")

    scene = trees(two_names, lambda root: (root / "one").unlink())
    adapter = TreeAdapter("command", scene.blobs, str(scene.held))
    targets_without_twin = [
        target._replace(before={k: v for k, v in target.before.items() if k != "twin"})
        for target in Desk(adapter).intend(scene.change()).targets
    ]
    from takeback.adapters.tree.targets import command_change

    change = command_change(scene.blobs, str(scene.root), "rm one", targets_without_twin)
    effect = Desk(adapter).do(change)
    assert len(list(scene.held.iterdir())) == 1
    adapter.release(effect)
    assert not list(scene.held.iterdir())


@pytest.mark.root
def test_a_carrier_that_forgets_a_path_is_caught(trees, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds the promise is verify, not the carrier."""
    from takeback.adapters.tree import adapter as module

    scene = trees(odd_things, lambda root: shutil.rmtree(root / "tree" / "deep"))
    real = module.units_of
    monkeypatch.setattr(module, "units_of", lambda *args: real(*args)[1:])
    with pytest.raises(AssertionError):
        scene.do()


def test_every_file_is_durable_before_the_first_is_put_in_place(
    trees: Callable[[Begin, Begin], Trees], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("one", "two", "three")

    def write(text: str) -> Begin:
        return lambda root: [(root / name).write_text(text) for name in names]

    scene = trees(write("old\n"), write("new\n"))
    effect = scene.do()
    synced: list[int] = []
    before_the_first: list[set[int]] = []
    fsync, exchanged = os.fsync, kernel.exchange

    def syncing(fd: int) -> None:
        fsync(fd)
        synced.append(os.fstat(fd).st_ino)

    def exchanging(*words: Any) -> bool:
        before_the_first.append(set(synced))
        return exchanged(*words)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(swap, "exchange", exchanging)
    scene.undo(effect)

    assert [(scene.root / name).read_text() for name in names] == ["old\n"] * 3
    assert {(scene.root / name).stat().st_ino for name in names} <= before_the_first[0]
