"""What a coding agent says and what takeback answers, the same for all hosts. Imports the standard library only."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class EventKind(StrEnum):
    SESSION_START = "session-start"
    PROMPT = "prompt"
    BEFORE_CALL = "before-call"
    AFTER_CALL = "after-call"
    TURN_END = "turn-end"
    SESSION_END = "session-end"
    SUBAGENT_START = "subagent-start"
    SUBAGENT_END = "subagent-end"
    OTHER = "other"


Kind = EventKind  # the short name in this room; a record of the journal has a Kind of its own


class Tool(StrEnum):
    SHELL = "shell"
    EDIT = "edit"  # changes the paths that it names, and nothing else
    READ = "read"  # changes nothing
    OTHER = "other"  # unknown, MCP: watched like a shell call


class Event(NamedTuple):
    kind: Kind
    host: str  # "claude-code" | "codex" | "gemini" | "opencode" | "cursor"
    session: str  # the host's id of the conversation
    project: str  # absolute; what is watched. It does not move when the agent's directory moves
    cwd: str = ""  # where the call runs
    agent: int = 0  # process of the agent
    call: str = ""  # the host's id of the call; empty where the host gives none
    name: str = ""  # the host's name of the tool: Bash, write_file…
    tool: Tool = Tool.OTHER
    paths: tuple[str, ...] = ()  # absolute, for EDIT
    command: str = ""  # for SHELL: the original text
    input: Mapping[str, Any] = {}  # the tool's input as it came
    text: str = ""  # PROMPT: what the user said
    failed: bool = False  # AFTER_CALL
    background: bool = False  # the tool keeps running after the end of the call
    apart: bool = False  # it runs in a sandbox, so what is seen of it in the project is not its own
    member: str = ""  # id of the subagent that makes the call
    source: str = ""  # SESSION_START: startup, resume, clear, compact, fork; SESSION_END: the reason
    turn: str = ""  # the host's id of the prompt, where it has one


class HookAnswer(NamedTuple):
    refusal: str = ""  # BEFORE_CALL, PROMPT: the call does not run, and the model reads this reason
    context: str = ""  # what the model reads with the event: PROMPT, SESSION_START, AFTER_CALL
    command: str = ""  # BEFORE_CALL of SHELL: what runs instead; no host uses it yet
    notice: str = ""  # what the person reads, where the host can show it


Answer = HookAnswer  # the short name in this room


def fingerprint(event: Event) -> str:
    """What pairs the start of a call with its end: the host's id, else a hash of the tool and its input."""
    if event.call:
        return event.call
    import hashlib
    import json

    said = json.dumps([event.name, event.input], sort_keys=True, separators=(",", ":"), default=repr)
    return "sha256-" + hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def digest(command: str) -> str:
    """By which two programs know that they speak of the same command, and that no journal shows."""
    import hashlib

    return hashlib.sha256(command.encode("utf-8", "surrogatepass")).hexdigest()[:16]
