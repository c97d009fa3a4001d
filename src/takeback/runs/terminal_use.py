"""Whether a command read what someone typed."""

import os
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

_BACK = 16 * 10**9  # nanoseconds: the kernel moves the time of the last read in steps of 8 seconds


class TerminalUse:
    """Around the command. A terminal has the time at which it was last read; it is set back first, so that every read
    moves it."""

    def __init__(self, stdio: Sequence[int]) -> None:
        self._terminal = next((fd for fd in stdio if os.isatty(fd)), -1)
        self._before = self._set = 0
        self.happened = False

    def __enter__(self) -> "TerminalUse":
        if self._terminal >= 0:
            status = os.fstat(self._terminal)
            self._before = self._set = status.st_atime_ns
            with suppress(OSError):  # of another user: then two reads within 8 seconds look like one
                os.utime(self._terminal, ns=(self._before - _BACK, status.st_mtime_ns))
                self._set = os.fstat(self._terminal).st_atime_ns
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal < 0:
            return
        with suppress(OSError):  # the terminal is gone
            status = os.fstat(self._terminal)
            self.happened = status.st_atime_ns != self._set
            if not self.happened:
                os.utime(self._terminal, ns=(self._before, status.st_mtime_ns))
