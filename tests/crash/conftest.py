from collections.abc import Callable, Iterator

import pytest

from tests.crash.scenes import Scene, quick_directory


@pytest.fixture
def scene(record_property: Callable[[str, object], None]) -> Iterator[Scene]:
    with quick_directory("crash") as directory, quick_directory("far", far=True) as far:
        scene = Scene(directory / "scene", far)
        yield scene
        for name, number in scene.counted.items():
            record_property(name, number)
