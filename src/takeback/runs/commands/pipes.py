"""What a command reads and prints, through pipes; and whether it read what someone typed."""

import os
import select
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

_PIECE = 1 << 16


class Pipes:
    """Use it as a context manager around one command; afterwards `stdout` and `stderr` hold what it printed. Meanwhile
    someone has to read it: who waits for something else `until` that, others have a thread `listen`."""

    def __init__(self, stdin: bytes | None = None) -> None:
        self.stdout = b""
        self.stderr = b""
        self._stdin = stdin
        self._open: list[int] = []
        self._printed: dict[int, list[bytes]] = {}
        self._thread: threading.Thread | None = None
        self._wake = -1

    def __enter__(self) -> "Pipes":
        given = self._given()
        writes: list[int] = []
        for _ in range(2):
            read, write = self._kept(*os.pipe2(os.O_CLOEXEC))
            os.set_blocking(read, False)
            self._printed[read] = []
            writes.append(write)
        self.stdio = (given, writes[0], writes[1])
        return self

    def listen(self) -> None:
        ended, self._wake = self._kept(*os.pipe2(os.O_CLOEXEC))
        self._thread = threading.Thread(target=self.until, args=(ended,), name="takeback-output", daemon=True)
        self._thread.start()

    def until(self, fd: int) -> None:
        """Read what is printed until this descriptor has something to say."""
        waiting = select.poll()
        for one in (fd, *self._printed):
            waiting.register(one, select.POLLIN)
        while fd not in {ready for ready, _ in waiting.poll()}:
            self._read()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """The command has ended: what it printed is in the pipes, and what comes after it is nobody's."""
        if not self._open:
            return
        try:
            if self._thread:
                os.write(self._wake, b".")
                self._thread.join()
                self._thread = None
            self._read()
            self.stdout, self.stderr = (b"".join(pieces) for pieces in self._printed.values())
        finally:
            while self._open:
                os.close(self._open.pop())

    def _given(self) -> int:
        if self._stdin is None:
            return self._kept(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))[0]
        (fd,) = self._kept(os.memfd_create("stdin"))
        rest = memoryview(self._stdin)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def _kept(self, *fds: int) -> tuple[int, ...]:
        self._open += fds
        return fds

    def _read(self) -> None:
        for fd, pieces in self._printed.items():
            while piece := _piece(fd):
                pieces.append(piece)


def _piece(fd: int) -> bytes:
    try:
        return os.read(fd, _PIECE)
    except BlockingIOError:
        return b""


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
