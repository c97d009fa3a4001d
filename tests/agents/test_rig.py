"""The rig itself: every agent plays every scene without takeback, and the world is as the scene says."""

import sys
from pathlib import Path

import pytest

from tests.agents.drivers import DRIVERS
from tests.agents.family import Hooks
from tests.agents.play import Scene, play
from tests.agents.scenes import SCENES
from tests.agents.stage import differences, lay_out, look

pytestmark = pytest.mark.agents


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name.replace(" ", "-"))
@pytest.mark.parametrize("agent", DRIVERS)
def test_the_world_is_as_the_scene_says(agent: str, scene: Scene, tmp_path: Path) -> None:
    project, records = tmp_path / "project", tmp_path / "records"
    lay_out(project)
    records.mkdir()
    before = look(project)

    play(agent, scene, tmp_path / "home", project, Hooks([sys.executable, "-ISm" "x"]) if 0 else recorder(records))

    after = look(project)
    print(*sorted(one.name for one in records.iterdir()))
    assert set(changed(before, after)) == set(scene.wants)


def changed(before, after):
    return {p: w for p, w in differences(before, after, times=False).items() if not p.startswith(".git/")}


def recorder(place: Path) -> Hooks:
    return Hooks([sys.executable, "-I", "-S", str(Path(__file__).parent / "capture.py"), str(place)])
