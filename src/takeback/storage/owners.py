"""Who owns a run or the directory of a command: this process, another one, or one that is dead."""

import json
import os
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from takeback.model.boot_clock import boot_id, fields_of, first_line, offset_ns, same_start, started
from takeback.model.change import Change, change_recorded, recorded_args
from takeback.model.descriptor import Descriptor
from takeback.model.record import sha256_of
from takeback.model.run import Owner
from takeback.storage import disk


@cache
def myself() -> Owner:
    return Owner(boot_id(), _space(), os.getpid(), started(os.getpid()))


def alive(owner: Owner) -> bool | None:
    """None: the process is on another machine or namespace, so only the expiry of its lease decides."""
    if not owner.boot or owner.boot != boot_id() or owner.space != _space():
        return None
    if offset_ns() is None:
        return None  # when a process started cannot be compared
    return same_start(started(owner.pid), owner.started)


def alive_beside(owner: Owner) -> bool | None:
    """The same for a store on disk: all its writers share one kernel, so a process from before its boot is gone."""
    return False if owner.boot and owner.boot != boot_id() else alive(owner)


def machine() -> str:
    """The same each time it starts, and no other has it; TAKEBACK_MACHINE says it where the system does not know."""
    known = os.environ.get("TAKEBACK_MACHINE") or f"{first_line('/etc/machine-id')} {os.uname().nodename}"
    return sha256_of(known.encode("utf-8", "surrogateescape")).hex()[:16]


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
    """Other processes that have one of these files locked for writing, from the kernel; in words."""
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


# Directories in which commands run: whose each one is, and what is left in one when its takeback was killed.
#
#     commands/ID.OWNER/about.json   which command, of which run; written before the command starts
#     commands/ID.OWNER/layer        what it changed; there once all its processes have ended
#
# The small process that runs the command holds a lock on the directory until the layer is there.


ABOUT, LAYER = "about.json", "layer"
_FORM = "layer.json"  # in a layer; it is written last
_LARGEST = 4 << 20  # bytes of `about.json`
_TOLD = ("adapter", "kind", "resource", "summary")  # of a change; its arguments as a record has them
_LOOKED = 0.01  # seconds between two looks


class KilledCommand(NamedTuple):
    """A command whose takeback is gone."""

    path: str
    id: str
    run: str
    agent: str
    since: int  # when it began, in nanoseconds
    change: Change  # without what it changed

    @property
    def layer(self) -> str:
        return os.path.join(self.path, LAYER)

    @property
    def is_whole(self) -> bool:
        return is_whole(self.layer)


def is_whole(layer: str) -> bool:
    return os.path.exists(os.path.join(layer, _FORM))


def break_layer(path: str) -> None:
    """Before it is removed: if that is never finished, the rest is not taken for all changes of the command."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    with (
        suppress(OSError),
        Descriptor(os.open(path, flags)) as fd,
        Descriptor(os.open(LAYER, flags, dir_fd=fd)) as layer,
    ):
        os.unlink(_FORM, dir_fd=layer)


def name_of(id: str, owner: Owner) -> str:
    """The owner is part of the name, so there is no moment without an owner."""
    return f"{id}.{owner.pid}.{owner.started}.{_digits(owner.space)}.{owner.boot}"


def id_in(name: str) -> str:
    return name.partition(".")[0]


def _digits(text: str) -> str:
    return "".join(c for c in text if c.isdigit())


def is_dead(name: str) -> bool:
    me = myself()
    try:
        _, pid, started, space, boot = name.split(".", 4)
    except ValueError:
        return False
    if not boot or not pid.isdigit():
        return False  # not one of ours
    if boot != me.boot:
        return True  # no process and no mount outlives the machine
    # One of another container cannot be asked, and may be alive.
    return space == _digits(me.space) and alive(Owner(boot, me.space, int(pid), started)) is False


def note(path: str, store: str, run: str, agent: str, since: int, change: Change) -> None:
    """Written whole or not at all; it is not read while we live."""
    about = {name: getattr(change, name) for name in _TOLD} | {"args": recorded_args(change)}
    told = {"store": store, "run": run, "agent": agent, "since": since, "change": about}
    with disk.reachable(path, "written"), open(os.path.join(path, ABOUT), "wb", buffering=0) as file:
        file.write(json.dumps(told).encode())


def killed_commands(store: str, places: tuple[str, ...]) -> list[KilledCommand]:
    """Of this store; oldest first."""
    found: list[KilledCommand] = []
    for place in dict.fromkeys(os.path.join(one, "commands") for one in places):
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            # What the machine did not survive may be half on the disk.
            names = [name for name in os.listdir(place) if name.endswith(f".{myself().boot}")]
            read = (_read(store, place, name) for name in names if is_dead(name))
            found += [one for one in read if one is not None]
    return sorted(found, key=lambda one: one.since)


def _read(store: str, place: str, name: str) -> KilledCommand | None:
    """None: it is another store's, or nothing that could be read, such as a note that was cut off."""
    path = os.path.join(place, name)
    try:
        fd = os.open(os.path.join(path, ABOUT), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                return None
            told: dict[str, Any] = json.loads(file.read(_LARGEST))
        if told["store"] != store:
            return None
        about: dict[str, Any] = told["change"]
        adapter, kind, resource, summary = (about[name] for name in _TOLD)
        change = change_recorded(adapter, kind, resource, summary, about["args"])
        return KilledCommand(path, id_in(name), told["run"], told["agent"], told["since"], change)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def is_busy(path: str, patience: float = 0) -> bool:
    """Whether someone still ends the command, or puts its layer there; after waiting up to so many seconds."""
    until = time.monotonic() + patience
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    with Descriptor(fd):
        while not disk.try_lock(fd):
            if time.monotonic() >= until:
                return True
            time.sleep(_LOOKED)
        return False
