"""Call a function that may not come back: in a thread of its own, for as long as it was given.

While the call is under way, and be it in a process that is stopped or in a thread that was given up on, an abstract
socket has its name. The kernel takes the name away with the last one who could still send anything, so that whoever has
to know whether a call may yet happen can ask on the same machine, without files and without guessing.
"""

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from queue import SimpleQueue


class TimedOut(Exception):
    """It has not come back yet, and may still do something."""


class Ended(Exception):
    """It tried to end the process that called it."""


class _Job:
    """One call, for whoever makes it and whoever waits for it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.over = threading.Lock()  # held until it is over
        self.over.acquire()
        self.result: Any = None
        self.error: BaseException | None = None

    def do(self) -> None:
        try:
            self.result = self.work()
        # Whatever it raises belongs to whoever called.
        except BaseException as error:  # noqa: BLE001
            self.error = error


class Hands:
    """Threads that make calls; one that has come back makes the next, one that has not is left to itself."""

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[_Job]] = []
        self._process = os.getpid()

    def call(
        self,
        function: Callable[..., Any],
        given: tuple[Any, ...],
        named: Mapping[str, Any],
        timeout: float,
        name: str = "",
    ) -> Any:
        """What it returns or raises; `TimedOut` when it takes longer. With a `name` others can see that it is under
        way."""
        from contextvars import copy_context

        context, held = copy_context(), _held(name)

        def work() -> Any:
            with held:
                return at_once(context.run(function, *given, **named))

        job = _Job(work)
        self._hand().put(job)
        if not job.over.acquire(timeout=min(timeout, threading.TIMEOUT_MAX)):
            raise TimedOut(f"it did not come back within {timeout:g} s")
        if job.error is None:
            return job.result
        if not isinstance(job.error, Exception):
            # It wants to end the process: that is not for a function which was called.
            raise Ended(f"{type(job.error).__name__}: {job.error}") from job.error
        raise job.error

    def _hand(self) -> "SimpleQueue[_Job]":
        if self._process != os.getpid():  # after a fork there are none
            self._idle, self._process = [], os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            pass
        from queue import SimpleQueue

        jobs: SimpleQueue[_Job] = SimpleQueue()
        threading.Thread(target=self._work, args=(jobs,), name="takeback-call", daemon=True).start()
        return jobs

    def _work(self, jobs: "SimpleQueue[_Job]") -> None:
        while True:
            job = jobs.get()
            job.do()
            self._idle.append(jobs)
            job.over.release()


def at_once(result: Any) -> Any:
    """What somebody would have to await, or go through, has not happened: it is no answer."""
    kind = cast("type[object]", type(result))
    if not any(hasattr(kind, name) for name in ("__await__", "gi_frame", "ag_frame")):
        return result
    if close := getattr(result, "close", None):
        close()
    raise TypeError(f"it returned a {kind.__name__}, of which nothing has run; use asyncio.run(…) in it")


def under_way(name: str) -> bool:
    """On this machine, in this network namespace."""
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        try:
            one.bind(_address(name))
        except OSError:
            return True
    return False


def _held(name: str) -> AbstractContextManager[Any]:
    if not name:
        return nullcontext()
    import socket

    one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        one.bind(_address(name))
    except OSError as error:
        one.close()
        raise TimedOut("an earlier try of it is still under way") from error
    return one


def _address(name: str) -> bytes:
    return b"\0takeback-call-" + name.encode()
