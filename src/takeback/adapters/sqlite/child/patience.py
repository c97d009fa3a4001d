"""How long SQLite waits for someone else's lock, who has it, and that it is told."""

import os
import time
from collections.abc import Callable, Iterator

_FIRST_LOOK = 1.0  # seconds: most waits are shorter
_PAUSES = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.025)  # SQLite's own; then the last one, twice as long
_LOCKS = "/proc/locks"

Tell = Callable[[int, str], None]  # the number and the words of a process; 0: not known


def nobody_listens(process: int, words: str) -> None: ...


class Patience:
    """Asked by SQLite, each time a lock is not free, whether to go on waiting."""

    def __init__(self, path: str, seconds: int, has_parent: Callable[[], bool], tell: Tell) -> None:
        """`seconds`: 0: no limit."""
        self._path = path
        self._seconds = seconds
        self._has_parent = has_parent
        self._tell = tell
        self._began = self._look_at = 0.0
        self.holder = ""  # who had it when it was last waited for, in words

    def __call__(self, times: int) -> bool:
        now = time.monotonic()
        if not times:
            self._began, self.holder = now, ""
            self._look_at = now + min(_FIRST_LOOK, self._seconds / 2 or _FIRST_LOOK)
        if self._seconds and now - self._began >= self._seconds:
            return False
        if now >= self._look_at:
            self._look_at = now + _FIRST_LOOK
            if not self._has_parent():
                return False  # nobody waits for it any more
            self._look()
        time.sleep(_PAUSES[times] if times < len(_PAUSES) else 2 * _PAUSES[-1])
        return True

    def _look(self) -> None:
        process = next(_with_locks(self._path), 0)
        words = f"{_name(process)} (process {process})" if process else "a transaction of someone else"
        if words != self.holder:
            self._tell(process, words)
        self.holder = words


def _with_locks(path: str) -> Iterator[int]:
    """Other processes that have one on the file or, with a write-ahead log, on its index; those that write first.
    (Opening the file to ask would give up the locks that we have.)"""
    files = {one.st_ino for one in map(_stat, (path, f"{path}-shm")) if one is not None}
    try:
        with open(_LOCKS, encoding="ascii") as file:
            lines = [line.split() for line in file if "->" not in line]  # which is one that waits itself
    except OSError:
        return
    for kind in ("WRITE", "READ"):
        for one in lines:
            if len(one) > 5 and one[3] == kind and int(one[5].rpartition(":")[2]) in files:
                if (process := int(one[4])) > 0 and process != os.getpid():
                    yield process


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _name(process: int) -> str:
    try:
        with open(f"/proc/{process}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "a program"
