"""What a command started, and what that started: found by who is whose parent, and told to end."""

import os
import signal
from collections.abc import Container, Iterable
from typing import NamedTuple


class Descendant(NamedTuple):
    pid: int
    started: str  # a process id is used again, its start time is not


def descendants(without: Container[int] = ()) -> list[Descendant]:
    """Of this process, those that still run; orphans of them become ours where we asked for that. What is in `without`
    is left out, with all that it started."""
    below: dict[int, list[Descendant]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _fields(int(name))) and fields[0] not in ("Z", "X"):
            below.setdefault(int(fields[1]), []).append(Descendant(int(name), fields[19]))
    found: list[Descendant] = []
    pending = [os.getpid()]
    while pending:
        for one in below.get(pending.pop(), ()):
            if one.pid not in without:
                found.append(one)
                pending.append(one.pid)
    return found


def send(processes: Iterable[Descendant], number: int) -> None:
    """To each that is still the same process; those of other users are beyond us."""
    for one in processes:
        try:
            handle = os.pidfd_open(one.pid)
        except OSError:
            continue
        try:
            fields = _fields(one.pid)
            if fields and fields[19] == one.started:
                signal.pidfd_send_signal(handle, number)
        except (ProcessLookupError, PermissionError):
            pass
        finally:
            os.close(handle)


def _fields(pid: int) -> list[str]:
    """Of its line in /proc, from its state on; none if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []
