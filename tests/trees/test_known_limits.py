"""The limits are where the list says they are, and nowhere else."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback
from tests.trees import ways
from tests.trees.known_limits import LIMITS
from tests.trees.scenes import make_old, manifest
from tests.trees.trial import Place, try_out
from tests.world import Picture

pytestmark = pytest.mark.root

# What works with a file of which a command meets some names and not all.
WORKS = (
    "echo more >> src/one",
    "chmod 600 src/one",
    "ln src/one src/four",
    "ln -f src/one other",
    "sed -i s/same/other/ src/one",
    "rm -r src elsewhere",
    "mv src moved",
)


@pytest.fixture
def run(store: Path) -> Iterator[takeback.Run]:
    with takeback.open(str(store)) as tb, tb.run("limits") as run:
        yield run


def place_of(directory: Path) -> Place:
    root, template = directory / "tree", directory / "template"
    for name in ("src", "elsewhere"):
        (template / name).mkdir(parents=True)
    (template / "src/one").write_bytes(b"same\n")
    (template / "other").write_bytes(b"other\n")
    os.link(template / "src/one", template / "elsewhere/two")
    os.link(template / "src/one", template / "elsewhere/three")
    make_old(template)

    def renew() -> Picture:
        subprocess.run(["rm", "-rf", root], check=True)
        subprocess.run(["cp", "-a", template, root], check=True)
        return manifest(root)

    return Place(root, renew)


@pytest.mark.parametrize("way", ["sandboxed", "in place"])
@pytest.mark.parametrize("line", WORKS)
def test_some_names_of_a_file_are_changed_and_taken_back(
    run: takeback.Run, line: str, way: str, tmp_path: Path
) -> None:
    assert try_out(run, ways.shell(line), place_of(tmp_path), [way]) == 1


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_still_one(run: takeback.Run, name: str, tmp_path: Path) -> None:
    limit = LIMITS[name]
    with pytest.raises((AssertionError, takeback.TakebackError)):
        try_out(run, ways.shell(limit.line), place_of(tmp_path), [limit.way])
