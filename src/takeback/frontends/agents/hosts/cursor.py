"""Cursor: `hooks.json`. Facts are from the source of @cursor/sdk 1.0.18; the application was not run."""

import json
import os
from collections.abc import Mapping
from typing import Any

from takeback.frontends.agents.event import Event, HookAnswer, Kind, Tool
from takeback.frontends.agents.hosts import BEFORE_SECONDS, HookPoint, Reply, refusal_in, said
from takeback.frontends.agents.payload import below, directory_of, list_of, object_of, paths_of, text_of

NAME, TITLE, PROGRAM = "cursor", "Cursor", "cursor-agent"
PROJECT = ".cursor"
COVERS_MISSING = "the call is denied (failClosed)"
TRUST = ""
NO_SANDBOX = "takeback knows no setting of Cursor that puts a program before a command"
COMMENTS = False
PREAMBLE: Mapping[str, Any] = {"version": 1}
NOTES = ("{settings}",)
SETTINGS = ("hooks.json", "mcp.json", "cli-config.json", "commands", "rules", "skills", "agents")
READS = frozenset((
    "Read", "Grep", "Glob", "List", "ReadLints", "Fetch", "WebFetch", "WebSearch", "Task", "ListMcpResources",
    "TodoWrite",
))  # fmt: skip
_UNHOOKED = "^(?!(?:Read|Grep|Glob|List|ReadLints|Fetch|WebFetch|WebSearch)$)"
_EDITS = ("Write", "Edit", "StrReplace", "Delete", "EditNotebook")
_KINDS = {
    "sessionStart": Kind.SESSION_START,
    "beforeSubmitPrompt": Kind.PROMPT,
    "preToolUse": Kind.BEFORE_CALL,
    "postToolUse": Kind.AFTER_CALL,
    "postToolUseFailure": Kind.AFTER_CALL,
    "subagentStart": Kind.SUBAGENT_START,
    "subagentStop": Kind.SUBAGENT_END,
    "stop": Kind.TURN_END,
    "sessionEnd": Kind.SESSION_END,
}
EVENTS = tuple(
    HookPoint(name, before=True, matcher=_UNHOOKED, seconds=BEFORE_SECONDS)
    if name == "preToolUse"
    else HookPoint(name, matcher=_UNHOOKED if name.startswith("postToolUse") else "")
    for name in _KINDS
)
_SHOWS = ("sessionStart", "beforeSubmitPrompt", "preToolUse", "postToolUse", "postToolUseFailure")


def user_directory(env: Mapping[str, str]) -> str:
    return os.path.join(env.get("HOME", ""), ".cursor")


def settings_file(directory: str, user: bool) -> str:
    return os.path.join(directory, "hooks.json")


def entry(point: HookPoint, command: str) -> dict[str, Any]:
    hook: dict[str, Any] = {"command": command, "timeout": point.seconds}
    if point.matcher:
        hook["matcher"] = point.matcher
    return hook | ({"failClosed": True} if point.before else {})


def read(payload: Mapping[str, Any], env: Mapping[str, str], agent: int) -> Event:
    event = text_of(payload, "hook_event_name")
    event = event[:1].lower() + event[1:]  # through the hooks of Claude Code
    kind = _KINDS.get(event, Kind.OTHER)
    roots = [root for root in list_of(payload, "workspace_roots") if isinstance(root, str)]
    project = directory_of(env.get("CURSOR_PROJECT_DIR", ""), *roots)
    given = object_of(payload, "tool_input")
    name = text_of(payload, "tool_name")
    tool, paths = _tool(name, given, project)
    where = text_of(given, "cwd", "working_directory") or text_of(payload, "cwd")
    inner = kind in (Kind.SUBAGENT_START, Kind.SUBAGENT_END)
    return Event(
        kind,
        NAME,
        (text_of(payload, "parent_conversation_id") if inner else "")
        or text_of(payload, "session_id", "conversation_id"),
        project,
        cwd=below(project, where),
        agent=agent,
        call=text_of(payload, "tool_use_id"),
        name=name,
        tool=tool,
        paths=paths,
        command=text_of(given, "command") if tool is Tool.SHELL else "",
        input=given,
        text=text_of(payload, "prompt") if kind is Kind.PROMPT else "",
        failed=event == "postToolUseFailure",
        member=text_of(payload, "subagent_id"),
        role=text_of(payload, "subagent_type"),
        source=text_of(payload, "source", "reason"),
        turn=text_of(payload, "generation_id"),
    )


def _tool(name: str, given: Mapping[str, Any], project: str) -> tuple[Tool, tuple[str, ...]]:
    if name in ("Shell", "Bash") and text_of(given, "command"):
        return Tool.SHELL, ()
    if name in _EDITS:
        paths = paths_of([text_of(given, "file_path", "path", "target_notebook")], project)
        return (Tool.EDIT, paths) if paths else (Tool.OTHER, ())
    return (Tool.READ if name in READS else Tool.OTHER), ()


def answer(event: Event, payload: Mapping[str, Any], answer: HookAnswer) -> Reply:
    """Never empty: Cursor takes silence for a failure. Never "allow": that would answer Cursor's own question."""
    name = text_of(payload, "hook_event_name")
    name = name[:1].lower() + name[1:]
    told: dict[str, Any] = {}
    if answer.refusal and event.kind is Kind.BEFORE_CALL:
        reason = refusal_in(NAME, answer)
        told |= {"permission": "deny", "user_message": reason, "agent_message": reason}
    elif answer.asks and event.kind is Kind.BEFORE_CALL:
        told |= {"permission": "ask", "user_message": answer.asks, "agent_message": answer.asks}
    elif answer.refusal and event.kind is Kind.PROMPT:
        told |= {"continue": False, "user_message": refusal_in(NAME, answer)}
    elif (context := said(answer)) and name in _SHOWS:
        told["additional_context"] = context
    if answer.notice and "user_message" not in told and event.kind in (Kind.BEFORE_CALL, Kind.PROMPT):
        told["user_message"] = answer.notice
    return Reply(json.dumps(told))
