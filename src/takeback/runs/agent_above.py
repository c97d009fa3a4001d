"""Whether this process belongs to an agent, and what is then left to a person.

Seen are the environment and the programs of the processes above this one, the agents that the daemon knows, our sandbox
around it, and who holds the open run of an agent. A process that has cut itself off from all of these is not
recognised: what it says is recorded as not proven.
"""

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from takeback.errors import Refused
from takeback.model.boot_clock import boot_id, fields_of, same_start, started
from takeback.model.mounts import COVER, mount_table
from takeback.model.run import RunState

if TYPE_CHECKING:
    from takeback.storage.store import Store

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
    is_here: bool = False  # this process is the agent's own


def refuse_below_agent(
    action: str, store: "Store | None" = None, path: str = "", holding: bool = True
) -> None:
    """Raises if an agent, a command of ours, or the process that holds the run of an agent started this one. `path`: of
    a store that is not opened. Without `holding` a program may do it while a run of its own is open."""
    found = agent_above(path or (store.path if store else ""), store if holding else None)
    if found is None:
        return
    whose = f"{found.title} {'is' if found.is_here else 'started'} this {'process' if store else 'command'}"
    raise Refused(
        f"{action} is for a person, and {whose} ({found.seen}).",
        hint="Nothing was changed. A person can do it in a terminal that no agent started.",
    )


def agent_above(path: str = "", store: "Store | None" = None) -> AgentAbove | None:
    """The nearest. `path`: of the store whose daemon is asked which agents it knows."""
    above = [*_above(os.getpid()), *_tracing()]
    for pid in above:
        if found := _recognised(pid):
            return found
    known = _known_to_daemon(path) if path else {}
    for pid in above[1:]:
        if pid in known:
            return AgentAbove(known[pid], f"process {pid}")
    if _is_sandboxed():
        return AgentAbove("a sandboxed command", "takeback's cover is in its mounts")
    return _holder(store, above) if store else None


def _tracing() -> Iterator[int]:
    """A process that traces this one acts through it, and so does what is above that."""
    for line in _read("/proc/self/status").splitlines():
        if line.startswith(b"TracerPid:") and (pid := int(line.split()[1])):
            yield from _above(pid)


def _is_sandboxed() -> bool:
    """By the mount over our stores. A command inside has no right to remove it."""
    try:
        return b" " + COVER.encode() + b" " in mount_table()
    except OSError:
        return False


def _holder(store: "Store", above: list[int]) -> AgentAbove | None:
    """Who works on the open run of a named agent is that agent, and so is what it starts."""
    for info in store.journal.runs(unfinished=True):
        if info.state is not RunState.OPEN or not info.agent:
            continue
        lease = store.leases.holder(info.id)
        owner = lease.owner if lease else None
        if owner is None or owner.pid not in above or owner.boot != boot_id():
            continue
        if same_start(started(owner.pid), owner.started):
            held = f"process {owner.pid} holds the open run {info.name!r}"
            return AgentAbove(f"the agent {info.agent!r}", held, owner.pid == os.getpid())
    return None


def _above(pid: int) -> Iterator[int]:
    """This process, its parent, and so on, as far as the kernel tells."""
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
    from takeback.storage.daemon_socket import AGENTS, ask

    lines = (ask(store, AGENTS) or b"").decode("utf-8", "replace").splitlines()[1:]
    words = [line.partition(" ") for line in lines]
    return {int(pid): title for pid, _, title in words if pid.isdigit()}
