"""Who we are, and whether someone else is still there. Exact on this machine, honest about others."""

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

from takeback.model.boot_clock import fields_of, first_line, offset_ns, same_start, started
from takeback.model.digest import sha256_of
from takeback.model.run import Owner


@cache
def myself() -> Owner:
    return Owner(boot_id(), _space(), os.getpid(), started(os.getpid()))


def alive(owner: Owner) -> bool | None:
    """None: it lives (or lived) where we cannot look, so only its lease's expiry can tell."""
    if not owner.boot or owner.boot != boot_id() or owner.space != _space():
        return None
    if offset_ns() is None:
        return None  # when a process started cannot be compared
    return same_start(started(owner.pid), owner.started)


def alive_beside(owner: Owner) -> bool | None:
    """The same for a store on disk: all who can write to it share the memory of one kernel, so whoever was there before
    that one started is gone."""
    return False if owner.boot and owner.boot != boot_id() else alive(owner)


def machine() -> str:
    """The same each time it starts, and no other has it; TAKEBACK_MACHINE says it where the system does not know."""
    known = os.environ.get("TAKEBACK_MACHINE") or f"{first_line('/etc/machine-id')} {os.uname().nodename}"
    return sha256_of(known.encode("utf-8", "surrogateescape")).hex()[:16]


@cache
def boot_id() -> str:
    """Another one each time the machine starts."""
    return first_line("/proc/sys/kernel/random/boot_id")


@cache
def _space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _someone_else() -> None:
    """A child is another process, and may be in another namespace."""
    myself.cache_clear()
    _space.cache_clear()


os.register_at_fork(after_in_child=_someone_else)


def lock_holders(paths: Sequence[str]) -> tuple[str, ...]:
    """Other processes that have one of these files locked for writing, as the kernel tells; in words."""
    wanted: set[str] = set()
    for path in paths:
        with suppress(OSError):
            found = os.stat(path)
            wanted.add(f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}")
    pids: dict[int, None] = {}
    with suppress(OSError), open("/proc/locks", encoding="ascii", errors="replace") as file:
        for line in file:
            words = line.replace("->", "").split()
            if len(words) >= 6 and words[3] == "WRITE" and words[5] in wanted and words[4].isdigit():
                pids[int(words[4])] = None
    return tuple(_described(pid) for pid in pids if pid != os.getpid())


def _described(pid: int) -> str:
    name, state = first_line(f"/proc/{pid}/comm"), (fields_of(pid) or [""])[0]
    told = f"process {pid} ({name})" if name else f"process {pid}"
    return f"{told}, which is stopped" if state in ("T", "t") else told
