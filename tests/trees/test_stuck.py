"""Killed anywhere in a merge or in taking one back, then someone writes into one of its files: who is stuck gets out
by skip and by force, also when takeback is killed again on the way, and the stranger's bytes are never lost."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.scenes import Known
from tests.trees.killing import Murder
from tests.trees.stuck import THEIRS, WAYS, assert_out, get_stuck, left_over, way_out

Count = Callable[[str, object], None]

PARTS = 6
OTHER_NAME = {"moved": ("data.json",)}  # both names of a move stay where one of them is skipped


@pytest.fixture
def murder(tmp_path: Path) -> Murder:
    return Murder(tmp_path)


def both_ways(murder: Murder, name: str, first: int, step: int) -> int:
    """How often it was stuck."""
    count = 0
    for place, (known, path, where) in enumerate(get_stuck(murder, name, first, step)):
        how = WAYS[place % len(WAYS)]
        dies_at = (place // 2 % 9) * 7
        way_out(murder, how, dies_at=dies_at)
        assert_out(murder, where)
        there = left_over(murder, known, path)
        if how == "skip":
            assert (murder.scene.world / path).read_bytes() == THEIRS, where
            assert there <= {path, *OTHER_NAME.get(path, ())}, f"{where}: {there}"
        else:
            assert not there, f"{where}: {there}"
            with murder.scene.open() as tb:
                redone = tb.redo()
            assert (murder.scene.world / path).read_bytes() == THEIRS, where
            if name == "undo" and not dies_at:
                assert redone.outcome == "done", where
                there = left_over(murder, Known(known.after, known.before, known.exact), path)
                assert there <= {path}, f"{where}, redone: {there}"
        count += 1
    return count


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize("name", ["merge", "undo"])
def test_whoever_is_stuck_gets_out(murder: Murder, name: str, record_property: Count) -> None:
    count = both_ways(murder, name, 19, 8)
    assert count
    record_property("stuck effects got out of", count)


@pytest.mark.root
@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", ["merge", "undo"])
def test_whoever_is_stuck_anywhere_gets_out(
    murder: Murder, name: str, part: int, record_property: Count
) -> None:
    record_property("stuck effects got out of", both_ways(murder, name, part + 1, PARTS))
