import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.able import need
from tests.sandbox.scenes import Home, RootScene, Scene, UserScene, make_home


@pytest.fixture(scope="session")
def home() -> Iterator[Home]:
    made = make_home()
    yield made
    shutil.rmtree(made.directory)


@pytest.fixture
def root_scene(tmp_path: Path) -> Iterator[RootScene]:
    need("overlays")
    made = RootScene(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def user_scene(home: Home) -> Iterator[UserScene]:
    need("user namespaces")
    made = UserScene(home)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(params=["root", "user"])
def scene(request: pytest.FixtureRequest) -> Scene:
    """Everything that both engines must do."""
    return request.getfixturevalue(f"{request.param}_scene")
