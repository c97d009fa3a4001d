"""Who we are, and whether someone else is still there. Exact on this machine, honest about others."""

import os
from functools import cache

from takeback.model.run import Owner


@cache
def myself() -> Owner:
    return Owner(boot_id(), _space(), os.getpid(), _started(os.getpid()))


def alive(owner: Owner) -> bool | None:
    """None: it lives (or lived) where we cannot look, so only its lease's expiry can tell."""
    if not owner.boot or owner.boot != boot_id() or owner.space != _space():
        return None
    return _started(owner.pid) == owner.started


def alive_beside(owner: Owner) -> bool | None:
    """The same for a store on disk: all who can write to it share the memory of one kernel, so whoever was there before
    that one started is gone."""
    return False if owner.boot and owner.boot != boot_id() else alive(owner)


def machine() -> str:
    """The same each time it starts, and no other has it; TAKEBACK_MACHINE says it where the system does not know."""
    import hashlib

    known = os.environ.get("TAKEBACK_MACHINE") or f"{_first_line('/etc/machine-id')} {os.uname().nodename}"
    return hashlib.sha256(known.encode("utf-8", "surrogateescape")).hexdigest()[:16]


@cache
def boot_id() -> str:
    """Another one each time the machine starts."""
    return _first_line("/proc/sys/kernel/random/boot_id")


@cache
def _space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Field 22 of stat: a process id is used again, its start time is not. A zombie has ended."""
    fields = _first_line(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in ("Z", "X") else ""


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""


def _someone_else() -> None:
    """A child is another process, and may be in another namespace."""
    myself.cache_clear()
    _space.cache_clear()


os.register_at_fork(after_in_child=_someone_else)
