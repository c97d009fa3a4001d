"""A moment such that what is changed after a command has begun always carries a later time."""

import time

_COARSE = 5  # CLOCK_REALTIME_COARSE, which `time` does not name
_TICKS = 200  # of a fifth of a millisecond: more than the slowest clock needs


def wait_past(moment: int) -> None:
    """In nanoseconds. The kernel stamps changes by a clock that moves in ticks, so we wait until that one is past the
    moment: then whatever is stamped up to it happened before, and whatever happens from now on is stamped after it."""
    for _ in range(_TICKS):
        if time.clock_gettime_ns(_COARSE) > moment:
            return
        time.sleep(0.0002)
