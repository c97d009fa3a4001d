"""A moment such that what is changed after a command has begun always carries a later time."""

import os
import time

_COARSE = 5  # CLOCK_REALTIME_COARSE, which `time` does not name
_TICKS = 200  # of a fifth of a millisecond: more than the slowest clock needs
_NUDGES = 3


def wait_past(moment: int) -> None:
    """In nanoseconds. The kernel stamps changes by a clock that moves in ticks, so we wait until that one is past the
    moment: then whatever is stamped up to it happened before, and whatever happens from now on is stamped after it."""
    if _nudged(moment):
        return
    for _ in range(_TICKS):
        if time.clock_gettime_ns(_COARSE) > moment:
            return
        time.sleep(0.0002)


def _nudged(moment: int) -> bool:
    """Newer kernels (6.13) stamp the second change of a file that was looked at in between exactly, and whatever is
    changed after that, anywhere, not before it: then nobody has to wait for a tick."""
    file = os.memfd_create("clock")
    try:
        for _ in range(_NUDGES):
            os.fchmod(file, 0o600)
            if os.fstat(file).st_ctime_ns > moment:
                return True
        return False
    finally:
        os.close(file)
