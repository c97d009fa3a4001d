"""The adapter of commands keeps every law, for every mixture of changes to a tree."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from takeback.testing.adapter_suite import AdapterSuite
from tests.trees.unit.scene import TreeScene
from tests.trees.unit.stories import STORIES


@pytest.fixture
def quick_place() -> Iterator[Path]:
    """In memory where possible: a sweep syncs thousands of times, and a kill is not a power cut."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as place:
        yield Path(place)


class TestTreeAdapter(AdapterSuite):
    stride = 61  # every kill point is taken by the slow class below

    @pytest.fixture(params=STORIES, ids=[story.name for story in STORIES])
    def scene(self, request: pytest.FixtureRequest, quick_place: Path) -> TreeScene:
        return TreeScene(quick_place, request.param)
