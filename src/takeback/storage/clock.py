"""The clock by which a lease in a store on disk ends."""

import time


def since_boot() -> int:
    """Microseconds since the kernel started, asleep or not: the same for every process of this machine, and nobody can
    set it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
