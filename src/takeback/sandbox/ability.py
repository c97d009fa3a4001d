"""What this machine allows, found out by doing it."""

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import NamedTuple

from takeback.errors import TakebackError
from takeback.model.mounts import SANDBOX_TRIAL, mount_table, mounted
from takeback.sandbox import probe_note
from takeback.sandbox.mounts import OVERLAY, points_for_root, visible
from takeback.sandbox.probe_note import Trial
from takeback.sandbox.protocol import ROOT, USER, Order, Stack

OVERFLOW = "Value too large for defined data type"  # what programs say then
WHOSE = "files and directories of other users or groups"
WHY = f'also those that you may write: "{OVERFLOW}" inside; run it in place'

HARDLINK = "hardlink different from source"
_GIT = (
    "in a sandbox of an ordinary user a hard link to an existing file gets another inode number. Use "
    "`git clone --no-hardlinks` or a file:// address, or run it in place."
)

_MOST = 1_000


def unmapped(directory: str) -> tuple[str, str]:
    """The first such thing in a directory, and whose it is; empty if there is none among the first thousand entries."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        return "", ""
    with suppress(OSError), os.scandir(directory) as entries:  # it is only for a hint
        for entry in islice(entries, _MOST):
            status = entry.stat(follow_symlinks=False)
            if (status.st_uid, status.st_gid) == (uid, gid) or entry.is_symlink():
                continue
            if os.access(entry.path, os.W_OK):
                return entry.path, f"belongs to user {status.st_uid}, group {status.st_gid}"
    return "", ""


def git_links(words: Sequence[str]) -> str:
    """What to say of a git command that copies a repository of this machine: it links objects and compares inode
    numbers, and a link to a file below the layer has a new one there."""
    line = " ".join(words).split()
    if os.geteuid() == 0 or not any(word.endswith("git") for word in line):
        return ""
    if not {"clone", "submodule"}.intersection(line):
        return ""
    return f'If git said "{HARDLINK}": {_GIT}'


def in_words(printed: bytes) -> str:
    """For who reads what a failed command printed."""
    if os.geteuid() == 0:
        return ""
    if HARDLINK.encode() in printed:
        return f"“{HARDLINK}”: {_GIT}"
    if OVERFLOW.encode() not in printed:
        return ""
    return f"“{OVERFLOW}”: in a sandbox an ordinary user cannot change {WHOSE}; run it in place."


_LAYER = "layer-"
# Where else layers may lie when the store is on a filesystem that cannot have them (a container's own).
_ELSEWHERE = ("/var/tmp", "/tmp", "/run/user/{uid}", "/run", "/dev/shm")  # noqa: S108 a private directory is made there


class Ability(NamedTuple):
    engine: str  # "root" | "user" | "" (there is no sandbox here)
    why: str  # a sentence when there is none
    layers_at: str  # where layers can live, "" nowhere
    not_covered: tuple[tuple[str, str], ...]  # path, and why it is read-only inside though not outside
    landlock: int  # its version, 0 none
    cgroups: bool


def ability(place: str, fresh: bool = False) -> Ability:
    """`place`: a directory, usually the store, that layers should be kept in. Tried once, then remembered there until
    the machine changes. `fresh`: tried in any case."""
    if fresh:
        forget(place)
    return _ability(os.path.realpath(place), os.geteuid())


def forget(place: str) -> None:
    """A sandbox could not be started: the next to ask tries again."""
    probe_note.forget(os.path.realpath(place))
    _ability.cache_clear()


@cache
def _ability(place: str, uid: int) -> Ability:
    from takeback.sandbox.privileges import is_privileged

    engine = ROOT if is_privileged() else USER
    trial = probe_note.recall(place)
    if trial is None:
        trial = _tried(place, uid)
        if isinstance(trial, Ability):
            return trial
        probe_note.remember(place, trial)
    not_covered = _not_covered(engine, trial.bound)
    return Ability(engine, "", trial.layers_at, not_covered, trial.landlock, trial.cgroups)


def _tried(place: str, uid: int) -> Trial | Ability:
    """The result of a trial, or why there is no sandbox."""
    from takeback.sandbox.cgroups import usable
    from takeback.sandbox.privileges import version

    if os.uname().sysname != "Linux":
        return Ability("", "Only Linux has one.", "", (), 0, False)
    landlock = version()
    if not _overlay_known():
        return Ability("", "This kernel has no overlay filesystem.", "", (), landlock, False)
    works, told = _try(nearest(place))
    if not works:
        first = told
        for at in _candidates(uid):
            works, told = _try(at)
            if works:
                place = at
                break
        else:
            return Ability("", first, "", (), landlock, False)
    bound = tuple(point for point in told.split("\n") if point)
    return Trial(place, bound, landlock, usable() is not None)


def _overlay_known() -> bool:
    """As a module it is loaded by the first mount."""
    with open("/proc/filesystems", encoding="ascii") as file:
        if "overlay" in file.read().split():
            return True
    return os.path.isdir(f"/lib/modules/{os.uname().release}")


def nearest(path: str) -> str:
    """The directory itself, or the first above it that exists."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def _candidates(uid: int) -> list[str]:
    """Private directories, the one with the most room first."""
    found: list[tuple[int, str]] = []
    for pattern in _ELSEWHERE:
        at = os.path.join(pattern.format(uid=uid), f"takeback-{uid}")
        try:
            os.makedirs(at, 0o700, exist_ok=True)
            space = os.statvfs(at)
        except OSError:
            continue
        if probe_note.is_private(at):  # the user who made it before us may look into it
            found.append((space.f_bavail * space.f_frsize, at))
    return [at for _, at in sorted(found, reverse=True)]


def _try(directory: str) -> tuple[bool, str]:
    """Whether a command can write into a layer there; what could not be covered, or why it cannot."""
    from takeback.sandbox.layer import remove
    from takeback.sandbox.sandbox import Sandbox

    here = os.path.join(directory, SANDBOX_TRIAL)
    try:
        before = os.stat(directory)
        lock = _locked(here)
    except OSError as error:
        return False, f"{directory}: {os.strerror(error.errno or 0)}."
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        with Sandbox(here) as sandbox:
            layer = os.path.join(here, f"{_LAYER}{os.getpid()}-{os.urandom(4).hex()}")
            order = Order((os.devnull,), "/", {}, (nothing, nothing, nothing))
            running = sandbox.start(order, Stack(), layer)
            running.wait()
            remove(layer)
        return True, "\n".join(running.bound)
    except TakebackError as error:
        return False, str(error)
    finally:
        os.close(nothing)
        os.close(lock)
        if clear(directory):
            with suppress(OSError):  # it is not ours
                os.utime(directory, ns=(before.st_atime_ns, before.st_mtime_ns))


def _locked(here: str) -> int:
    """Made, and held together with others who try there at this moment; to be closed."""
    import fcntl

    while True:
        os.makedirs(here, 0o700, exist_ok=True)
        try:
            lock = os.open(here, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another one has just finished
        fcntl.flock(lock, fcntl.LOCK_SH)
        if os.fstat(lock).st_nlink:
            return lock
        os.close(lock)


def clear(directory: str) -> bool:
    """Remove the remains of a killed trial; does nothing while another trial runs."""
    import fcntl

    from takeback.sandbox.layer import remove
    from takeback.sandbox.scratch import sweep

    here = os.path.join(directory, SANDBOX_TRIAL)
    try:
        lock = os.open(here, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        sweep(here)
        for name in os.listdir(here):
            if name.startswith(_LAYER):
                remove(os.path.join(here, name))
        os.rmdir(here)
        return True
    except OSError:
        return False
    finally:
        os.close(lock)


def _not_covered(engine: str, bound: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    found = [(point, "its filesystem cannot be below a layer: read-only inside") for point in bound]
    mounts = visible(mounted(mount_table()))
    writable = {one.point for one in mounts if one.writable}
    for point in points_for_root(mounts, b"/"):
        if point.how != OVERLAY and point.point in writable and os.access(point.point, os.W_OK):
            why = "mounted by itself, and no directory of files: read-only inside"
            found.append((os.fsdecode(point.point), why))
    if engine == USER:
        theirs = "your directories inside those of others"
        found += [(WHOSE, WHY), (theirs, "outside home, the current and temporary directories: read-only")]
    return tuple(sorted(found))
