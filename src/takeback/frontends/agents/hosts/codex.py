"""Codex CLI: `hooks.json` beside its `config.toml`. Facts are from 0.166."""

import json
import os
from collections.abc import Mapping
from typing import Any

from takeback.frontends.agents.event import Event, HookAnswer, Kind, Tool
from takeback.frontends.agents.hosts import BEFORE_SECONDS, SECONDS, HookPoint, Reply, refusal_in, said
from takeback.frontends.agents.patch import Patch, names_in, patch_in
from takeback.frontends.agents.payload import below, directory_of, object_of, paths_of, text_of

NAME, TITLE, PROGRAM = "codex", "Codex", "codex"
PROJECT = ".codex"
COVERS_MISSING = (
    "the call is denied by the form of the hook's command line; a hook that times out does not deny"
)
TRUST = (
    "Codex runs a hook only after you trusted it: start `codex` in the project and accept the hooks it asks about, "
    "or review them with /hooks. In scripts, `codex exec --dangerously-bypass-hook-trust` runs them without that."
)
NO_SANDBOX = "takeback knows no setting of Codex that puts a program before a command"
COMMENTS = False
PREAMBLE: Mapping[str, Any] = {}
NOTES = ("{settings}",)
SETTINGS = (
    "config.toml",
    "hooks.json",
    "AGENTS.md",
    "AGENTS.override.md",
    "auth.json",
    "prompts",
    "rules",
    "skills",
)
# They change nothing themselves; what a subagent calls has hooks of its own.
READS = frozenset((
    "view_image", "update_plan", "web_search", "read_file", "list_dir", "grep_files", "spawn_agent", "wait_agent",
    "send_input", "close_agent", "resume_agent", "request_user_input", "list_mcp_resources",
    "list_mcp_resource_templates", "read_mcp_resource",
))  # fmt: skip
_NEWER = "collaboration"  # before these names, where the model calls tools from a script
_KINDS = {
    "SessionStart": Kind.SESSION_START,
    "UserPromptSubmit": Kind.PROMPT,
    "PreToolUse": Kind.BEFORE_CALL,
    "PostToolUse": Kind.AFTER_CALL,
    "SubagentStart": Kind.SUBAGENT_START,
    "SubagentStop": Kind.SUBAGENT_END,
    "Stop": Kind.TURN_END,
    "SessionEnd": Kind.SESSION_END,
}
_SECONDS = {"PreToolUse": BEFORE_SECONDS, "SessionEnd": 3}  # Codex gives no hook more at the end of a session
EVENTS = tuple(
    HookPoint(name, before=name == "PreToolUse", seconds=_SECONDS.get(name, SECONDS)) for name in _KINDS
)
_SHOWS = ("SessionStart", "UserPromptSubmit", "PostToolUse", "SubagentStart")


def user_directory(env: Mapping[str, str]) -> str:
    return env.get("CODEX_HOME") or os.path.join(env.get("HOME", ""), ".codex")


def settings_file(directory: str, user: bool) -> str:
    return os.path.join(directory, "hooks.json")


def entry(point: HookPoint, command: str) -> dict[str, Any]:
    return {"hooks": [{"type": "command", "command": command, "timeout": point.seconds}]}


def read(payload: Mapping[str, Any], env: Mapping[str, str], agent: int) -> Event:
    kind = _KINDS.get(text_of(payload, "hook_event_name"), Kind.OTHER)
    cwd, given = directory_of(text_of(payload, "cwd")), object_of(payload, "tool_input")
    name = text_of(payload, "tool_name")
    tool, paths = _tool(name, given, cwd)
    return Event(
        kind,
        NAME,
        text_of(payload, "session_id"),
        cwd,  # of the session: a command that runs elsewhere does not move it
        cwd=cwd,
        agent=agent,
        call=text_of(payload, "tool_use_id"),
        name=name,
        tool=tool,
        paths=paths,
        command=text_of(given, "command") if name == "Bash" else "",
        input=given,
        text=text_of(payload, "prompt") if kind is Kind.PROMPT else "",
        member=text_of(payload, "agent_id"),
        role=text_of(payload, "agent_type"),
        source=text_of(payload, "source", "reason"),
        turn=text_of(payload, "turn_id"),
    )


def _tool(name: str, given: Mapping[str, Any], cwd: str) -> tuple[Tool, tuple[str, ...]]:
    command = text_of(given, "command", "input", "patch")
    if name in ("Bash", "apply_patch"):
        patch = Patch(command) if name == "apply_patch" else patch_in(command)
        if patch and (paths := paths_of(names_in(patch.text), below(cwd, patch.directory))):
            return Tool.EDIT, paths
        return (Tool.SHELL if name == "Bash" and command else Tool.OTHER), ()
    return (Tool.READ if name.removeprefix(_NEWER) in READS else Tool.OTHER), ()


def answer(event: Event, payload: Mapping[str, Any], answer: HookAnswer) -> Reply:
    """What Codex does not know in an answer makes it ignore the answer and run the tool."""
    name = text_of(payload, "hook_event_name")
    if answer.refusal and event.kind is Kind.BEFORE_CALL:
        return Reply(stderr=refusal_in(NAME, answer) + "\n", exit=2)
    told: dict[str, Any] = {}
    if answer.refusal and event.kind is Kind.PROMPT:
        told |= {"decision": "block", "reason": refusal_in(NAME, answer)}
    elif (context := said(answer)) and name in _SHOWS:
        told["hookSpecificOutput"] = {"hookEventName": name, "additionalContext": context}
    if answer.notice and event.kind is not Kind.BEFORE_CALL:
        told["systemMessage"] = answer.notice
    return Reply(json.dumps(told) if told else "")
