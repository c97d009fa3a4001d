"""The coding agents that takeback knows: a module each, which reads what the agent says and answers in its words."""

import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol, cast

from takeback.frontends.agents.event import Event, HookAnswer
from takeback.frontends.agents.relay import PLUGIN_SWITCH, SDK, off_switch

NAMES = ("claude-code", "codex", "gemini", "opencode", "cursor")
_TEMPORARY = "/tmp"  # noqa: S108 only named
BEFORE_SECONDS = 300  # for a hook before a call: it may wait for the first look at a large project
SECONDS = 60  # for every other one
_PREFIX = re.compile(r"takeback/frontends/agents/sandboxed\.py(?!\w)")


class Reply(NamedTuple):
    """What the shim prints and how it ends."""

    stdout: str = ""
    stderr: str = ""
    exit: int = 0


class HookPoint(NamedTuple):
    """An event of the host that takeback has a hook for."""

    name: str
    before: bool = False  # the call does not run without an answer
    matcher: str = ""  # of the tools; empty for all
    seconds: int = SECONDS


class Host(Protocol):
    NAME: str
    TITLE: str  # as its maker writes it
    PROGRAM: str  # as it is called in a shell
    EVENTS: tuple[HookPoint, ...]
    COVERS_MISSING: str  # what happens to a call if takeback is missing or broken
    PROJECT: str  # the directory of its settings in a project
    TRUST: str  # what a person must do before the host runs the hooks; empty for nothing
    NO_SANDBOX: str  # why its shell commands are watched and not run in a sandbox; empty where they can be
    COMMENTS: bool  # whether its settings may have comments
    PREAMBLE: Mapping[str, Any]  # what its settings need beside the hooks
    NOTES: tuple[str, ...]  # where it writes for itself: see `is_note`
    SETTINGS: tuple[str, ...]  # names there that a person writes

    def user_directory(self, env: Mapping[str, str]) -> str: ...

    def settings_file(self, directory: str, user: bool) -> str: ...

    def entry(self, point: HookPoint, command: str) -> dict[str, Any]: ...

    def read(self, payload: Mapping[str, Any], env: Mapping[str, str], agent: int) -> Event: ...

    def answer(self, event: Event, payload: Mapping[str, Any], answer: HookAnswer) -> Reply: ...


@cache
def host(name: str) -> Host:
    """By its name on the command line."""
    import importlib

    if name not in NAMES:
        raise KeyError(name)
    return cast("Host", importlib.import_module(f"{__name__}.{name.replace('-', '_')}"))


def speaker(name: str, payload: Mapping[str, Any]) -> Host:
    """Who sent this. Cursor also runs the hooks of Claude Code, and says its version."""
    if name == SDK:
        return host("claude-code")
    return host("cursor" if name == "claude-code" and "cursor_version" in payload else name)


def is_note(name: str, env: Mapping[str, str]) -> Callable[[bytes], bool]:
    """Tells whether the agent keeps a file for itself, such as its conversations. Every call changes some of them."""
    from fnmatch import fnmatchcase

    speaks = host("claude-code" if name == SDK else name)
    home = env.get("HOME", "")
    names = {
        "settings": speaks.user_directory(env),
        "temporary": env.get("TMPDIR") or _TEMPORARY,
        "user": str(os.getuid()),
        "data": env.get("XDG_DATA_HOME") or os.path.join(home, ".local/share"),
        "state": env.get("XDG_STATE_HOME") or os.path.join(home, ".local/state"),
        "cache": env.get("XDG_CACHE_HOME") or os.path.join(home, ".cache"),
    }
    places = [os.path.realpath(os.fsencode(one.format_map(names))) for one in speaks.NOTES]
    kept = {os.fsencode(one) for one in speaks.SETTINGS}

    def is_one(path: bytes) -> bool:
        for place in places:
            if path.startswith(place + b"/") or fnmatchcase(path, place):
                return path[len(place) + 1 :].partition(b"/")[0] not in kept
        return False

    return is_one


def is_prefix(value: object) -> bool:
    """Whether this program, which a host starts before each command, runs it in a sandbox."""
    return isinstance(value, str) and bool(_PREFIX.search(value))


def refused(name: str, reason: str) -> str:
    """The reason and, in a line of its own, how to switch takeback off; if it does not end with that yet."""
    switches = (*(off_switch(one) for one in (*NAMES, SDK)), PLUGIN_SWITCH)
    return reason if reason.endswith(switches) else f"{reason.rstrip()}\n{off_switch(name)}"


def refusal_in(name: str, answer: HookAnswer) -> str:
    return answer.refusal if answer.final else refused(name, answer.refusal)


def said(answer: HookAnswer) -> str:
    """The words for the model after a call, when it is too late to refuse."""
    return "\n".join(part for part in (answer.refusal, answer.context) if part)
