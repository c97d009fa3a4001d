"""Subagents as runs of their session; and the agent that undoes what it did, from a call of its own."""

import json
import re
import sys

import pytest

import takeback
from tests.agents.acts import wait_until_asked
from tests.agents.family import Delegate, Shell
from tests.agents.play import Prompt, Scene, play
from tests.agents.scenes import expect
from tests.agents.stage import Place, differences
from tests.agents.talk import Talk, knows_authors, takeback_in
from tests.agents.test_rig import ALL

A, B = ({"agent_id": "a1", "agent_type": "Explore"}, {"agent_id": "b2", "agent_type": "general-purpose"})


def everything(talk: Talk) -> list[str]:
    """Where no one knows who made a change, only what is named goes back."""
    return [] if talk.knows else ["--", str(talk.project)]


def two_subagents(talk: Talk) -> None:
    """Beside the agent itself, one after the other in turn."""
    talk.starts()
    talk.prompts("go")
    talk.shell("echo main > main")
    for number in (1, 2):
        talk.shell(f"echo a{number} > a{number}", **A)
        talk.shell(f"echo b{number} > b{number}", **B)
    talk.write("late", "late\n")


def test_what_a_subagent_does_is_a_run_of_the_session(talk: Talk):
    two_subagents(talk)
    talk.says("SubagentStop", **A)
    with takeback.open(talk.store) as tb:
        (session,) = takeback.sessions(tb)
        runs = {one.name: one for one in session.runs}
        assert [one.run for one in tb.effects(runs["claude-code s-1/Explore a1"])]
        states = {name.partition("/")[2]: one.state.value for name, one in runs.items()}
    assert states == {"": "open", "Explore a1": "accepted", "general-purpose b2": "open"}
    talk.says("SessionEnd", reason="other")
    with takeback.open(talk.store) as tb:
        assert {one.state.value for one in tb.runs()} == {"accepted"}


def test_the_log_shows_the_calls_of_a_subagent_together_with_what_undoes_them(talk: Talk):
    two_subagents(talk)
    lines = talk.takeback("log").stdout.splitlines()
    assert lines[0].startswith("» go  (claude-code, prompt 1")
    (a,) = (one for one in lines if "› subagent Explore" in one)
    (b,) = (one for one in lines if "› subagent general-purpose" in one)
    found = [re.search(r"(?:echo |Write: |subagent )(\w+)", one) for one in lines[1:]]
    told = ["late", "general", "b2", "b1", "Explore", "a2", "a1", "main"]
    assert [one[1] for one in found if one] == told
    assert [one.index("@") for one in lines[1:] if "@" in one] == [2, 4, 4, 4, 4, 2]
    for line in (a, b):
        run = re.search(r"\(run (\w{8})\)", line)
        assert run
        undone = talk.takeback("undo", run[1], *everything(talk))
        assert undone.returncode == 0, undone.stderr
    assert talk.files().keys() == {"one", "two", "main", "late"}


def test_the_undo_of_a_prompt_takes_back_what_its_subagents_did(talk: Talk):
    two_subagents(talk)
    undone = talk.takeback("undo", "--prompt", *everything(talk))
    assert undone.returncode == 0, undone.stderr
    assert talk.files() == {"one": "1\n", "two": "2\n"}
    assert talk.takeback("redo").returncode == 0
    assert talk.takeback("undo", "--session", *everything(talk)).returncode == 0
    assert talk.files() == {"one": "1\n", "two": "2\n"}


def test_the_last_prompt_is_that_of_the_last_call_in_any_run(talk: Talk):
    talk.starts()
    talk.prompts("first")
    talk.shell("echo a > a", **A)
    talk.prompts("second")
    talk.write("late", "late\n")
    assert talk.takeback("undo", "--prompt").returncode == 0
    assert talk.files().keys() == {"one", "two", "a"}


def test_a_prompt_for_a_subagent_is_none_of_the_person_and_ends_no_call(talk: Talk):
    """Codex says it so, and the agent itself works at the same time."""
    talk.starts()
    talk.prompts("go")
    _, call = talk.before("Bash", {"command": "echo a > a"})
    talk.says("UserPromptSubmit", prompt="do a part of it", prompt_id="t-2", **A)
    talk.agent.does("echo a > a")
    talk.after("Bash", {"command": "echo a > a"}, call)
    (effect,) = talk.effects()
    assert effect.change.summary == "Bash: echo a > a" and "closed" not in effect.change.args
    with takeback.open(talk.store) as tb:
        (session,) = takeback.sessions(tb)
        assert [one.text for one in takeback.prompts(tb, session)] == ["go"]


def test_a_subagent_works_on_when_the_turn_has_ended_and_when_the_daemon_was_killed(talk: Talk):
    talk.starts()
    talk.prompts("go")
    talk.shell("echo first > first", **A)
    _, call = talk.before("Bash", {"command": "echo a > a"}, **A)
    talk.says("Stop")
    talk.kill_daemon()
    talk.prompts("and now?")
    talk.agent.does("echo a > a")
    talk.after("Bash", {"command": "echo a > a"}, call, **A)
    talk.says("SubagentStop", **A)
    first, effect = talk.effects()
    assert first.run == effect.run and "closed" not in effect.change.args
    assert [one.resource[-1] for one in effect.targets] == ["a"]


def test_the_end_of_a_subagent_ends_its_calls(talk: Talk):
    talk.starts()
    talk.prompts("go")
    talk.before("Bash", {"command": "echo a > a"}, **A)
    talk.agent.does("echo a > a")
    talk.says("SubagentStop", **A)
    (effect,) = talk.effects()
    assert effect.change.args["closed"] == "the subagent had finished" and effect.accepted_by == "run"


def test_a_subagent_hears_only_of_its_own_changes_that_were_taken_back(talk: Talk):
    two_subagents(talk)
    named = {one.change.summary[-2:]: one for one in talk.effects()}
    talk.undo(named["a2"])
    assert named["a2"].id[:8] not in talk.shell("true", **B).context
    assert named["a2"].id[:8] in talk.shell("true", **A).context
    assert named["a2"].id[:8] in talk.prompts("and now?").context


# The agent undoes what it did.


def test_a_call_can_undo_what_the_agent_did_before_it(talk: Talk):
    talk.starts()
    talk.prompts("go")
    talk.shell("echo a > a; rm one")
    talk.shell("echo more >> two")
    words = f"{sys.executable} -m takeback undo --prompt --merge {' '.join(everything(talk))} > {talk.place}/said 2>&1"
    talk.shell(f"PYTHONDONTWRITEBYTECODE=1 {words}")
    said = (talk.place / "said").read_text()
    assert "Took back" in said and "this command is part of that call" in said, said
    assert talk.files() == {"one": "1\n", "two": "2\n"}
    *_, own = talk.effects()[1:]
    elsewhere = (f"{talk.place}/said",) if talk.knows else ()
    assert own.outside == elsewhere, "what the undo wrote is no change by the call"


def test_a_call_can_undo_the_newest_effect(talk: Talk):
    talk.starts()
    talk.prompts("go")
    talk.write("a", "a\n")
    talk.write("b", "b\n")
    talk.shell(f"{sys.executable} -m takeback undo > {talk.place}/said 2>&1")
    assert talk.files().keys() == {"one", "two", "a"}, (talk.place / "said").read_text()


def test_another_call_under_way_is_not_left_out(talk: Talk):
    talk.starts()
    talk.prompts("go")
    talk.write("a", "a\n")
    talk.before("Bash", {"command": "make everything"}, **A)
    talk.shell(f"{sys.executable} -m takeback undo --prompt > {talk.place}/said 2>&1")
    said = (talk.place / "said").read_text()
    assert "has not ended" in said and "make everything" in said
    assert (talk.project / "a").exists()


# The real agents.


TWO_PARTS = Scene(
    "two parts",
    (
        Prompt(
            "two parts", ((Delegate("do part a"), Delegate("do part b")), (Shell("echo main > main.txt"),))
        ),
        Prompt("do part a", ((Shell("echo a > a.txt"),), (Shell("rm docs/a.md"),)), by="agent"),
        Prompt("do part b", ((Shell("echo b > b.txt"),), (Shell("rm docs/b.md"),)), by="agent"),
    ),
    {"a.txt": "a\n", "b.txt": "b\n", "main.txt": "main\n", "docs/a.md": None, "docs/b.md": None},
    # One after the other: of commands at the same time no one knows which of them made a change.
    between={
        ("do part b", 0): wait_until_asked("do part a", 2),
        ("two parts", 1): wait_until_asked("do part b", 2),
    },
)
# Gemini CLI does not say which subagent makes a call.
NAMED = {
    "claude-code": "general-purpose",
    "codex": "default",
    "codex-script": "default",
    "opencode": "general",
    "cursor": "generalPurpose",
}


@pytest.mark.agents
@pytest.mark.usefixtures("no_daemon_stays")
@pytest.mark.parametrize("agent", [*ALL, pytest.param("cursor", marks=pytest.mark.each_share)])
def test_two_subagents_are_told_apart_and_go_back_alone(agent: str, place: Place):
    assert takeback_in(place, "hook", "install", agent.removesuffix("-script")).returncode == 0
    before = place.look()

    play(agent, TWO_PARTS, place.home, place.project)

    expect(place, TWO_PARTS.wants, differences(before, place.look(), times=False))
    log = takeback_in(place, "log").stdout
    listed = [one for one in json.loads(takeback_in(place, "log", "--json").stdout) if one["session"]]
    whole = [] if knows_authors(place.project) else ["--", str(place.project)]
    assert {one["prompt"]["text"].strip('"') for one in listed} == {"two parts"}, log
    parts = {one["subagent"]["run"]: one["subagent"]["name"] for one in listed if one["subagent"]}
    assert (
        [name.split()[0] for name in parts.values()] == [NAMED[agent]] * 2 if agent in NAMED else not parts
    ), log
    for run in parts:
        undone = takeback_in(place, "undo", run, *whole)
        assert undone.returncode == 0, undone.stderr + log
        gone = [name for name in ("a", "b") if not (place.project / f"docs/{name}.md").exists()]
        assert len(gone) == list(reversed(parts)).index(run), log
    undone = takeback_in(place, "undo", "--session", *whole)
    assert undone.returncode == 0, undone.stderr + log
    assert differences(before, place.look(), times=False) == {}, log
