"""A moment as the start of a command is one."""

import time

from takeback.sandbox.init import wait_past


def begin() -> int:
    """In nanoseconds; what is changed from now on carries a later time."""
    moment = time.time_ns()
    wait_past(moment)
    return moment
