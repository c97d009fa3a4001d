"""What each host sends, as it was recorded, becomes one event; what is broken in it becomes a missing value."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takeback.frontends.agents.event import Event, Kind, Tool, fingerprint
from takeback.frontends.agents.hosts import NAMES, host, speaker

BASE = {
    "session_id": "ecad518c-1",
    "transcript_path": "/home/me/.claude/projects/-home-me-proj/ecad518c-1.jsonl",
    "cwd": "/home/me/proj",
    "prompt_id": "ae5f3d87-1",
    "permission_mode": "bypassPermissions",
    "effort": {"level": "medium"},
}
BASH = {
    **BASE,
    "hook_event_name": "PreToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "echo hi > out.txt; cat out.txt", "description": "write file"},
    "tool_use_id": "toolu_01AAAA",
}
CLAUDE_ENV = {"CLAUDE_PROJECT_DIR": "/home/me/proj", "CLAUDE_PID": "4711"}
CODEX = {
    "session_id": "01a1dce5-1",
    "turn_id": "01a1dce5-2",
    "transcript_path": "/home/me/.codex/sessions/2026/11/15/rollout-1.jsonl",
    "cwd": "/home/me/proj",
    "hook_event_name": "PreToolUse",
    "model": "gpt-5.3-codex",
    "permission_mode": "bypassPermissions",
    "tool_name": "Bash",
    "tool_input": {"command": "echo hi > out.txt; cat out.txt"},
    "tool_use_id": "call_1",
}
GEMINI = {
    "session_id": "9c1d4cd9-1",
    "transcript_path": "/home/me/.gemini/tmp/proj/chats/session-1.jsonl",
    "cwd": "/home/me/proj",
    "hook_event_name": "BeforeTool",
    "timestamp": "2026-11-15T01:50:28.127Z",
    "tool_name": "run_shell_command",
    "tool_input": {"command": "echo hi > out.txt; cat out.txt", "description": "w"},
}
CURSOR = {
    "conversation_id": "c-1",
    "generation_id": "g-1",
    "model": "m",
    "session_id": "c-1",
    "hook_event_name": "preToolUse",
    "cursor_version": "2.0",
    "workspace_roots": ["/home/me/proj"],
    "transcript_path": None,
    "tool_name": "Shell",
    "tool_input": {"command": "rm -rf build", "cwd": ""},
    "tool_use_id": "t-1",
}
OPENCODE = {
    "hook_event_name": "tool.execute.before",
    "session_id": "ses_1",
    "member": "",
    "project": "/home/me/proj",
    "cwd": "/home/me/proj",
    "pid": 4711,
    "tool_name": "bash",
    "tool_input": {"command": "echo hi > out.txt", "description": "w"},
    "tool_use_id": "call_1",
}
SAMPLES = {"claude-code": BASH, "codex": CODEX, "gemini": GEMINI, "cursor": CURSOR, "opencode": OPENCODE}


def claude(env: Mapping[str, str] = CLAUDE_ENV, **payload: Any) -> Event:
    return host("claude-code").read({**BASH, **payload}, env, 99)


def edit(name: str, **given: Any) -> Event:
    return claude(tool_name=name, tool_input=given)


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_call_of_every_host_is_read_alike(name: str) -> None:
    event = host(name).read(SAMPLES[name], {}, 99)

    assert event.kind is Kind.BEFORE_CALL
    assert event.host == name
    assert event.session == (SAMPLES[name]["session_id"])
    assert event.tool is Tool.SHELL
    assert event.command == SAMPLES[name]["tool_input"]["command"]
    assert event.call == SAMPLES[name].get("tool_use_id", "")
    assert event.input == SAMPLES[name]["tool_input"]
    assert event.agent == 99
    assert event.cwd == "/home/me/proj"
    assert event.project == ("" if name == "claude-code" else "/home/me/proj")


@pytest.mark.parametrize("name", NAMES)
def test_every_installed_event_is_understood(name: str) -> None:
    kinds = {host(name).read({"hook_event_name": point.name}, {}, 1).kind for point in host(name).EVENTS}

    assert kinds >= {Kind.SESSION_START, Kind.PROMPT, Kind.BEFORE_CALL, Kind.AFTER_CALL, Kind.TURN_END}
    assert kinds - {Kind.OTHER} == kinds or name == "claude-code"  # PostToolBatch
    assert [point.before for point in host(name).EVENTS].count(True) == 1


# Claude Code.


def test_the_project_does_not_move_when_the_agent_changes_its_directory() -> None:
    assert claude(cwd="/home/me/proj/sub").project == "/home/me/proj"
    assert claude(cwd="/home/me/proj/sub").cwd == "/home/me/proj/sub"
    assert claude({}, cwd="/home/me/proj/sub").project == "", "no one said which project it is"
    started = host("claude-code").read(
        {**BASE, "hook_event_name": "SessionStart", "source": "startup"}, {}, 1
    )
    assert started.project == "/home/me/proj"
    assert (started.kind, started.source) == (Kind.SESSION_START, "startup")


def test_the_process_of_claude_is_the_one_that_it_names() -> None:
    assert claude().agent == 4711
    assert claude({}).agent == 99
    assert claude({"CLAUDE_PID": "-1"}).agent == 99
    assert claude({"CLAUDE_PID": "1"}).agent == 99
    assert claude({"CLAUDE_PID": "²"}).agent == 99


def test_edits_name_their_paths() -> None:
    assert edit("Write", file_path="/etc/hosts", content="").paths == ("/etc/hosts",)
    assert edit("Edit", file_path="/a/b", old_string="x", new_string="y").tool is Tool.EDIT
    assert edit("MultiEdit", file_path="/a/b", edits=[]).paths == ("/a/b",)
    assert edit("NotebookEdit", notebook_path="/a/n.ipynb", new_source="").paths == ("/a/n.ipynb",)
    assert edit("Write", file_path="sub/f").paths == ("/home/me/proj/sub/f",)


@pytest.mark.parametrize("path", [None, 7, "", "a\0b", "\ud800", ["/a"]])
def test_an_edit_without_a_path_is_watched_like_a_shell_call(path: object) -> None:
    event = edit("Write", file_path=path)

    assert (event.tool, event.paths) == (Tool.OTHER, ())


def test_tools_that_change_nothing_are_not_watched() -> None:
    for name in ("Read", "Glob", "Grep", "WebFetch", "Agent", "Task"):
        assert edit(name, prompt="p").tool is Tool.READ
    assert edit("mcp__files__write_file", path="/a").tool is Tool.OTHER
    assert edit("ToolOfTomorrow").tool is Tool.OTHER


def test_the_end_of_a_call_says_whether_it_failed_and_whether_it_still_runs() -> None:
    ended = {"hook_event_name": "PostToolUse", "tool_response": {"stdout": "hi", "interrupted": False}}
    assert (claude(**ended).kind, claude(**ended).failed) == (Kind.AFTER_CALL, False)
    failed = claude(hook_event_name="PostToolUseFailure", error="Exit code 1", is_interrupt=False)
    assert (failed.kind, failed.failed, failed.call) == (Kind.AFTER_CALL, True, "toolu_01AAAA")
    asked = {"command": "npm run dev", "run_in_background": True}
    assert claude(tool_input=asked).background
    moved = claude(hook_event_name="PostToolUse", tool_response={"backgroundTaskId": "b1"})
    assert moved.background
    assert not claude().background


def test_a_prompt_and_a_subagent_are_named() -> None:
    said = claude(hook_event_name="UserPromptSubmit", prompt="tidy up", source="user")
    assert (said.kind, said.text, said.turn, said.source) == (Kind.PROMPT, "tidy up", "ae5f3d87-1", "user")
    assert claude(agent_id="agent-7", agent_type="general-purpose").member == "agent-7"
    assert claude(agent_type="main").member == ""
    assert claude(hook_event_name="SessionEnd", reason="other").source == "other"
    assert claude(hook_event_name="PostToolBatch", tool_calls=[]).kind is Kind.OTHER


def test_cursor_is_known_although_it_runs_the_hooks_of_claude() -> None:
    assert speaker("claude-code", CURSOR).NAME == "cursor"
    assert speaker("claude-code", BASH).NAME == "claude-code"
    told = {**CURSOR, "hook_event_name": "PreToolUse"}
    assert host("cursor").read(told, {}, 1).kind is Kind.BEFORE_CALL


# The others.


PATCH = """*** Begin Patch
*** Add File: new.txt
+hello
*** Update File: src/old.py
*** Move to: src/new.py
@@
-a
+b
*** Delete File: /tmp/gone
*** End Patch"""
NAMED = ("/home/me/proj/new.txt", "/home/me/proj/src/old.py", "/home/me/proj/src/new.py", "/tmp/gone")


def codex(command: str, name: str = "Bash") -> Event:
    return host("codex").read({**CODEX, "tool_name": name, "tool_input": {"command": command}}, {}, 1)


@pytest.mark.parametrize(
    "command",
    [
        f"apply_patch <<'EOF'\n{PATCH}\nEOF",
        f"apply_patch <<'EOF'\n{PATCH}\nEOF\n",
        f'applypatch <<"PATCH"\n{PATCH}\nPATCH',
        f"cd /home/me/proj && apply_patch <<'EOF'\n{PATCH}\nEOF",
        f"cd . && apply_patch <<EOF\n{PATCH}\nEOF",
        f"apply_patch '{PATCH}'",
    ],
)
def test_a_patch_in_a_shell_command_names_what_it_changes(command: str) -> None:
    event = codex(command)

    assert event.tool is Tool.EDIT
    assert tuple(path.replace("/./", "/") for path in event.paths) == NAMED
    assert event.command == command


@pytest.mark.parametrize(
    "command",
    [
        f"apply_patch <<'EOF'\n{PATCH}\nEOF\nrm -rf build",
        f"rm x; apply_patch <<'EOF'\n{PATCH}\nEOF",
        f"apply_patch <<EOF\n{PATCH.replace('hello', '$(rm x)')}\nEOF",
        f"apply_patch <<'EOF' && rm x\n{PATCH}\nEOF",
        f"cd $(mktemp -d) && apply_patch <<'EOF'\n{PATCH}\nEOF",
        f"apply_patch <<'EOF'\n{PATCH}",
        "apply_patch <<'EOF'\nno patch\nEOF",
        "echo apply_patch",
    ],
)
def test_a_command_that_may_do_more_is_a_shell_call(command: str) -> None:
    assert (codex(command).tool, codex(command).paths) == (Tool.SHELL, ())


def test_the_patch_tool_of_codex_names_its_paths() -> None:
    assert codex(PATCH, "apply_patch").paths == NAMED
    padded = PATCH.replace("*** Begin", "  *** Begin").replace("*** Add", "   *** Add")
    assert codex(padded, "apply_patch").paths == NAMED
    assert codex("garbage", "apply_patch").tool is Tool.OTHER
    assert codex("x", "update_plan").tool is Tool.READ


def test_gemini_pairs_calls_by_tool_and_input() -> None:
    def told(**more: Any) -> Event:
        return host("gemini").read({**GEMINI, **more}, {"GEMINI_PROJECT_DIR": "/p"}, 1)

    before, after = told(), told(hook_event_name="AfterTool", tool_response={"llmContent": "hi"})
    assert before.call == ""
    assert fingerprint(before) == fingerprint(after)
    assert fingerprint(told(tool_input={"command": "other"})) != fingerprint(before)
    assert before.project == "/p"
    assert told(tool_input={"command": "x", "dir_path": "sub"}).cwd == "/p/sub"
    assert told(tool_input={"command": "x", "is_background": True}).background
    assert told(tool_name="replace", tool_input={"file_path": "/p/f"}).paths == ("/p/f",)
    assert told(hook_event_name="AfterTool", tool_response={"error": {"message": "no"}}).failed
    prompt = "<hook_context>said at the start</hook_context>\n\ntidy up"
    assert told(hook_event_name="BeforeAgent", prompt=prompt).text == "tidy up"


def test_opencode_and_cursor_name_the_member_and_the_turn() -> None:
    child = host("opencode").read({**OPENCODE, "member": "ses_2", "failed": True}, {}, 1)
    assert (child.session, child.member, child.failed) == ("ses_1", "ses_2", True)
    edited = {**OPENCODE, "tool_name": "edit", "tool_input": {"filePath": "src/a.py"}}
    assert host("opencode").read(edited, {}, 1).paths == ("/home/me/proj/src/a.py",)
    patched = {**OPENCODE, "tool_name": "apply_patch", "tool_input": {"patchText": PATCH}}
    assert host("opencode").read(patched, {}, 1).paths == NAMED
    removed = {**CURSOR, "tool_name": "Delete", "tool_input": {"file_path": "/home/me/proj/x"}}
    assert host("cursor").read(removed, {}, 1).paths == ("/home/me/proj/x",)
    assert host("cursor").read(CURSOR, {}, 1).turn == "g-1"
    begun = {
        **CURSOR,
        "hook_event_name": "subagentStart",
        "subagent_id": "s-1",
        "parent_conversation_id": "c-0",
    }
    assert host("cursor").read(begun, {}, 1).session == "c-0"


# Nothing that a host sends raises.


def broken(payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for key in payload:
        for value in (None, 7, True, [], {}, [{}], {"command": 5}, "\ud800", "a\0b", "x" * 100_000):
            yield {**payload, key: value}
    yield {}


@pytest.mark.parametrize("name", NAMES)
def test_broken_payloads_are_read_without_an_error(name: str) -> None:
    for payload in broken(SAMPLES[name]):
        event = host(name).read(payload, {"CLAUDE_PROJECT_DIR": "relative"}, 1)
        assert isinstance(event.session, str)
        assert isinstance(event.command, str)
        assert event.project == "" or event.project.startswith("/")
        assert all(path.startswith("/") for path in event.paths)
        assert fingerprint(event)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = sorted(
    {key for sample in SAMPLES.values() for key in sample} | {"tool_response", "prompt", "agent_id"}
)


@given(st.sampled_from(NAMES), st.dictionaries(st.sampled_from(KEYS), JSON))
def test_any_json_is_read_without_an_error(name: str, payload: dict[str, Any]) -> None:
    event = host(name).read(json.loads(json.dumps(payload)), {}, 1)
    assert isinstance(event, Event)
