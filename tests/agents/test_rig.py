"""The rig itself: every agent plays every scene without takeback, the world is as the scene says, and the hooks get
what `payloads` holds. What the agents do with hooks that decide, fail or are missing is written down here as well.
"""

import os
import subprocess
import sys

import pytest

from tests.agents import family
from tests.agents.drivers import DRIVERS
from tests.agents.family import Hooks, Shell
from tests.agents.play import Played, Scene, play
from tests.agents.records import Record, kept, recorded, recorder
from tests.agents.scenes import ASKED, DENIED, SCENES, expect, scene
from tests.agents.stage import Place, differences, git

pytestmark = pytest.mark.agents

USER = 65534
ALL = [
    pytest.param(agent, id=agent, marks=pytest.mark.each_share if agent == "claude-code" else ())
    for agent in DRIVERS
]
CASES = [
    pytest.param(*agent.values, one, id=f"{agent.id}-{one.name.replace(' ', '-')}", marks=agent.marks)
    for agent in ALL
    for one in SCENES
    if agent.id not in one.without
]
SHELL = scene("say so", Shell("echo ran > ran.txt"), wants={"ran.txt": "ran\n"})


@pytest.mark.parametrize(("agent", "scene"), CASES)
def test_the_world_is_as_the_scene_says(agent: str, scene: Scene, place: Place) -> None:
    before = place.look()

    play(agent, scene, place.home, place.project, recorder(place))

    expect(place, scene.world(agent), differences(before, place.look(), times=False))
    assert shapes(recorded(place)) == shapes(kept(agent, scene.name))


def shapes(records: list[Record]) -> set[tuple[str, ...]]:
    return {record.shape for record in records}


@pytest.mark.parametrize("agent", ALL)
def test_a_commit_is_made(agent: str, place: Place) -> None:
    play(agent, named("commit"), place.home, place.project)

    assert git(place.project, "log", "--format=%s").split() == ["agent", "first"]


@pytest.mark.parametrize("agent", ALL)
def test_a_denied_command_is_denied_by_the_rules_of_the_agent(agent: str, place: Place) -> None:
    played = play(agent, named("denied"), place.home, place.project)

    assert DENIED[agent] in said(played)


@pytest.mark.parametrize("agent", ALL)
def test_where_a_person_must_be_asked_and_there_is_none_it_is_said(agent: str, place: Place) -> None:
    played = play(agent, named("asked"), place.home, place.project)

    assert ASKED[agent] in said(played) + played.errors


@pytest.mark.each_share
def test_claude_code_asks_for_the_command_as_the_model_said_it(place: Place) -> None:
    """Used where hooks rewrite: the person must still see the original."""
    play("claude-code", named("asked"), place.home, place.project, recorder(place))

    asked = [
        record.payload["tool_input"] for record in recorded(place) if record.event == "PermissionRequest"
    ]
    assert [one["command"] for one in asked] == ["touch asked.txt"]


def named(name: str) -> Scene:
    return next(one for one in SCENES if one.name == name)


def said(played: Played) -> str:
    return "\n".join(played.results)


def ran(place: Place) -> bool:
    return (place.project / "ran.txt").exists()


@pytest.mark.parametrize("agent", ALL)
def test_a_hook_that_denies_is_obeyed_and_the_model_hears_its_reason(agent: str, place: Place) -> None:
    deciding = recorder(place, decides=("--exit", "2", "--say", "because the rig says so"))

    played = play(agent, SHELL, place.home, place.project, deciding)

    assert not ran(place)
    assert "because the rig says so" in said(played)


# The agents that run the tool though the hook before it did not do its work.
RUN_IT = {
    "fails": {"codex", "codex-script", "gemini"},
    "has no script": set[str](),
    "has no interpreter": {"codex", "codex-script"},
}
BROKEN = {
    "fails": (sys.executable, "-c", "raise SystemExit(1)"),
    "has no script": (sys.executable, "/nonexistent/hook.py"),  # Python ends with 2, and that is a denial
    "has no interpreter": ("/nonexistent/python", "-c", "pass"),
}


@pytest.mark.parametrize("fault", RUN_IT)
@pytest.mark.parametrize("agent", ALL)
def test_it_is_known_whether_a_call_runs_without_its_hook(agent: str, fault: str, place: Place) -> None:
    play(agent, SHELL, place.home, place.project, Hooks(BROKEN[fault], events=[DRIVERS[agent].before]))

    assert ran(place) is (agent in RUN_IT[fault])


@pytest.mark.parametrize("agent", ALL)
def test_an_ordinary_user_plays_as_well(
    agent: str, open_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, user = open_place, None
    if os.geteuid() == 0:
        user = USER
        give(place, monkeypatch)
    before = place.look()

    play(agent, SHELL, place.home, place.project, recorder(place, python=python()), user=user)

    expect(place, SHELL.wants, differences(before, place.look(), times=False))
    assert (place.project / "ran.txt").stat().st_uid == (user or os.geteuid())
    assert recorded(place)


def python() -> str:
    """One that an ordinary user may start: the environment of the tests may be closed to them."""
    return "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable


def give(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The places, and the agents where the checkout is closed to others."""
    for path in (place.top, place.records, *place.top.rglob("*")):
        os.chown(path, USER, USER, follow_symlinks=False)
    if not all(path.stat().st_mode & 0o001 for path in family.AGENTS.resolve().parents):
        copy = place.records.parent / "agents"
        subprocess.run(["cp", "--archive", "--link", f"{family.AGENTS.resolve()}/.", copy], check=True)
        monkeypatch.setattr(family, "AGENTS", copy)
