"""Files with holes keep them when a sandboxed command changes or moves them, and get them back with undo."""

from pathlib import Path

import pytest

import takeback
from tests.trees.meeting import ENOUGH
from tests.trees.scenes import differences, manifest, without_directory_times

pytestmark = pytest.mark.root


@pytest.mark.parametrize(
    ("line", "name", "blocks"),
    [
        ("chmod 600 disk", "disk", 1),
        ("printf x >> disk", "disk", 2),
        ("truncate -s 700000 disk", "disk", 1),
        ("mv disk moved", "moved", 1),
        ("mv disk moved && printf x >> moved", "moved", 2),
        ("cat disk > dense && mv dense disk", "disk", 74),
    ],
)
def test_holes_stay(store: Path, tmp_path: Path, line: str, name: str, blocks: int) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    with (tree / "disk").open("wb") as file:
        file.write(b"begin")
        file.truncate(300_000)
    before = manifest(tree)
    with takeback.open(str(store)) as tb, tb.run("holes") as run:
        outcome = run.command(["/bin/sh", "-c", line], cwd=str(tree), timeout=ENOUGH)
        assert outcome.exit_code == 0, outcome
        assert (tree / name).stat().st_blocks == blocks * 8
        run.undo(outcome.effect)
    assert not differences(without_directory_times(before), without_directory_times(manifest(tree)))
