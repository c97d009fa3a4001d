"""Work that takes a while, such as a long undo: it runs in a thread, its page shows how far it is."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

from takeback.errors import TakebackError, Unavailable
from takeback.frontends.console.visitor import Visitor
from takeback.model.ids import new_id
from takeback.model.progress import Progress

_KEPT = 200  # finished jobs that can be looked at again
_MOST_AT_ONCE = 8


class Reached(NamedTuple):
    doing: str
    noun: str
    items: int
    of_items: int
    bytes: int
    of_bytes: int

    @property
    def percent(self) -> int:
        if self.of_bytes:
            return min(100, 100 * self.bytes // self.of_bytes)
        return min(100, 100 * self.items // self.of_items) if self.of_items else 0


class JobProgress(Progress):
    draws = True

    def __init__(self) -> None:
        self.reached = Reached("Waiting", "path", 0, 0, 0, 0)

    @contextmanager
    def stage(self, doing: str, noun: str = "path", ticks: bool = False) -> Generator[None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        around, self.reached = self.reached, Reached(doing, noun, 0, 0, 0, 0)
        try:
            yield
        finally:
            self.reached = around

    def expect(self, items: int = 0, bytes: int = 0) -> None:
        now = self.reached
        self.reached = now._replace(of_items=now.of_items + items, of_bytes=now.of_bytes + bytes)

    def moved(self, bytes: int = 0, items: int = 0) -> None:
        now = self.reached
        self.reached = now._replace(items=now.items + items, bytes=now.bytes + bytes)


class ConsoleJob:
    """`result` or `error` is there when it is over."""

    def __init__(self, title: str, visitor: Visitor, back: str) -> None:
        self.id = new_id()
        self.title = title
        self.visitor = visitor
        self.back = back  # the page it was asked for on
        self.progress = JobProgress()
        self.said: list[str] = []
        self.result: Any = None
        self.error: TakebackError | None = None
        self.broke = ""  # an error of ours
        self.began = time.time()
        self.over = threading.Event()

    @property
    def outcome(self) -> str:
        if not self.over.is_set():
            return "running"
        return "failed" if self.error or self.broke else "done"


class Jobs:
    def __init__(self) -> None:
        self._jobs: dict[str, ConsoleJob] = {}
        self._lock = threading.Lock()

    def start(
        self, title: str, visitor: Visitor, back: str, work: Callable[[ConsoleJob], Any], wait: float = 0.4
    ) -> ConsoleJob:
        """Returns when it is over, or after that many seconds."""
        job = ConsoleJob(title, visitor, back)
        with self._lock:
            running = sum(not one.over.is_set() for one in self._jobs.values())
            if running >= _MOST_AT_ONCE:
                raise Unavailable(
                    f"{running} other jobs are running.", hint="Nothing was changed. Try again in a minute."
                )
            self._jobs[job.id] = job
            over = [id for id, one in self._jobs.items() if one.over.is_set()]
            for id in over[: max(0, len(over) - _KEPT)]:
                del self._jobs[id]
        threading.Thread(target=self._run, args=(job, work), name=f"job {job.id}").start()
        job.over.wait(wait)
        return job

    @staticmethod
    def _run(job: ConsoleJob, work: Callable[[ConsoleJob], Any]) -> None:
        try:
            job.result = work(job)
        except TakebackError as error:
            job.error = error
        except BaseException as error:
            job.broke = f"{type(error).__name__}: {error}"
            raise
        finally:
            job.over.set()

    def get(self, id: str) -> ConsoleJob | None:
        with self._lock:
            return self._jobs.get(id)

    def running(self) -> list[ConsoleJob]:
        with self._lock:
            return [one for one in self._jobs.values() if not one.over.is_set()]

    def finish(self) -> None:
        """At the end of the console: an undo that was begun is finished, not cut off."""
        for job in self.running():
            job.over.wait()
