"""The rig itself: every agent plays every scene without takeback, and the world is as the scene says."""

import sys
from pathlib import Path

import pytest

from tests.agents.drivers import DRIVERS
from tests.agents.family import Hooks
from tests.agents.play import Scene, play
from tests.agents.scenes import DIRECTORY, SCENES
from tests.agents.stage import Place, differences

pytestmark = pytest.mark.agents

CAPTURE = [sys.executable, "-I", "-S", str(Path(__file__).parent / "capture.py")]
CASES = [
    pytest.param(agent, scene, id=f"{agent}-{scene.name.replace(' ', '-')}")
    for agent in DRIVERS
    for scene in SCENES
    if agent not in scene.without
]


@pytest.mark.parametrize(("agent", "scene"), CASES)
def test_the_world_is_as_the_scene_says(agent: str, scene: Scene, place: Place) -> None:
    before = place.look()

    play(agent, scene, place.home, place.project, Hooks([*CAPTURE, str(place.records)]))

    expect(place, scene.world(agent), differences(before, place.look(), times=False))


def expect(place: Place, world: dict, found: dict) -> None:
    assert found.keys() == world.keys()
    for path, content in world.items():
        if content is None:
            assert found[path] == "gone"
        elif content is DIRECTORY:
            assert (place.project / path).is_dir()
        elif content is not ...:
            assert (place.project / path).read_text() == content
