"""Where small worlds live."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trees.unit.scene import quick_directory


@pytest.fixture
def quick_place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=quick_directory()) as place:
        yield Path(place)
