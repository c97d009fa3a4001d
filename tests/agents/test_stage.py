"""The independent look at the world sees every difference; the records say what an event needs. Starts no agent."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.agents.acts import daemons
from tests.agents.records import Record, all_kept
from tests.agents.scenes import SCENES
from tests.agents.stage import Place, clear, differences

CHANGES = {
    "printf x >> notes.txt": {"notes.txt": "content, size, mtime", "twin.txt": "content, size, mtime"},
    "chmod 600 run.sh": {"run.sh": "mode"},
    "touch -d 2001-01-01 run.sh": {"run.sh": "mtime"},
    "ln -sfn run.sh link": {".": "mtime", "link": "content, mtime"},
    "ln run.sh other.sh": {".": "mtime", "other.sh": "added", "run.sh": "links"},
    "rm -r docs/empty": {"docs": "mtime", "docs/empty": "gone"},
    "mkdir made": {".": "mtime", "made": "added"},
    "mkfifo pipe": {".": "mtime", "pipe": "added"},
    "rm run.sh; mkdir run.sh; touch -d 2001-01-01 run.sh": {
        ".": "mtime",
        "run.sh": "kind, content, size, mtime",
    },
    "echo x > ../other/new": {"../other": "mtime", "../other/new": "added"},
    "printf 'port = 2\\n' > ../other/config.toml": {"../other/config.toml": "content, mtime"},
    "git commit -qam x || git -c user.name=a -c user.email=a@b commit -qam x": {},
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_look_sees(change: str, place: Place) -> None:
    before = place.look()

    subprocess.run(change, shell=True, cwd=place.project, check=True, capture_output=True)

    assert differences(before, place.look()) == CHANGES[change]


def test_the_look_sees_extended_attributes(place: Place) -> None:
    before = place.look()

    os.setxattr(place.project / "run.sh", "user.note", b"x")

    assert differences(before, place.look()) == {"run.sh": "attributes"}


def test_what_an_agent_left_running_is_ended_and_nothing_else(place: Place) -> None:
    ours, others = (
        subprocess.Popen(["sleep", "86400"], env={**os.environ, "HOME": home})
        for home in (str(place.home), f"{place.home}-of-others")
    )
    try:
        clear(place.home)

        assert ours.wait(60) == -9
        assert others.poll() is None
    finally:
        others.kill()
        others.wait()


def test_a_daemon_is_known_by_its_module_and_its_store(tmp_path: Path) -> None:
    words = ["takeback.frontends.agents.daemon", str(tmp_path / "store")]
    # It starts nothing: a child has the words of its parent for a moment.
    program = ["sh", "-c", "echo up; read nothing", *words]
    stand_in = subprocess.Popen(
        program, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert stand_in.stdin and stand_in.stdout
    try:
        stand_in.stdout.readline()
        assert daemons(str(tmp_path)) == daemons(words[1]) == [stand_in.pid]
        assert daemons(str(tmp_path / "other"), "") == []
    finally:
        os.killpg(stand_in.pid, 9)
        stand_in.wait()
        stand_in.stdin.close()
        stand_in.stdout.close()


def test_no_prompt_is_named_in_two_scenes() -> None:
    names = [prompt.text for scene in SCENES for prompt in scene.prompts]

    assert len(names) == len(set(names))


KEPT = list(all_kept())
BEFORE, AFTER = (
    ("PreToolUse", "BeforeTool", "tool.execute.before"),
    ("PostToolUse", "PostToolUseFailure", "AfterTool", "tool.execute.after"),
)


def test_payloads_of_every_agent_and_scene_are_kept() -> None:
    from tests.agents.drivers import DRIVERS

    wanted = {
        (agent, scene.name.replace(" ", "-"))
        for scene in SCENES
        for agent in DRIVERS
        if agent not in scene.without
    }

    assert {(agent, scene) for agent, scene, _ in KEPT} - {
        ("cursor", scene) for _, scene, _ in KEPT
    } == wanted


@pytest.mark.parametrize(("agent", "records"), [pytest.param(a, r, id=f"{a}-{s}") for a, s, r in KEPT])
def test_a_record_names_no_place_or_person_of_the_machine_it_was_made_on(
    agent: str, records: list[Record]
) -> None:
    text = repr(records)

    assert "/tmp/" not in text.replace("/home/me/tmp/", "").replace("/home/me/.gemini/tmp/", "")
    # Codex itself calls the first of its agents root.
    assert "/root" not in text.replace("/root/part", "") and "TOKEN" not in text


@pytest.mark.parametrize(("agent", "records"), [pytest.param(a, r, id=f"{a}-{s}") for a, s, r in KEPT])
def test_every_call_has_what_an_event_needs(agent: str, records: list[Record]) -> None:
    """A session, a directory, a tool, an input; and an id, but in Gemini."""
    calls = [record for record in records if record.event in (*BEFORE, *AFTER)]
    for record in calls:
        payload = {**record.payload, **record.payload.get("input", {})}
        assert payload.get("session_id") or payload.get("sessionID")
        assert payload.get("cwd") or payload.get("directory") or payload.get("workspace_roots")
        assert record.tool
        assert bool(payload.get("tool_use_id") or payload.get("callID")) is (agent != "gemini")
