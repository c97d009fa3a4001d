"""opencode: a plugin, `opencode.js`, which starts the shim for each event. Facts are from 1.18."""

import json
import os
from collections.abc import Mapping
from typing import Any

from takeback.frontends.agents.event import Event, HookAnswer, Kind, Tool
from takeback.frontends.agents.hosts import BEFORE_SECONDS, HookPoint, Reply, refusal_in, said
from takeback.frontends.agents.patch import names_in
from takeback.frontends.agents.payload import (
    below,
    directory_of,
    is_set,
    object_of,
    paths_of,
    text_of,
)

NAME, TITLE, PROGRAM = "opencode", "opencode", "opencode"
PROJECT = ".opencode"
COVERS_MISSING = "the call is denied: the plugin throws if the shim does not answer"
TRUST = ""
NO_SANDBOX = "the `shell` of opencode is for your terminal too, not for the commands of the agent alone"
COMMENTS = False
PREAMBLE: Mapping[str, Any] = {}
NOTES = ("{data}/opencode", "{state}/opencode", "{cache}/opencode")
SETTINGS = ("auth.json",)
READS = frozenset((
    "read", "glob", "grep", "list", "ls", "webfetch", "websearch", "codesearch", "todowrite", "todoread", "task",
    "skill", "question", "lsp", "plan_enter", "plan_exit",
))  # fmt: skip
_EDITS = ("write", "edit", "multiedit")
_KINDS = {
    "session.start": Kind.SESSION_START,
    "chat.message": Kind.PROMPT,
    "tool.execute.before": Kind.BEFORE_CALL,
    "tool.execute.after": Kind.AFTER_CALL,
    "subagent.start": Kind.SUBAGENT_START,
    "subagent.end": Kind.SUBAGENT_END,
    "session.idle": Kind.TURN_END,
    "session.deleted": Kind.SESSION_END,
}
EVENTS = tuple(
    HookPoint(name, before=True, seconds=BEFORE_SECONDS) if name == "tool.execute.before" else HookPoint(name)
    for name in _KINDS
)


def user_directory(env: Mapping[str, str]) -> str:
    settings = env.get("XDG_CONFIG_HOME") or os.path.join(env.get("HOME", ""), ".config")
    return env.get("OPENCODE_CONFIG_DIR") or os.path.join(settings, "opencode")


def settings_file(directory: str, user: bool) -> str:
    return os.path.join(directory, "plugin", "takeback.js")


def entry(point: HookPoint, command: str) -> dict[str, Any]:
    return {}  # the plugin has it all


def read(payload: Mapping[str, Any], env: Mapping[str, str], agent: int) -> Event:
    """The payload is the plugin's: `opencode.js` beside this file."""
    kind = _KINDS.get(text_of(payload, "hook_event_name"), Kind.OTHER)
    project = directory_of(text_of(payload, "project"), text_of(payload, "cwd"))
    given = object_of(payload, "tool_input")
    name = text_of(payload, "tool_name")
    cwd = directory_of(text_of(payload, "cwd"), project)
    tool, paths = _tool(name, given, cwd)
    return Event(
        kind,
        NAME,
        text_of(payload, "session_id"),
        project,
        cwd=below(cwd, text_of(given, "workdir")) if tool is Tool.SHELL else cwd,
        agent=agent,
        call=text_of(payload, "tool_use_id"),
        name=name,
        tool=tool,
        paths=paths,
        command=text_of(given, "command") if tool is Tool.SHELL else "",
        input=given,
        text=text_of(payload, "prompt") if kind is Kind.PROMPT else "",
        failed=is_set(payload, "failed"),
        member=text_of(payload, "member"),
        role=text_of(payload, "role"),
        source=text_of(payload, "source"),
        turn=text_of(payload, "turn"),
    )


def _tool(name: str, given: Mapping[str, Any], cwd: str) -> tuple[Tool, tuple[str, ...]]:
    if name == "bash" and text_of(given, "command"):
        return Tool.SHELL, ()
    if name in _EDITS or name in ("patch", "apply_patch"):
        named = [text_of(given, "filePath")] if name in _EDITS else names_in(text_of(given, "patchText"))
        return (Tool.EDIT, paths) if (paths := paths_of(named, cwd)) else (Tool.OTHER, ())
    return (Tool.READ if name in READS else Tool.OTHER), ()


def answer(event: Event, payload: Mapping[str, Any], answer: HookAnswer) -> Reply:
    """A refusal ends with 2, and the plugin throws what stands on stderr."""
    if answer.refusal and event.kind in (Kind.BEFORE_CALL, Kind.PROMPT):
        return Reply(stderr=refusal_in(NAME, answer) + "\n", exit=2)
    told: dict[str, Any] = {}
    if context := said(answer):
        told["context"] = context
    if answer.notice:
        told["notice"] = answer.notice
    return Reply(json.dumps(told) if told else "")
