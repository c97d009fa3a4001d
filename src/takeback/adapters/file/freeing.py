"""Remove many files where giving their blocks back is slow: names go one by one, the blocks in several threads."""

import os
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queue import SimpleQueue
    from threading import Thread

_TRIED = 16
_SLOW = 0.0003  # seconds a file: below, threads cost more than they save
_THREADS = 16
_WAITING = 128  # files without a name that may wait for a thread, each with a descriptor


class Freeing:
    """Names are gone when `unlink` returns, in the order of the calls; the blocks at the end of the block."""

    def __init__(self) -> None:
        self._count = 0
        self._spent = 0.0
        self._threads: list[Thread] = []
        self._waiting: SimpleQueue[int] | None = None

    def __enter__(self) -> "Freeing":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._waiting is not None:
            for _ in self._threads:
                self._waiting.put(-1)
            for thread in self._threads:
                thread.join()
        self._threads, self._waiting = [], None

    def unlink(self, name: str | bytes, *, dir_fd: int) -> None:
        if self._waiting is not None:
            self._unlink_and_free(name, dir_fd, self._waiting)
            return
        start = time.perf_counter()
        os.unlink(name, dir_fd=dir_fd)
        self._spent += time.perf_counter() - start
        self._count += 1
        if self._count == _TRIED:
            if self._spent > _TRIED * _SLOW:
                self._begin()
            self._count, self._spent = 0, 0.0

    def _begin(self) -> None:
        from queue import SimpleQueue
        from threading import Thread

        self._waiting = SimpleQueue()
        self._threads = [Thread(target=_close_all, args=(self._waiting,)) for _ in range(_THREADS)]
        for thread in self._threads:
            thread.start()

    def _unlink_and_free(self, name: str | bytes, dir_fd: int, waiting: "SimpleQueue[int]") -> None:
        """A file that someone has open keeps its blocks: who closes it last waits until they are given back."""
        if waiting.qsize() >= _WAITING:
            os.unlink(name, dir_fd=dir_fd)
            return
        try:
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
        except OSError:  # too many open files: then one after the other
            os.unlink(name, dir_fd=dir_fd)
            return
        try:
            os.unlink(name, dir_fd=dir_fd)
        except BaseException:
            os.close(fd)
            raise
        waiting.put(fd)


def _close_all(waiting: "SimpleQueue[int]") -> None:
    while (fd := waiting.get()) >= 0:
        os.close(fd)
