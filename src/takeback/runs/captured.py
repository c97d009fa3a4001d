"""What a command prints, read through pipes: as a program expects it, and `/dev/stderr` can be opened again inside."""

import os
import threading
from types import TracebackType

_PIECE = 1 << 16


class Captured:
    """Use it as a context manager around one command; afterwards `stdout` and `stderr` hold what it printed. Who has to
    fork first says `later`, and calls `listen` himself."""

    def __init__(self, stdin: bytes | None = None, later: bool = False) -> None:
        self.stdout = b""
        self.stderr = b""
        self._stdin = stdin
        self._open: list[int] = []
        self._later = later
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "Captured":
        given = self._given()
        self._reads: list[int] = []
        writes: list[int] = []
        for _ in range(3):  # the last one only to say that the command has ended
            read, write = self._kept(*os.pipe2(os.O_CLOEXEC))
            self._reads.append(read)
            writes.append(write)
        self.stdio = (given, writes[0], writes[1])
        self._wake = writes[2]
        if not self._later:
            self.listen()
        return self

    def listen(self) -> None:
        self._thread = threading.Thread(target=self._read, name="takeback-output", daemon=True)
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """The command has ended: what it printed is in the pipes, and what comes after it is nobody's."""
        try:
            if self._thread:
                os.write(self._wake, b".")
                self._thread.join()
                self._thread = None
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
        import select

        out, err, ended = self._reads
        printed: dict[int, list[bytes]] = {out: [], err: []}
        waiting = select.poll()
        for fd in self._reads:
            os.set_blocking(fd, False)
            waiting.register(fd, select.POLLIN)
        going_on = True
        while going_on:
            going_on = ended not in {fd for fd, _ in waiting.poll()}
            for fd, pieces in printed.items():
                while piece := _piece(fd):
                    pieces.append(piece)
        self.stdout, self.stderr = b"".join(printed[out]), b"".join(printed[err])


def _piece(fd: int) -> bytes:
    try:
        return os.read(fd, _PIECE)
    except BlockingIOError:
        return b""
