from collections.abc import Iterator

import pytest

from tests.crash.scenes import Scene, quick_directory


@pytest.fixture
def scene() -> Iterator[Scene]:
    with quick_directory("crash") as directory:
        yield Scene(directory / "scene")
