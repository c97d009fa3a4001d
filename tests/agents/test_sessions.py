"""A conversation as it is recorded: calls that go back alone, what others do meanwhile, what the agent is told."""

import json
import os
import re
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.adapters.watch.watched_root import WatchedRoot
from takeback.errors import Refused
from takeback.frontends.agents import sessions as agent_sessions
from takeback.frontends.agents.event import Event, Kind, Tool, unexpected
from takeback.model.effect import State
from takeback.model.remedy import doubt_of
from takeback.runs import checkpoints
from tests.agents.stage import git
from tests.agents.talk import Talk, ran, talking, until


def test_each_call_goes_back_alone(talk: Talk):
    talk.starts()
    talk.prompts("change things")
    talk.shell("echo a > a; rm one")
    talk.shell("echo b > b; echo more >> two")
    talk.write("made/deep/c", "c\n")
    first, second, third = talk.effects()
    assert talk.summaries() == ["Bash: echo a > a; rm one", "Bash: echo b > b; echo more >> two", "Write: c"]
    assert {outcome for _, outcome in talk.undo(first)} == {"undone"}
    assert talk.files() == {"one": "1\n", "two": "2\nmore\n", "b": "b\n", "made/deep/c": "c\n"}
    talk.undo(third, "made")
    assert not (talk.project / "made").exists()
    talk.undo(second)
    assert talk.files() == {"one": "1\n", "two": "2\n"}


def test_a_prompt_is_a_point_of_the_run(talk: Talk):
    talk.starts()
    talk.prompts("fix the parser\nplease", "turn-1")
    talk.shell("echo a > a")
    talk.prompts("now the tests", "turn-2")
    talk.prompts("now the tests", "turn-2")
    with takeback.open(talk.store) as tb:
        (info,) = tb.runs()
        points = checkpoints.of_run(tb.store.journal, info.id)
    assert info.name == "claude-code s-1" and info.agent == "claude-code"
    assert info.project == takeback.api.resource_of(talk.project)
    assert [one.summary for one in points] == ["fix the parser", "now the tests"]


def test_what_the_user_does_between_two_calls_is_the_users(talk: Talk):
    talk.starts()
    talk.prompts("go")
    talk.shell("echo a > a")
    talk.user.does(f"echo mine > {talk.project}/mine")
    talk.shell("echo b > b")
    first, between, second = talk.effects()
    assert between.change.facts.others and not first.change.facts.others and not second.change.facts.others
    assert [one.resource.rpartition("/")[2] for one in between.targets] == ["mine"]


def test_what_the_agent_left_running_is_told_apart(talk: Talk):
    talk.starts()
    talk.prompts("go")
    talk.shell(f"(sleep 0.3; echo late > {talk.project}/late) > /dev/null 2>&1 &")
    until((talk.project / "late").exists)
    talk.shell("echo b > b")
    between = next(one for one in talk.effects() if one.targets[0].resource.endswith("/late"))
    assert between.change.facts.others is not talk.knows
    assert between.change.summary.startswith("in the background")


def test_a_file_that_the_user_edits_during_a_call_stays(talk: Talk):
    talk.starts()
    talk.prompts("go")
    talk.shell("echo agent >> one; echo agent >> two", meanwhile=f"echo user >> {talk.project}/one")
    (effect,) = talk.effects()
    if talk.knows:
        assert talk.undo(effect) == [("one", "excluded"), ("two", "undone")]
        assert talk.files() == {"one": "1\nagent\nuser\n", "two": "2\n"}
    else:
        with takeback.open(talk.store) as tb, pytest.raises(Refused, match="someone else"):
            tb.undo(effect.id)
        assert talk.files() == {"one": "1\nagent\nuser\n", "two": "2\nagent\n"}
    assert talk.undo(effect, "one") == [("one", "undone")]
    assert talk.files()["one"] == "1\n"


def test_what_went_with_a_directory_that_the_user_removed_stays_the_users(talk: Talk):
    """While the agent removes another one: of what was in either the kernel reports no path."""
    for name in ("a", "b"):
        (talk.project / name).mkdir()
        (talk.project / name / "file").write_text(f"{name}\n")
    talk.starts()
    talk.prompts("go")
    talk.shell("rm -r a", meanwhile=f"rm -r {talk.project}/b")

    talk.takeback("undo", "--prompt")
    restored = {"a/file": "a\n"} if talk.knows else {}
    assert talk.files() == {"one": "1\n", "two": "2\n", **restored}
    done = talk.takeback("undo", "--prompt", "--", str(talk.project))
    assert done.returncode == 0, done.stderr
    assert talk.files() == {"one": "1\n", "two": "2\n", "a/file": "a\n", "b/file": "b\n"}


def test_a_refusal_names_all_that_others_may_have_changed(talk: Talk):
    talk.starts()
    talk.prompts("go")
    both = f"echo user >> {talk.project}/one; echo user >> {talk.project}/two"
    talk.shell("echo agent >> one; echo agent >> two", meanwhile=both)
    refused = talk.takeback("undo", "--prompt")
    assert refused.returncode == 3
    assert re.search("each of .*one, .*two (was|may have been) changed by someone else", refused.stderr)
    assert f" -- {talk.project}` takes back" in refused.stderr or " -- .` takes back" in refused.stderr


@pytest.mark.parametrize("verb", ["--prompt", "--session"])
def test_where_authors_are_unknown_the_hint_takes_back_all_of_it_at_once(talk: Talk, verb: str):
    talk.loses_authors()
    talk.starts()
    talk.prompts("go")
    talk.shell("echo agent >> one")
    talk.shell("rm two; echo x > 'a b'")
    talk.write("new", "n\n")

    refused = talk.takeback("undo", verb)
    assert refused.returncode == 1, "the edit named its file"
    assert "each of a b, two, one may have been changed by someone else" in refused.stderr
    assert refused.stderr.count("it goes back only") == 1, "said once, not of each"
    done = pasted(talk, refused.stderr)
    assert done.returncode == 0 and talk.files() == {"one": "1\n", "two": "2\n"}, done.stderr
    redone = talk.takeback("redo")
    assert talk.files() == {"one": "1\nagent\n", "a b": "x\n"}, redone.stdout
    done = pasted(talk, redone.stdout)
    assert done.returncode == 0 and talk.files() == {"one": "1\n", "two": "2\n"}, done.stderr


def pasted(talk: Talk, said: str) -> "subprocess.CompletedProcess[str]":
    """The command of the first hint, in a shell."""
    found = re.search(r"hint: `takeback ([^`]*)`", said)
    assert found, said
    return ran(["sh", "-c", f"{sys.executable} -m takeback {found[1]}"], talk.project)


def test_what_only_the_user_changed_during_a_call_is_an_effect_of_its_own(talk: Talk):
    talk.starts()
    talk.prompts("go")
    talk.shell("echo agent >> one", meanwhile=f"echo user >> {talk.project}/two")
    if not talk.knows:
        (effect,) = talk.effects()
        assert {one.after["by_whom"] for one in effect.targets} == {"unknown"}
        return
    mine, others = sorted(talk.effects(), key=lambda one: one.change.facts.others)
    assert [one.resource[-3:] for one in mine.targets] == ["one"]
    assert others.change.facts.others and [one.resource[-3:] for one in others.targets] == ["two"]


def test_files_outside_the_project_go_back_when_a_tool_names_them(talk: Talk):
    talk.starts()
    talk.prompts("go")
    outside = talk.place / "elsewhere" / "rc"
    outside.parent.mkdir()
    outside.write_text("old\n")
    talk.write(str(outside), "new\n")
    (effect,) = talk.effects()
    with takeback.open(talk.store) as tb:
        tb.undo(effect.id)
    assert outside.read_text() == "old\n"


@pytest.mark.parametrize("how", ["in place", "by another file"])
def test_the_undo_of_an_edit_restores_both_names_of_a_file(talk: Talk, how: str):
    one, twin = talk.project / "one", talk.project / "twin"
    os.link(one, twin)
    talk.starts()
    talk.prompts("go")
    given = {"file_path": str(one), "old_string": "1", "new_string": "2"}
    _, call = talk.before("Edit", given)
    talk.agent.does("echo 2 > one" if how == "in place" else "echo 2 > new; mv new one")
    said = talk.after("Edit", given, call)
    assert "not exact" not in said.context
    (effect,) = talk.effects()
    talk.undo(effect)
    assert one.samefile(twin) and twin.read_text() == "1\n"
    with takeback.open(talk.store) as tb:
        tb.redo()
    assert one.read_text() == "2\n" and one.samefile(twin) is (how == "in place")


def test_a_missing_part_of_takeback_is_named():
    said = unexpected(ModuleNotFoundError("No module named 'yaml'", name="yaml"))
    assert "installation of takeback in" in said and "'yaml'" in said and "ModuleNotFoundError" not in said


def test_what_a_command_wrote_elsewhere_is_said(talk: Talk):
    talk.starts()
    talk.prompts("go")
    said = talk.shell(f"echo a > a; echo x > {talk.place}/beside")
    if talk.knows:
        assert f"{talk.place}/beside" in said.context
        assert talk.effects()[0].change.args["outside"] == [f"{talk.place}/beside"]
        undone = talk.takeback("undo", "--prompt")
        assert f"{talk.place}/beside was changed outside" in undone.stdout
        assert (talk.place / "beside").exists() and not (talk.project / "a").exists()


def test_what_a_command_wrote_only_elsewhere_is_said_and_listed(talk: Talk):
    talk.starts()
    talk.prompts("go")
    talk.write("a", "a\n")
    said = talk.shell(f"echo x > {talk.place}/beside")
    if not talk.knows:
        assert talk.summaries() == ["Write: a"]
        return
    assert f"{talk.place}/beside is outside of the project" in said.context
    _, effect = talk.effects()
    assert effect.targets == () and effect.outside == (f"{talk.place}/beside",)
    assert "(outside)" in talk.takeback("log").stdout.splitlines()[1]
    assert f"Outside  {talk.place}/beside" in talk.takeback("show", effect.id).stdout
    refused = talk.takeback("undo", effect.id)
    assert refused.returncode == 3 and f"It changed {talk.place}/beside" in refused.stderr
    undone = talk.takeback("undo")
    assert f"Skipped {effect.id[:8]}" in undone.stdout and "Not covered: " in undone.stdout
    assert talk.files() == {"one": "1\n", "two": "2\n"} and (talk.place / "beside").exists()
    nothing = talk.takeback("undo", "--prompt")
    assert nothing.returncode == 3 and "left to undo" in nothing.stderr


def test_what_was_written_elsewhere_does_not_stand_in_the_way(talk: Talk):
    talk.starts()
    talk.prompts("go")
    talk.shell("echo more >> one; rm two")
    talk.shell(f"echo x > {talk.place}/beside")
    named = [] if talk.knows else ["--", str(talk.project)]
    undone = talk.takeback("undo", "--prompt", "--json", *named)
    told = json.loads(undone.stdout)
    assert undone.returncode == 0 and told["outcome"] == "done", undone.stdout
    assert told.get("outside") == ([f"{talk.place}/beside"] if talk.knows else None)
    assert talk.files() == {"one": "1\n", "two": "2\n"}
    assert talk.takeback("redo").returncode == 0
    assert talk.files() == {"one": "1\nmore\n"}
    (talk.project / "one").write_text("again\n")
    assert talk.takeback("undo", "--session", "--merge", "--skip-conflicts", *named).returncode in (
        0,
        1,
    )


def test_a_ref_that_someone_else_moved_during_a_call_stays_unless_it_is_named(talk: Talk):
    git(talk.project, "init", "--quiet")
    git(talk.project, "add", "one")
    git(talk.project, "commit", "--quiet", "--message", "first")
    git(talk.project, "commit", "--quiet", "--message", "second", "--allow-empty")
    talk.starts()
    talk.prompts("go")
    talk.shell("git branch made", meanwhile=f"git -C {talk.project} branch -f made HEAD~1")
    (effect,) = (one for one in talk.effects() if not one.change.facts.others)
    with takeback.open(talk.store) as tb, suppress(Refused):
        tb.undo(effect.id)
    assert git(talk.project, "rev-parse", "made") == git(talk.project, "rev-parse", "HEAD~1")
    told = talk.takeback("undo", effect.id).stderr
    named = re.search(r"-- (\S+)` takes back what you name", told)
    assert named, told
    talk.takeback("undo", effect.id, "--", named[1])
    assert "made" not in git(talk.project, "branch")


def test_an_object_that_git_would_write_again_is_no_change(talk: Talk):
    git(talk.project, "init", "--quiet")
    git(talk.project, "add", "one")
    objects = [path for path in (talk.project / ".git/objects").rglob("*") if path.is_file()]
    for path in objects:
        os.utime(path, (1, 1))
    talk.starts()
    talk.prompts("go")
    talk.shell("git hash-object -w one >&2")
    assert all(path.stat().st_mtime > 1 for path in objects)
    assert talk.effects() == []
    talk.shell("git hash-object -w one two >&2")
    assert talk.summaries() == ["Bash: git hash-object -w one two >&2"]


def test_a_call_without_an_end_ends_with_the_next_prompt(talk: Talk):
    talk.starts()
    talk.prompts("go")
    said, _ = talk.before("Bash", {"command": "echo a > a"})
    assert not said.refusal
    talk.agent.does("echo a > a")
    talk.prompts("again")
    (effect,) = talk.effects()
    assert effect.state is State.DONE and effect.change.args["closed"] == "the next prompt came"


def test_calls_at_the_same_time(talk: Talk):
    talk.starts()
    talk.prompts("go")
    _, one = talk.before("Bash", {"command": "a"})
    _, other = talk.before("Bash", {"command": "b"})
    talk.agent.does("echo a > a")
    talk.agent.does("echo b > b")
    talk.after("Bash", {"command": "a"}, one)
    talk.agent.does("echo c > c")
    talk.after("Bash", {"command": "b"}, other)
    first, second = talk.effects()
    assert "at the same time" in first.change.args["shared"]
    found = {target.resource[-1] for effect in (first, second) for target in effect.targets}
    assert found == {"a", "b", "c"}
    for effect in (second, first):
        talk.undo(effect)
    assert talk.files() == {"one": "1\n", "two": "2\n"}


@pytest.mark.parametrize("knows", [True, False], ids=["authors", "no authors"])
@pytest.mark.parametrize("first", ["edit", "shell"])
def test_an_edit_that_is_open_while_a_command_begins_or_ends_keeps_its_file(
    talk: Talk, first: str, knows: bool
):
    if not knows:
        talk.loses_authors()
    talk.starts()
    talk.prompts("go")
    edit, shell = {"file_path": str(talk.project / "one"), "content": "agent\n"}, {"command": "echo b > b"}
    if first == "shell":
        _, command = talk.before("Bash", shell)
    _, call = talk.before("Write", edit)
    talk.agent.does("echo agent > one")
    if first == "edit":
        _, command = talk.before("Bash", shell)
    talk.agent.does("echo b > b")
    talk.after("Bash", shell, command)
    talk.after("Write", edit, call)

    found = {one.change.summary: [target.resource[-3:] for target in one.targets] for one in talk.effects()}
    assert found.get("Write: one") == ["one"], found
    talk.undo(next(one for one in talk.effects() if one.change.summary == "Write: one"))
    assert talk.files() == {"one": "1\n", "two": "2\n", "b": "b\n"}
    done = talk.takeback("undo", "--session", "--", ".")
    assert done.returncode == 0 and talk.files() == {"one": "1\n", "two": "2\n"}, done.stderr


def test_the_agent_is_told_what_was_taken_back(talk: Talk):
    talk.starts()
    talk.prompts("go")
    talk.shell("echo a > a; echo more >> one")
    (effect,) = talk.effects()
    talk.undo(effect)
    said = talk.prompts("and now")
    assert effect.id[:8] in said.context and "do not stand any more" in said.context
    assert talk.prompts("and now?").context == ""


def test_the_end_accepts_and_a_resumed_conversation_goes_on(talk: Talk):
    talk.starts()
    talk.prompts("go")
    talk.shell("echo a > a")
    talk.says("SessionEnd", reason="other")
    assert talk.effects()[0].accepted_by == "run"
    talk.says("SessionStart", source="resume")
    talk.shell("echo b > b")
    first, second = talk.effects()
    assert first.run != second.run and not second.accepted
    with takeback.open(talk.store) as tb:
        assert {one.name for one in tb.runs()} == {"claude-code s-1"}


def test_two_conversations_in_one_project(talk: Talk, tmp_path: Path):
    with talking(tmp_path, session="s-2") as other:
        for one in (talk, other):
            one.starts()
            one.prompts("go")
        given = {"command": "x"}
        _, mine = talk.before("Bash", given)
        _, theirs = other.before("Bash", given)
        talk.agent.does("echo a > a")
        other.agent.does("echo b > b")
        talk.after("Bash", given, mine)
        other.after("Bash", given, theirs)
        found = {one.change.args.get("session"): one for one in talk.effects() if not one.change.facts.others}
        if talk.knows:
            assert {name: [t.resource[-1] for t in one.targets] for name, one in found.items()} == {
                "s-1": ["a"], "s-2": ["b"],
            }  # fmt: skip
        else:
            assert sorted(t.resource[-1] for one in talk.effects() for t in one.targets) == ["a", "b"]


def test_a_conversation_in_the_home_directory_is_not_let_through(talk: Talk):
    talk.environment["CLAUDE_PROJECT_DIR"] = talk.environment["HOME"]
    talk.starts()
    said, _ = talk.before("Bash", {"command": "echo a > a"})
    assert "home" in said.refusal and "takeback hook uninstall claude-code" in said.refusal
    assert not talk.before("Read", {"file_path": "/etc/passwd"})[0].refusal


def test_a_call_of_more_changes_than_the_kernel_queues(talk: Talk):
    """The queue holds 16,384 reports: without room made in it, no one would know who made all of these. The pauses are
    for a machine that has more to do."""
    talk.starts()
    talk.prompts("go")
    talk.shell("mkdir many; cd many; for n in $(seq 24); do seq -f $n-%g 500 | xargs touch; sleep 0.03; done")
    (effect,) = talk.effects()
    assert len(effect.targets) >= 12_000
    made = [target for target in effect.targets if "/many/" in target.resource]
    assert {bool(doubt_of(target)) for target in made} == {not talk.knows}


def test_a_person_is_shown_how_far_a_long_first_look_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (project := tmp_path / "project").mkdir()
    (project / "one").write_text("1\n")
    goes_on, looked = threading.Event(), WatchedRoot._read

    def held_up(*given: Any, **more: Any) -> Any:
        assert goes_on.wait(20)
        return looked(*given, **more)

    monkeypatch.setattr(WatchedRoot, "_read", held_up)
    monkeypatch.setattr(agent_sessions, "PROMPT_SECONDS", 0.2)
    monkeypatch.setattr(agent_sessions, "_LONG_SECONDS", 0.1)
    held = agent_sessions.Sessions(os.environ["TAKEBACK_STORE"])
    event = Event(Kind.PROMPT, "claude-code", "s-1", str(project), agent=os.getpid(), text="go")
    try:
        said = held.answer(event, {}).notice
        assert f"takeback is looking at {project} (1 path so far), so that" in said, said
        threading.Timer(0.3, goes_on.set).start()
        call = event._replace(kind=Kind.BEFORE_CALL, tool=Tool.SHELL, command="true", call="1", name="Bash")
        assert re.search(
            f"This call waited 0 seconds until takeback had looked at {project}", held.answer(call, {}).notice
        )
        assert held.answer(event._replace(text="more"), {}).notice == ""
    finally:
        goes_on.set()
        held.close()
