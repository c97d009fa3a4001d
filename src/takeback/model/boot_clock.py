"""The clock that all processes of one kernel share, also those in a time namespace of their own.

The kernel adds the offset of the reader's time namespace to every time since boot: to the clock itself, and to the
start of each process in /proc. Two processes compare such numbers only after that offset is taken off again.
"""

import os
import time
from functools import cache

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def since_boot() -> int:
    """Microseconds since the kernel started, asleep or not. No process can set it."""
    return (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - (offset_ns() or 0)) // 1000


def started(pid: int) -> str:
    """When the process started, in ticks since boot: a process id is used again, its start is not. A zombie has ended,
    and what has ended is ''."""
    fields = fields_of(pid)
    if len(fields) <= 19 or fields[0] in ("Z", "X"):
        return ""
    return str(int(fields[19]) - (offset_ns() or 0) // _TICK_NS)


def same_start(one: str, other: str) -> bool:
    """The offset of a namespace may end between two ticks, so that two readers round differently."""
    if not (one.isdigit() and other.isdigit()):
        return bool(one) and one == other
    return abs(int(one) - int(other)) <= 1


def fields_of(pid: int) -> list[str]:
    """Its line in the kernel's list, from its state on: the name before may hold anything."""
    return first_line(f"/proc/{pid}/stat").rpartition(")")[2].split()


@cache
def offset_ns() -> int | None:
    """How far the clock of this process is ahead of the kernel's. None: unknown; the kernel tells it of the namespace
    of our children, and that is another one."""
    try:
        own, told = os.readlink("/proc/self/ns/time"), os.readlink("/proc/self/ns/time_for_children")
    except OSError:
        return 0  # a kernel without time namespaces, or no /proc
    if own != told:
        return None
    try:
        with open("/proc/self/timens_offsets", encoding="ascii") as file:
            rows = [line.split() for line in file]
    except OSError:
        return 0
    return next((int(row[1]) * 1_000_000_000 + int(row[2]) for row in rows if row[0] in ("boottime", "7")), 0)


@cache
def boot_id() -> str:
    """Another one each time the machine starts."""
    return first_line("/proc/sys/kernel/random/boot_id")


def first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""


# A child may be in another namespace than its parent.
os.register_at_fork(after_in_child=offset_ns.cache_clear)
