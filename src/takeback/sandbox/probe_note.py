"""The result of a trial sandbox, remembered until the machine changes. A trial costs as much as a small command."""

import hashlib
import json
import os
import stat
import sys
from contextlib import suppress
from typing import Any, NamedTuple, cast

from takeback.model.descriptor import Descriptor
from takeback.model.mounts import SANDBOX_NOTE  # in the store, where no sandboxed command can reach it

_FORM = 1
_LARGEST = 1 << 20
# What decides whether namespaces and overlays can be had. One that is missing is part of the answer, too.
_TELLING = (
    "/proc/sys/kernel/random/boot_id",
    "/proc/self/mountinfo",
    "/proc/self/cgroup",
    "/proc/self/uid_map",
    "/proc/self/attr/current",
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/user/max_mnt_namespaces",
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
)
_RIGHTS = (b"Uid", b"Gid", b"Groups", b"Cap", b"NoNewPrivs", b"Seccomp")


class Trial(NamedTuple):
    """A sandbox was built, and a command ran in it."""

    layers_at: str
    bound: tuple[str, ...]  # mount points that could get no overlay
    landlock: int
    cgroups: bool


def recall(place: str) -> Trial | None:
    """The trial of an earlier process on this machine as it is now."""
    try:
        fd = os.open(os.path.join(place, SANDBOX_NOTE), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, "rb") as file:
        told = _understood(file.read(_LARGEST))
    if not told or not is_private(place) or told["machine"] != _machine(place):
        return None
    trial = Trial(told["layers_at"], tuple(told["bound"]), told["landlock"], told["cgroups"])
    return trial if is_private(trial.layers_at) else None


def remember(place: str, trial: Trial) -> None:
    """Nothing depends on it: where it cannot be written the next process tries again."""
    if not is_private(place):
        return
    told = {"form": _FORM, "machine": _machine(place)} | trial._asdict()
    name = os.path.join(place, SANDBOX_NOTE)
    new = f"{name}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(OSError):
        with Descriptor(os.open(new, flags, 0o600)) as fd:
            os.write(fd, json.dumps(told).encode())
        os.replace(new, name)


def forget(place: str) -> None:
    """A sandbox could not be started, so the machine is not what it was."""
    with suppress(OSError):
        os.unlink(os.path.join(place, SANDBOX_NOTE))


def _understood(raw: bytes) -> dict[str, Any]:
    try:
        told: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    known = {"form": int, "machine": str, "layers_at": str, "bound": list, "landlock": int, "cgroups": bool}
    if not isinstance(told, dict):
        return {}
    found = cast(dict[str, Any], told)
    right = all(isinstance(found.get(name), kind) for name, kind in known.items())
    return found if right and found["form"] == _FORM else {}


def is_private(directory: str) -> bool:
    """No other user can put an answer there, or read layers there."""
    try:
        status = os.lstat(directory)
    except OSError:
        return False
    mine = status.st_uid == os.geteuid() and not status.st_mode & 0o077
    return stat.S_ISDIR(status.st_mode) and mine


def _machine(place: str) -> str:
    """Everything that a trial depends on and that can be read cheaply."""
    here = os.stat(place)
    system = os.uname()
    parts = [
        repr(
            (place, here.st_dev, here.st_ino, os.geteuid(), system.release, system.version, sys.executable)
        ).encode(),
        os.fsencode(__file__),
        *map(_read, _TELLING),
        *(line for line in _read("/proc/self/status").splitlines() if line.startswith(_RIGHTS)),
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _read(name: str) -> bytes:
    try:
        with open(name, "rb", buffering=0) as file:
            return file.read()
    except OSError as error:
        return str(error.errno).encode()
