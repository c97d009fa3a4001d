"""A coding agent that is stopped: its calls are denied in the words of its host, by both hook programs, with and
without a daemon, within a second."""

import json
import os
import pwd
import time
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.frontends.agents.event import Answer, Kind
from takeback.frontends.agents.hosts import NAMES
from tests.agents.talk import Talk, ran
from tests.agents.test_hosts_answering import answered

REASON = "it deletes too much"
BEA = f"{pwd.getpwuid(os.getuid()).pw_name} (bea)"  # the account of these tests, and the name that was typed
SAID = (
    f"takeback: Agent claude-code was stopped by {BEA}: it deletes too much. No call of it is let through. Do not try "
    "again, and do not look for another way; inform the person. A person lifts it with `takeback stop --lift --agent "
    "claude-code`."
)


@pytest.fixture(params=["compiled", "python"])
def told(request: pytest.FixtureRequest, talk: Talk) -> Talk:
    if request.param == "compiled":
        talk.compiled = request.getfixturevalue("compiled")
    return talk


def stop(talk: Talk, **whom: Any) -> None:
    with takeback.open(os.fspath(talk.store)) as tb:
        tb.stop(**whom, by="bea", why=REASON)


def lift(talk: Talk) -> None:
    with takeback.open(os.fspath(talk.store)) as tb:
        tb.lift(everything=True)


def denied(talk: Talk) -> str:
    return talk.before("Bash", {"command": "ls"})[0].refusal


@pytest.mark.parametrize("tool", ["Bash", "Write", "Read", "mcp__server__tool"])
def test_a_call_is_denied_with_who_and_why(tool: str, told: Talk) -> None:
    """There is no daemon yet: the first call starts it."""
    stop(told, agent="claude-code")
    given = {"command": "ls"} if tool == "Bash" else {"file_path": str(told.project / "one"), "content": "x"}
    said, _ = told.before(tool, given)
    assert said.refusal.strip() == SAID


def test_a_running_daemon_learns_of_it_within_a_second_and_of_the_lift(told: Talk) -> None:
    told.starts()
    told.write("three", "3\n")
    told.shell("echo 4 > four")

    stop(told, agent="claude-code")
    at = time.monotonic()
    while not denied(told):
        assert time.monotonic() - at < 1
    lift(told)
    at = time.monotonic()
    while denied(told):
        assert time.monotonic() - at < 1
    told.shell("echo 5 > five")


def test_a_call_that_was_open_ends_and_is_recorded(told: Talk) -> None:
    told.starts()
    said, call = told.before("Bash", {"command": "echo 3 > three"})
    assert not said.refusal
    stop(told, everything=True)
    told.agent.does("echo 3 > three")
    told.after("Bash", {"command": "echo 3 > three"}, call)

    with takeback.open(os.fspath(told.store)) as tb:
        effect = tb.effects(newest=True)[0]
        assert [one.resource.rpartition("/")[2] for one in effect.targets if "three" in one.resource]
        tb.undo(effect)
    assert not (told.project / "three").exists()


def test_what_changes_between_its_calls_is_recorded_while_it_is_stopped(talk: Talk) -> None:
    talk.starts()
    talk.shell("echo 3 > three")
    stop(talk, agent="claude-code")
    talk.agent.does("echo 4 > four")
    lift(talk)
    time_out = time.monotonic() + 20
    while denied(talk):
        assert time.monotonic() < time_out
    with takeback.open(os.fspath(talk.store)) as tb:
        assert any("four" in target.resource for one in tb.effects() for target in one.targets)


def test_with_a_run_the_whole_conversation_stops_and_no_other(talk: Talk) -> None:
    talk.starts()
    talk.shell("echo 3 > three")
    with takeback.open(os.fspath(talk.store)) as tb:
        (run,) = [one for one in tb.runs() if one.agent == "claude-code"]
    stop(talk, run=run.id)
    while not (refusal := denied(talk)):
        pass
    assert refusal.startswith(f"takeback: Run {run.id[:8]} was stopped by {BEA}")
    other = talk.session
    talk.session = "s-2"
    assert not denied(talk)
    talk.session = other
    assert talk.before("Bash", {"command": "ls"}, agent_id="sub", agent_type="Explore")[0].refusal


def test_another_agent_goes_on(talk: Talk) -> None:
    stop(talk, agent="codex")
    assert not denied(talk)


def test_the_person_and_the_model_read_it_with_the_next_prompt(talk: Talk) -> None:
    talk.starts()
    stop(talk, agent="claude-code")
    said = talk.prompts("go on")
    while SAID not in said.context:
        said = talk.prompts("go on")
    assert SAID in said.answer["systemMessage"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [Kind.BEFORE_CALL, Kind.PROMPT])
def test_no_host_is_told_how_to_switch_takeback_off(name: str, kind: Kind) -> None:
    reply = answered(name, kind, Answer(refusal=SAID, final=True))
    assert "hook uninstall" not in reply.stdout + reply.stderr
    assert f"stopped by {BEA}" in reply.stdout + reply.stderr


@pytest.mark.root
def test_a_command_in_the_agents_sandbox_is_ended(talk: Talk, tmp_path: Path) -> None:
    """Mode `sandbox`: the command is carried out by takeback, so it can be ended."""
    import socket
    import subprocess
    import sys

    from takeback.frontends.agents import sandboxed

    talk.starts()
    listener = socket.create_server(("127.0.0.1", 0))
    command = f"echo 3 > three; bash -c ': > /dev/tcp/127.0.0.1/{listener.getsockname()[1]}'; sleep 600"
    said, _ = talk.before("Bash", {"command": command})
    assert not said.refusal
    note = tmp_path / "claude-1-cwd"
    line = f"shopt -u extglob && eval {json.dumps(command)} && pwd -P >| {note}"
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", sandboxed.__file__, str(talk.store), line], cwd=talk.project,
        env={**talk.environment, "CLAUDE_CODE_SESSION_ID": talk.session, "SHELL": "/bin/bash"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    listener.accept()[0].close()
    listener.close()
    stop(talk, agent="claude-code")
    _, err = child.communicate(timeout=60)
    assert child.returncode == 125
    assert f"Agent claude-code was stopped by {BEA}" in err
    assert not (talk.project / "three").exists()
    assert ran(["true"], talk.project).returncode == 0
