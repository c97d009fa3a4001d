"""Claude Code: hooks in `settings.json`. Facts are from 2.1.325."""

import json
import os
from collections.abc import Mapping
from typing import Any

from takeback.frontends.agents.event import Event, HookAnswer, Kind, Tool
from takeback.frontends.agents.hosts import BEFORE_SECONDS, HookPoint, Reply, is_prefix, refusal_in, said
from takeback.frontends.agents.payload import (
    directory_of,
    is_set,
    object_of,
    paths_of,
    process_of,
    text_of,
)

NAME, TITLE, PROGRAM = "claude-code", "Claude Code", "claude"
PROJECT = ".claude"
COVERS_MISSING = "the call is denied, also by versions that ignore onFailure"
TRUST = ""
NO_SANDBOX = ""
COMMENTS = False  # with a comment in it the whole file is ignored, without a word
PREAMBLE: Mapping[str, Any] = {}
NOTES = ("{settings}", "{temporary}/claude-{user}", "{temporary}/claude-*-cwd", "{temporary}/cc-socks")
SETTINGS = (
    "settings.json", "settings.local.json", "CLAUDE.md", "agents", "commands", "hooks", "keybindings.json",
    "output-styles", "plugins", "rules", "skills",
)  # fmt: skip
# Tools that change nothing themselves. The calls of a subagent have hooks of their own.
READS = frozenset((
    "Read", "Glob", "Grep", "LS", "WebFetch", "WebSearch", "NotebookRead", "TodoWrite", "Task", "Agent", "TaskCreate",
    "TaskGet", "TaskList", "TaskUpdate", "TaskOutput", "BashOutput", "ToolSearch", "AskUserQuestion", "ExitPlanMode",
    "EnterPlanMode", "ListMcpResourcesTool", "ReadMcpResourceTool", "Skill", "SlashCommand", "CronList",
))  # fmt: skip
# Claude Code starts no hook for these: they are frequent, and reading need not be taken back.
_UNHOOKED = "^(?!(?:Read|Glob|Grep|LS|WebFetch|WebSearch|TodoWrite|TaskGet|TaskList|TaskUpdate|TaskCreate|BashOutput)$)"
_EDITS = {
    "Edit": "file_path",
    "Write": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
}
_SHELLS = ("Bash", "Monitor", "PowerShell")
_KINDS = {
    "SessionStart": Kind.SESSION_START,
    "UserPromptSubmit": Kind.PROMPT,
    "PreToolUse": Kind.BEFORE_CALL,
    "PostToolUse": Kind.AFTER_CALL,
    "PostToolUseFailure": Kind.AFTER_CALL,
    "PostToolBatch": Kind.OTHER,  # all calls of the turn have ended
    "Stop": Kind.TURN_END,
    "StopFailure": Kind.TURN_END,
    "SubagentStart": Kind.SUBAGENT_START,
    "SubagentStop": Kind.SUBAGENT_END,
    "SessionEnd": Kind.SESSION_END,
}
EVENTS = tuple(
    HookPoint(name, before=True, matcher=_UNHOOKED, seconds=BEFORE_SECONDS)
    if name == "PreToolUse"
    else HookPoint(name, matcher=_UNHOOKED if name in ("PostToolUse", "PostToolUseFailure") else "")
    for name in _KINDS
)
# Where the model reads additionalContext. After Stop it would make the model continue.
_SHOWS = (
    "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch",
    "SubagentStart",
)  # fmt: skip


def user_directory(env: Mapping[str, str]) -> str:
    return env.get("CLAUDE_CONFIG_DIR") or os.path.join(env.get("HOME", ""), ".claude")


def settings_file(directory: str, user: bool) -> str:
    """In a project the file of this person: the hooks hold paths of this machine, and the other one is shared."""
    return os.path.join(directory, "settings.json" if user else "settings.local.json")


def entry(point: HookPoint, command: str) -> dict[str, Any]:
    hook: dict[str, Any] = {"type": "command", "command": command, "timeout": point.seconds}
    if point.before:
        hook["onFailure"] = "block"
    return ({"matcher": point.matcher} if point.matcher else {}) | {"hooks": [hook]}


def read(payload: Mapping[str, Any], env: Mapping[str, str], agent: int) -> Event:
    event = text_of(payload, "hook_event_name")
    kind = _KINDS.get(event, Kind.OTHER)
    cwd, given = directory_of(text_of(payload, "cwd")), object_of(payload, "tool_input")
    # The directory of the payload moves with `cd`; only at the start of a session it is that of the project.
    started = cwd if kind is Kind.SESSION_START else ""
    name = text_of(payload, "tool_name")
    tool, paths = _tool(name, given, cwd)
    answered = object_of(payload, "tool_response")
    background = is_set(given, "run_in_background") or name == "Monitor"
    return Event(
        kind,
        NAME,
        text_of(payload, "session_id") or env.get("CLAUDE_CODE_SESSION_ID", ""),
        directory_of(env.get("CLAUDE_PROJECT_DIR", ""), started),
        cwd=cwd,
        agent=process_of(env, "CLAUDE_PID", agent),
        call=text_of(payload, "tool_use_id"),
        name=name,
        tool=tool,
        paths=paths,
        command=text_of(given, "command") if tool is Tool.SHELL else "",
        input=given,
        text=text_of(payload, "prompt") if kind is Kind.PROMPT else "",
        failed=event in ("PostToolUseFailure", "StopFailure"),
        background=background or bool(text_of(answered, "backgroundTaskId")),
        apart=name == "Bash" and not background and is_prefix(env.get("CLAUDE_CODE_SHELL_PREFIX", "")),
        member=text_of(payload, "agent_id"),
        role=text_of(payload, "agent_type"),
        source=text_of(payload, "source", "reason"),
        turn=text_of(payload, "prompt_id"),
    )


def _tool(name: str, given: Mapping[str, Any], cwd: str) -> tuple[Tool, tuple[str, ...]]:
    if name in _SHELLS and text_of(given, "command"):
        return Tool.SHELL, ()
    if name in _EDITS:
        paths = paths_of([text_of(given, _EDITS[name])], cwd)
        return (Tool.EDIT, paths) if paths else (Tool.OTHER, ())
    return (Tool.READ if name in READS else Tool.OTHER), ()


def answer(event: Event, payload: Mapping[str, Any], answer: HookAnswer) -> Reply:
    name = text_of(payload, "hook_event_name")
    told: dict[str, Any] = {}
    if answer.notice:
        told["systemMessage"] = answer.notice
    if answer.refusal and event.kind is Kind.BEFORE_CALL:
        told["hookSpecificOutput"] = {
            "hookEventName": name,
            "permissionDecision": "deny",
            "permissionDecisionReason": refusal_in(NAME, answer),
        }
    elif answer.asks and event.kind is Kind.BEFORE_CALL:
        told["hookSpecificOutput"] = {
            "hookEventName": name,
            "permissionDecision": "ask",
            "permissionDecisionReason": answer.asks,
        }
    elif answer.refusal and event.kind is Kind.PROMPT:
        told |= {"decision": "block", "reason": refusal_in(NAME, answer)}
    elif (context := said(answer)) and name in _SHOWS:
        told["hookSpecificOutput"] = {"hookEventName": name, "additionalContext": context}
    return Reply(json.dumps(told) if told else "")
