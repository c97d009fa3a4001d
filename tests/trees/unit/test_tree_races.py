"""Someone else acts at every moment of a merge or an undo: nothing is written where a link leads, nothing of theirs
is lost."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from takeback.errors import TakebackError
from takeback.model.effect import Effect
from takeback.testing.adapter_suite import Desk, undo_of
from tests.trees.unit.scene import Story, TreeScene
from tests.trees.unit.stories import many_things, small_tree
from tests.world import World

_OUTWARD = ("posix", "_io", "io")
_ENOUGH = 100_000


def acted_at(point: int, act: Callable[[], object], work: Callable[[], object]) -> bool:
    """Someone acts before the n-th call of the work, of Python or of the system; False if it ended before."""
    left = point

    def step(frame: object, event: str, argument: Any) -> None:
        nonlocal left
        outward = event == "c_call" and getattr(argument, "__module__", None) in _OUTWARD
        if event != "call" and not outward:
            return
        left -= 1
        if left == 0:
            sys.setprofile(None)
            act()

    sys.setprofile(step)
    try:
        work()
    except TakebackError:
        pass  # refused, or stuck: what counts is what the world looks like
    finally:
        sys.setprofile(None)
    return left <= 0


class Race:
    def __init__(self, directory: Path) -> None:
        story = Story("", small_tree, many_things, lambda root: None)
        self.scene = TreeScene(directory, story)
        self.outside = directory / "outside"
        self.away = directory / "away"

    def begin(self) -> None:
        for directory in (self.outside, self.away):
            shutil.rmtree(directory, ignore_errors=True)
        self.scene.reset()
        shutil.copytree(self.scene.root / "tree" / "deep", self.outside, copy_function=shutil.copy2,
                        ignore=shutil.ignore_patterns("fifo"))  # fmt: skip

    def lead_astray(self) -> None:
        os.rename(self.scene.root / "tree" / "deep", self.away)
        os.symlink(self.outside, self.scene.root / "tree" / "deep")

    def intend(self, undo: bool) -> tuple[Any, Effect]:
        if not undo:
            adapter = self.scene.adapter()
            return adapter, Desk(adapter).intend(self.scene.change())
        done = Desk(self.scene.adapter()).do(self.scene.change())
        adapter = self.scene.adapter()
        return adapter, Desk(adapter).intend(undo_of(done), of=done)


@pytest.mark.parametrize("undo", [False, True], ids=["merge", "undo"])
@pytest.mark.parametrize("stride", [151, pytest.param(11, marks=pytest.mark.slow)], ids=["some", "many"])
def test_a_link_put_in_the_place_of_a_directory_leads_nothing_outside(
    quick_place: Path, undo: bool, stride: int
) -> None:
    race = Race(quick_place)
    for point in range(1, _ENOUGH, stride):
        race.begin()
        before = World(race.outside).picture(directory_times=True)
        adapter, effect = race.intend(undo)
        acted = acted_at(
            point, race.lead_astray, lambda adapter=adapter, effect=effect: adapter.apply(effect)
        )
        assert World(race.outside).picture(directory_times=True) == before, point
        if not acted:
            return
    raise AssertionError("the sweep did not end")


@pytest.mark.parametrize("undo", [False, True], ids=["merge", "undo"])
@pytest.mark.parametrize("stride", [151, pytest.param(11, marks=pytest.mark.slow)], ids=["some", "many"])
@pytest.mark.parametrize("name", ["tree/one", "tree/deep/two", "tree/deep/theirs", "tree/a/theirs"])
def test_what_someone_writes_meanwhile_is_never_lost(
    quick_place: Path, undo: bool, stride: int, name: str
) -> None:
    race = Race(quick_place)
    theirs = race.scene.root / name

    def write() -> None:
        if theirs.parent.is_dir() and not theirs.is_dir():
            theirs.unlink(missing_ok=True)
            theirs.write_bytes(b"theirs\n")
            written.append(True)

    for point in range(1, _ENOUGH, stride):
        race.begin()
        written: list[bool] = []
        adapter, effect = race.intend(undo)
        acted = acted_at(point, write, lambda adapter=adapter, effect=effect: adapter.apply(effect))
        if written:
            assert b"theirs\n" in contents(race.scene.root), point
        if not acted:
            return
    raise AssertionError("the sweep did not end")


def contents(root: Path) -> set[bytes]:
    return {path.read_bytes() for path in root.rglob("*") if path.is_file() and not path.is_symlink()}
