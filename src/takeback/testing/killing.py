"""Let work die by SIGKILL in the middle, at a point that can be chosen."""

import os
import signal
import sys
from collections.abc import Callable

_COUNTED = ("c_call", "call")
_OUTWARD = ("posix", "_io", "io", "_sqlite3", "_socket", "_posixsubprocess")
ENOUGH = 100_000  # more points than any sweep has: a sweep that does not end is broken


def killed_at(point: int, work: Callable[[], object]) -> bool:
    """Do the work in a child that dies by SIGKILL at its n-th call; False if it ended before that.

    Calls of the system and of Python functions count, so there is a point before and after every system call, also
    of those made through ctypes.
    """
    child = os.fork()
    if child == 0:
        try:
            _die_at(point)
            work()
        finally:
            sys.setprofile(None)
            os._exit(0)  # also after an exception: what counts is what the world looks like
    status = os.waitpid(child, 0)[1]
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _die_at(point: int) -> None:
    left = point

    def step(frame: object, event: str, argument: object) -> None:
        nonlocal left
        if (
            event == "c_call" and getattr(argument, "__module__", None) not in _OUTWARD
        ) or event not in _COUNTED:
            return
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(step)
