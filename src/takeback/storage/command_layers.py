"""Directories in which commands run: whose each one is, and what is left in one when its takeback was killed.

    commands/ID.OWNER/about.json   which command, of which run; written before the command starts
    commands/ID.OWNER/layer        what it changed; there once all its processes have ended

The small process that runs the command holds a lock on the directory until the layer is there.
"""

import json
import os
import stat
import time
from contextlib import suppress
from typing import Any, NamedTuple

from takeback.model.change import Change
from takeback.model.run import Owner
from takeback.storage import disk
from takeback.storage.process import alive, myself

ABOUT, LAYER = "about.json", "layer"
_FORM = "layer.json"  # in a layer; it is written last
_LARGEST = 4 << 20  # bytes of `about.json`
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
        return os.path.exists(os.path.join(self.layer, _FORM))


def name_of(id: str, owner: Owner) -> str:
    """Whose it is stands in the name: there is no moment in which it is nobody's."""
    return f"{id}.{owner.pid}.{owner.started}.{_digits(owner.space)}.{owner.boot}"


def id_in(name: str) -> str:
    return name.partition(".")[0]


def _digits(text: str) -> str:
    return "".join(c for c in text if c.isdigit())


def is_dead(name: str) -> bool:
    _, _, told = name.partition(".")
    pid, _, rest = told.partition(".")
    started, _, rest = rest.partition(".")
    space, _, boot = rest.partition(".")
    me = myself()
    if not boot or not pid.isdigit():
        return False  # not one of ours
    if boot != me.boot:
        return True  # no process and no mount outlives the machine
    # One of another container cannot be asked, and may be alive.
    return space == _digits(me.space) and alive(Owner(boot, me.space, int(pid), started)) is False


def note(path: str, store: str, run: str, agent: str, since: int, change: Change) -> None:
    """Written whole or not at all: nobody reads it while we live."""
    told = {"store": store, "run": run, "agent": agent, "since": since, "change": change._asdict()}
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
        change = Change(**told["change"])
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
    try:
        while not disk.try_lock(fd):
            if time.monotonic() >= until:
                return True
            time.sleep(_LOOKED)
        return False
    finally:
        os.close(fd)
