"""The adapter of commands keeps every law, for every mixture of changes to a tree."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from takeback.testing.adapter_suite import AdapterSuite
from tests.trees.unit.scene import TreeScene, quick_directory
from tests.trees.unit.stories import PARAMETERS


@pytest.fixture
def quick_place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=quick_directory()) as place:
        yield Path(place)


@pytest.mark.sampled(10, always=("many things",), only=("killed", "let_go_of"))
class TestTreeAdapter(AdapterSuite):
    stride = 401  # more kill points are taken by the slow class below

    @pytest.fixture(params=PARAMETERS)
    def scene(self, request: pytest.FixtureRequest, quick_place: Path) -> TreeScene:
        return TreeScene(quick_place, request.param)


@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestTreeAdapterAtManyPoints(TestTreeAdapter):
    stride = 31
