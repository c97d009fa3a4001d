"""Gemini CLI: hooks in `settings.json`, which may have comments. Facts are from 0.61."""

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from takeback.frontends.agents.event import Event, HookAnswer, Kind, Tool
from takeback.frontends.agents.hosts import BEFORE_SECONDS, HookPoint, Reply, refusal_in, said
from takeback.frontends.agents.payload import below, directory_of, is_set, object_of, paths_of, text_of

NAME, TITLE, PROGRAM = "gemini", "Gemini CLI", "gemini"
PROJECT = ".gemini"
COVERS_MISSING = (
    "the call is denied by the form of the hook's command line; a hook that times out does not deny"
)
TRUST = (
    "Gemini CLI runs hooks only in a folder that you trust: start `gemini` there and answer its question, or use "
    "/permissions. It warns once about hooks in the settings of a project."
)
NO_SANDBOX = "takeback knows no setting of Gemini CLI that puts a program before a command"
COMMENTS = True
PREAMBLE: Mapping[str, Any] = {}
NOTES = ("{settings}", "{temporary}/gemini-shell-*")
SETTINGS = (
    "settings.json",
    "GEMINI.md",
    ".env",
    "commands",
    "extensions",
    "policies",
    "skills",
    "trustedFolders.json",
)
READS = frozenset((
    "read_file", "read_many_files", "list_directory", "glob", "grep_search", "search_file_content",
    "google_web_search", "web_fetch", "write_todos", "get_internal_docs", "activate_skill", "ask_user",
    "enter_plan_mode", "exit_plan_mode", "update_topic", "complete_task", "list_mcp_resources", "read_mcp_resource",
    "invoke_agent", "delegate_to_agent",
))  # fmt: skip
_UNHOOKED = (
    "^(?!(?:read_file|read_many_files|list_directory|glob|grep_search|google_web_search|write_todos)$)"
)
_EDITS = ("write_file", "replace")
_KINDS = {
    "SessionStart": Kind.SESSION_START,
    "BeforeAgent": Kind.PROMPT,
    "BeforeTool": Kind.BEFORE_CALL,
    "AfterTool": Kind.AFTER_CALL,
    "AfterAgent": Kind.TURN_END,
    "SessionEnd": Kind.SESSION_END,
}
EVENTS = tuple(
    HookPoint(name, before=True, matcher=_UNHOOKED, seconds=BEFORE_SECONDS)
    if name == "BeforeTool"
    else HookPoint(name, matcher=_UNHOOKED if name == "AfterTool" else "")
    for name in _KINDS
)
_SHOWS = ("SessionStart", "BeforeAgent", "AfterTool")
_SAID_BEFORE = re.compile(
    r"\s*<hook_context>.*?</hook_context>\s*", re.DOTALL
)  # by hooks, with the first prompt


def user_directory(env: Mapping[str, str]) -> str:
    return os.path.join(env.get("GEMINI_CLI_HOME") or env.get("HOME", ""), ".gemini")


def settings_file(directory: str, user: bool) -> str:
    return os.path.join(directory, "settings.json")


def entry(point: HookPoint, command: str) -> dict[str, Any]:
    hook = {"name": "takeback", "type": "command", "command": command, "timeout": point.seconds * 1000}
    return ({"matcher": point.matcher} if point.matcher else {}) | {"hooks": [hook]}


def read(payload: Mapping[str, Any], env: Mapping[str, str], agent: int) -> Event:
    """There is no id of a call: its start and its end are paired by the tool and its input."""
    kind = _KINDS.get(text_of(payload, "hook_event_name"), Kind.OTHER)
    project = directory_of(env.get("GEMINI_PROJECT_DIR", ""), text_of(payload, "cwd"))
    given, answered = object_of(payload, "tool_input"), object_of(payload, "tool_response")
    name = text_of(payload, "tool_name")
    tool, paths = _tool(name, given, project)
    return Event(
        kind,
        NAME,
        text_of(payload, "session_id") or env.get("GEMINI_SESSION_ID", ""),
        project,
        cwd=below(project, text_of(given, "dir_path", "directory")) if tool is Tool.SHELL else project,
        agent=agent,
        name=name,
        tool=tool,
        paths=paths,
        command=text_of(given, "command") if tool is Tool.SHELL else "",
        input=given,
        text=_SAID_BEFORE.sub("", text_of(payload, "prompt")) if kind is Kind.PROMPT else "",
        failed=bool(answered.get("error")),
        background=is_set(given, "is_background"),
        source=text_of(payload, "source", "reason"),
    )


def _tool(name: str, given: Mapping[str, Any], project: str) -> tuple[Tool, tuple[str, ...]]:
    if name == "run_shell_command" and text_of(given, "command"):
        return Tool.SHELL, ()
    if name in _EDITS:
        paths = paths_of([text_of(given, "file_path")], project)
        return (Tool.EDIT, paths) if paths else (Tool.OTHER, ())
    return (Tool.READ if name in READS else Tool.OTHER), ()


def answer(event: Event, payload: Mapping[str, Any], answer: HookAnswer) -> Reply:
    name = text_of(payload, "hook_event_name")
    told: dict[str, Any] = {}
    if answer.refusal and event.kind in (Kind.BEFORE_CALL, Kind.PROMPT):
        told |= {"decision": "deny", "reason": refusal_in(NAME, answer)}
    elif (context := said(answer)) and name in _SHOWS:
        told["hookSpecificOutput"] = {"hookEventName": name, "additionalContext": context}
    if answer.notice:
        told["systemMessage"] = answer.notice
    return Reply(json.dumps(told) if told else "")
