"""Whether a coding agent started this process, and what is then left to a person.

Seen are the environment and the programs of the processes above this one, and the agents that the daemon knows. A
process that has cut itself off from both is not recognised.
"""

import os
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.errors import Refused
from takeback.frontends.cli.session.store import local_store

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.plan import UndoResult

# Variables that an agent sets for what it starts and that no person sets.
_MARKS: Mapping[str, str] = {
    "CLAUDECODE": "Claude Code", "CODEX_THREAD_ID": "Codex", "CODEX_TOOL_CALL_ID": "Codex", "CODEX_SANDBOX": "Codex",
    "CODEX_SANDBOX_NETWORK_DISABLED": "Codex", "CODEX_CI": "Codex", "GEMINI_CLI": "Gemini CLI", "OPENCODE": "opencode",
    "CURSOR_AGENT": "Cursor",
}  # fmt: skip
_PROGRAMS: Mapping[str, str] = {
    "claude": "Claude Code", "codex": "Codex", "gemini": "Gemini CLI", "opencode": "opencode",
    "cursor-agent": "Cursor",
}  # fmt: skip
_PACKAGES: Mapping[str, str] = {
    "/claude-code/": "Claude Code", "/gemini-cli/": "Gemini CLI", "/@openai/codex/": "Codex",
    "/opencode-ai/": "opencode",
}  # fmt: skip
_INTERPRETERS = ("node", "nodejs", "bun", "deno")
_MOST = 200  # processes above


class AgentAbove(NamedTuple):
    title: str  # of the agent
    seen: str  # how it was recognised


def refuse_below_agent(name: str, actions: Collection[str], options: Namespace) -> None:
    """A command for a person; of some only these subcommands. Looking is allowed, and a store of the agent's own."""
    if getattr(options, "dry_run", False):
        return
    action = getattr(options, "action", "")
    if (actions and action not in actions) or (action == "make" and not _was_removed(options)):
        return
    if found := agent_above(local_store(options)):
        command = f"{name} {action}".strip()
        raise Refused(
            f"`takeback {command}` is for a person, and {found.title} started this command ({found.seen}).",
            hint="Nothing was changed. A person can run it in a terminal that no agent started.",
        )


def refuse_secrets(options: Namespace) -> None:
    if found := agent_above(local_store(options)):
        raise Refused(
            f"--secrets is for a person, and {found.title} started this command ({found.seen}).",
            hint="Without it the answer is the same, with secrets masked.",
        )


def _was_removed(options: Namespace) -> bool:
    from takeback.storage.sqlite.store import exists, was_there

    path = os.path.abspath(local_store(options))
    return not exists(path) and bool(was_there(path))


def agent_above(store: str = "") -> AgentAbove | None:
    """The nearest. `store`: whose daemon is asked which agents it knows."""
    above = list(_above(os.getpid()))
    for pid in above:
        if found := _recognised(pid):
            return found
    known = _known_to_daemon(store) if store else {}
    return next((AgentAbove(known[pid], f"process {pid}") for pid in above[1:] if pid in known), None)


def _above(pid: int) -> Iterator[int]:
    """This process, its parent, and so on, as far as the kernel tells."""
    from takeback.model.boot_clock import fields_of

    for _ in range(_MOST):
        yield pid
        fields = fields_of(pid)
        parent = fields[1] if len(fields) > 1 else ""
        if not parent.isdigit() or int(parent) <= 1:
            return
        pid = int(parent)


def _recognised(pid: int) -> AgentAbove | None:
    mine = pid == os.getpid()
    pairs = os.environ.items() if mine else _environment(pid)
    for name, value in pairs:
        if name in _MARKS and value not in ("", "0", "false"):
            return AgentAbove(_MARKS[name], f"{name} is set in process {pid}")
    if mine:
        return None
    words = [os.fsdecode(word) for word in _read(f"/proc/{pid}/cmdline").split(b"\0")]
    program = os.path.basename(words[0])
    script = next((word for word in words[1:] if not word.startswith("-")), "")
    if program in _INTERPRETERS:
        program = os.path.basename(script).removesuffix(".js")
        by_package = (title for part, title in _PACKAGES.items() if part in os.path.realpath(script))
        if title := next(by_package, ""):
            return AgentAbove(title, f"process {pid}")
    title = _PROGRAMS.get(program, "")
    return AgentAbove(title, f"process {pid}, {program}") if title else None


def _environment(pid: int) -> Iterator[tuple[str, str]]:
    """Of a process of this user; of others it cannot be read."""
    for pair in _read(f"/proc/{pid}/environ").split(b"\0"):
        name, equals, value = os.fsdecode(pair).partition("=")
        if equals:
            yield name, value


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _known_to_daemon(store: str) -> dict[int, str]:
    from takeback.frontends.agents.client import AGENTS, ask

    lines = (ask(store, AGENTS) or b"").decode("utf-8", "replace").splitlines()[1:]
    words = [line.partition(" ") for line in lines]
    return {int(pid): title for pid, _, title in words if pid.isdigit()}


# Undo is allowed below an agent, but not of the installation of the hooks.


def undone_settings(
    tb: "Takeback", carry_out: "Callable[..., UndoResult]", wishes: Mapping[str, Any]
) -> "UndoResult":
    """The undo. If it changes settings that hold our hooks, a person must have asked for it; then that is known."""
    note = tb.store.hook_note
    if not note or wishes.get("dry_run") or not os.path.exists(note):
        return carry_out(**wishes)
    from takeback.frontends.agents.evidence import installed, kept, settings_at

    known = kept(note).settings
    if known and (found := agent_above(tb.store.path)):
        touched = _paths(carry_out(**{**wishes, "dry_run": True})) & known.keys()
        if touched:
            raise Refused(
                f"{min(touched)} holds takeback's hooks, and {found.title} started this command ({found.seen}).",
                hint="Nothing was changed. A person can undo it in a terminal that no agent started.",
            )
        return carry_out(**wishes)
    result = carry_out(**wishes)
    if touched := _paths(result) & known.keys():
        installed(note, *settings_at({path: known[path] for path in touched}))
    return result


def _paths(result: "UndoResult") -> set[str]:
    from takeback.model.resource import path_of

    return {os.fsdecode(path_of(one.resource)) for one in result.targets if one.resource.startswith("file:")}
