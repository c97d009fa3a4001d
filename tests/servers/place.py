"""Where the servers of a test session live: in memory where there is enough, and gone when the session is."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_MEMORY = Path("/dev/shm")
_ENOUGH = 3 << 30
_NAME = "takeback-servers-"


class Place(NamedTuple):
    shared: Path  # by all workers of the session: what is made once and copied
    own: Path  # of this worker


@contextmanager
def place(base: Path) -> Iterator[Place]:
    """A server that syncs all it writes is some twenty times slower on a disk that others use as well, and no test here
    cuts the power. On the disk, below `base`, only where the memory is small."""
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    if not _in_memory():
        root = (base.parent if session else base) / "servers"
        root.mkdir(exist_ok=True)
        yield Place(root / "shared", root / worker)
        return
    root = _MEMORY / f"{_NAME}{os.getuid()}-{session or os.getpid()}"
    for other in _MEMORY.glob(f"{_NAME}{os.getuid()}-*"):
        _remove_if_left(other)
    root.mkdir(mode=0o755, exist_ok=True)
    with open(root / "alive", "w") as alive:
        fcntl.flock(alive, fcntl.LOCK_SH)
        try:
            yield Place(root / "shared", root / worker)
        finally:
            fcntl.flock(alive, fcntl.LOCK_UN)
            _remove_if_left(root, age=0)


def _in_memory() -> bool:
    try:
        room = os.statvfs(_MEMORY)
        free = next(
            line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable")
        )
    except (OSError, StopIteration):
        return False
    roomy = room.f_bavail * room.f_frsize > _ENOUGH and int(free.split()[1]) * 1024 > 2 * _ENOUGH
    return roomy and os.access(_MEMORY, os.W_OK)


def _remove_if_left(root: Path, age: float = 60) -> None:
    """What a killed session left, or what the last worker of ours leaves. A young one may be about to be locked."""
    try:
        if time.time() - root.stat().st_mtime < age:
            return
        with open(root / "alive", "r+") as alive:
            fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(root, ignore_errors=True)
    except FileNotFoundError:
        return
    except BlockingIOError:
        return
