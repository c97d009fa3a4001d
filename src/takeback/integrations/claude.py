"""The Claude Agent SDK: hooks in the program, which say what Claude Code's own hooks say.

Each event goes to the shim, as from an installed hook. So a session is recorded in one way, and a call that both
report is one effect.
"""

import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from takeback.errors import Misuse
from takeback.frontends.agents import relay
from takeback.frontends.agents.hosts import HookPoint
from takeback.frontends.agents.hosts.claude_code import EVENTS
from takeback.frontends.agents.settings import shim_words
from takeback.model.boot_clock import fields_of
from takeback.model.words import install_hint
from takeback.storage.sqlite.store import default_path, is_remote, meant_path

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions, HookMatcher
    from claude_agent_sdk.types import HookEvent

_NEVER = ("SessionStart", "SessionEnd", "PostToolBatch", "StopFailure")  # the SDK does not know these events
_MARK = "TAKEBACK_SDK"  # in the environment of the agents of these options
_SOONER = 5  # seconds before the agent waits no longer


def with_takeback(
    options: "ClaudeAgentOptions | None" = None, *, store: "str | os.PathLike[str] | None" = None
) -> "ClaudeAgentOptions":
    """A copy of these options in which takeback records what the agent does. Your own hooks stay and run too. A call
    that takeback cannot record does not run. `store`: the directory of the store, if it is not the usual one. Give each
    client that runs at the same time options of its own: then takeback knows which agent made a change."""
    try:
        from claude_agent_sdk import ClaudeAgentOptions, HookMatcher
    except ImportError:
        raise Misuse("with_takeback needs takeback[claude].", hint=install_hint("claude")) from None
    from dataclasses import fields, replace

    if "on_failure" not in {one.name for one in fields(HookMatcher)}:
        raise Misuse(
            "This claude-agent-sdk is too old: it lets a call run when a hook before it fails.",
            hint=install_hint("claude"),
        )
    options = options or ClaudeAgentOptions()
    agents = _Agents(options, _place(store or options.env.get("TAKEBACK_STORE", "")))
    hooks = {
        name: [one for one in known if not _is_ours(one)] for name, known in (options.hooks or {}).items()
    }
    for point in EVENTS:
        if point.name not in _NEVER:
            name = cast("HookEvent", point.name)
            hooks[name] = [*hooks.get(name, ()), _matcher(point, agents)]
    return replace(options, hooks=hooks, env=options.env | agents.told())


def _place(named: "str | os.PathLike[str]") -> str:
    path = meant_path(os.fspath(named)) or default_path()
    if is_remote(path):
        raise Misuse(
            "Hooks need a store in a directory, not in PostgreSQL.", hint="Give a directory with `store=`."
        )
    return os.path.abspath(path)


def _matcher(point: HookPoint, agents: "_Agents") -> "HookMatcher":
    from claude_agent_sdk import HookMatcher

    return HookMatcher(
        matcher=point.matcher or None,
        hooks=[_OwnHook(point, agents)],
        timeout=point.seconds,
        on_failure="block" if point.before else None,
    )


def _is_ours(matcher: "HookMatcher") -> bool:
    return any(isinstance(one, _OwnHook) for one in matcher.hooks)


class _Agents:
    """Those that were started with these options: their programs and their projects, by session."""

    def __init__(self, options: "ClaudeAgentOptions", store: str) -> None:
        import secrets

        self._mark = secrets.token_hex(8)
        self._store = store
        self._project = os.path.abspath(options.cwd) if options.cwd else ""
        servers = cast("dict[str, Any]", options.mcp_servers if isinstance(options.mcp_servers, dict) else {})
        # Tools of such a server run in this process.
        self._within = tuple(f"mcp__{name}__" for name, one in servers.items() if one.get("type") == "sdk")
        self._projects: dict[str, str] = {}
        self._processes: dict[str, int] = {}
        self._lock = threading.Lock()

    def told(self) -> dict[str, str]:
        """In the environment of the agents: whatever of takeback they start uses the same store."""
        return {_MARK: self._mark, "TAKEBACK_STORE": self._store}

    def environment(self, given: Mapping[str, Any]) -> dict[str, str]:
        """Of the shim, as hooks that the agent itself starts have it."""
        session, tool = str(given.get("session_id", "")), str(given.get("tool_name", ""))
        project = self._projects.setdefault(session, self._project or str(given.get("cwd", "")))
        is_within = given.get("hook_event_name") == "PreToolUse" and tool.startswith(self._within)
        process = os.getpid() if is_within else self._process(session)
        told = {"CLAUDE_PROJECT_DIR": project, "CLAUDE_PID": str(process)}
        return {**os.environ, **told, "TAKEBACK_STORE": self._store}

    def _process(self, session: str) -> int:
        """The agent's, if only one can be meant; else this one, which started it."""
        mark = f"{_MARK}={self._mark}".encode()
        with self._lock:
            known = self._processes.get(session, 0)
            if known and _is_agent(known, mark):
                return known
            living = [
                one for one in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_agent(one, mark)
            ]
            taken = [one for name, one in self._processes.items() if name != session and len(living) > 1]
            free = [one for one in living if one not in taken]
            self._processes = {name: one for name, one in self._processes.items() if one in living}
            if len(free) != 1:
                return os.getpid()
            self._processes[session] = free[0]
            return free[0]


def _is_agent(process: int, mark: bytes) -> bool:
    """Whether this process started it, with the mark in its environment."""
    # The list of children in /proc may lack some while others end.
    return fields_of(process)[1:2] == [str(os.getpid())] and mark in _environment(process)


def _environment(process: int) -> list[bytes]:
    with suppress(OSError), open(f"/proc/{process}/environ", "rb") as file:
        return file.read().split(b"\0")
    return []


class _OwnHook:
    """What the SDK calls for an event."""

    def __init__(self, point: HookPoint, agents: _Agents) -> None:
        self._point = point
        self._agents = agents

    async def __call__(self, given: Mapping[str, Any], call: "str | None", context: object) -> Any:
        from anyio import to_thread

        return await to_thread.run_sync(self._answered, given, abandon_on_cancel=True)

    def _answered(self, given: Mapping[str, Any]) -> dict[str, Any]:
        try:
            code, out, err = self._sent(given)
        except Exception as error:  # noqa: BLE001 whatever it is, no call runs without an answer
            code, out, err = 1, "", f"{type(error).__name__}: {error}"
        if code and self._point.before:
            return _denied(err if code == relay.DENIED else _refusal(err, code))
        with suppress(ValueError):
            if isinstance(told := json.loads(out or "{}"), dict):
                return cast("dict[str, Any]", told)
        return {}

    def _sent(self, given: Mapping[str, Any]) -> tuple[int, str, str]:
        import subprocess

        words = [*shim_words(relay.SDK), self._point.name]
        done = subprocess.run(
            words,
            input=json.dumps(given, default=repr),
            env=self._agents.environment(given),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=self._point.seconds - _SOONER,
        )
        return done.returncode, done.stdout, done.stderr


def _refusal(said: str, code: int) -> str:
    return relay.refusal(relay.SDK, said.strip() or f"its hook ended with {code}.").decode()


def _denied(reason: str) -> dict[str, Any]:
    from takeback.policy.secrets import masked

    decision = {"permissionDecision": "deny", "permissionDecisionReason": masked(reason.strip())}
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}
