"""Who is still at work on a watched change: the command itself, and what it started and left behind."""

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from takeback.model.boot_clock import fields_of, same_start, started
from takeback.model.boot_clock import first_line as _line

MARK = "TAKEBACK_WATCH"  # in the environment of a watched command, and so of everything it starts


class Process(NamedTuple):
    pid: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid})"


def identity(pid: int, mark: str = "") -> dict[str, Any]:
    """A process, so that another one can tell whether it still lives; JSON."""
    found = {"pid": pid, "started": started(pid), "boot": _line("/proc/sys/kernel/random/boot_id")}
    return {**found, "mark": mark} if mark else found


def lives(process: dict[str, Any]) -> bool:
    if process.get("boot") != _line("/proc/sys/kernel/random/boot_id"):
        return False
    return bool(process.get("started")) and same_start(started(process["pid"]), process["started"])


def at_work(process: dict[str, Any]) -> tuple[Process, ...]:
    """The process and everything that carries its mark; as far as we may look."""
    if process.get("boot") != _line("/proc/sys/kernel/random/boot_id"):
        return ()
    found = {process["pid"]: None} if lives(process) else {}
    if process.get("mark"):
        found |= dict.fromkeys(marked(process["mark"]))
    return tuple(Process(pid, _name(pid)) for pid in found)


def named(pids: Iterable[int], mark: str) -> tuple[Process, ...]:
    """Of these, and of all that carry the mark, those that live."""
    found = dict.fromkeys((*pids, *marked(mark)))
    return tuple(Process(pid, _name(pid)) for pid in found if started(pid))


def marked(mark: str) -> list[int]:
    wanted, found = f"\0{MARK}={mark}\0".encode(), list[int]()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = b"\0" + file.read()
        except OSError:
            continue  # gone, or someone else's
        if wanted in environment and started(int(name)):
            found.append(int(name))
    return found


def family_of(process: dict[str, Any]) -> set[int]:
    """The process, those that carry its mark, and all that any of these started; as far as they live."""
    found = {process["pid"], *(marked(process["mark"]) if process.get("mark") else ())}
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        fields = fields_of(int(name)) if name.isdigit() else []
        if len(fields) > 1:
            children.setdefault(int(fields[1]), []).append(int(name))
    pending = list(found)
    while pending:
        fresh = [one for one in children.get(pending.pop(), ()) if one not in found]
        found.update(fresh)
        pending += fresh
    return found


def name_of(pid: int) -> str:
    """Also of one that has ended."""
    return str(Process(pid, _name(pid))) if started(pid) else f"process {pid} (ended)"


def _name(pid: int) -> str:
    return _line(f"/proc/{pid}/comm") or "?"
