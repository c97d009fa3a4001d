"""A worker: claims runs of its workflows that are due, and works on each in a thread of its own."""

import queue
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NamedTuple

from takeback.engine.parts import Parts
from takeback.engine.stuck import Taker
from takeback.errors import TakebackError
from takeback.model.boot_clock import since_boot
from takeback.model.run import Lease, RunInfo
from takeback.runs.run import Run
from takeback.runs.workflow import Workflow
from takeback.runs.working import Shift, work_on
from takeback.storage.process import myself

POLL = 0.25  # seconds: a dead worker's run is taken over within two
_TROUBLED = 5.0  # at most, between two tries to reach the store
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Place(NamedTuple):
    """Where a worker works."""

    parts: Parts
    now: Callable[[], int]
    lasts: int  # microseconds that a lease is for
    begin: Callable[[RunInfo, Lease, int], Run]  # with what `since_boot` said before the lease was taken
    wait: Callable[[float], None]  # until there may be work, or so many seconds are over


class Worker:
    def __init__(
        self,
        place: Place,
        workflows: Mapping[str, Workflow],
        concurrency: int = 1,
        tell: Callable[[str], None] = lambda words: None,
    ) -> None:
        self._place = place
        self._workflows = dict(workflows)
        self._concurrency = concurrency
        self._tell = tell
        # Threads that are through, and None to wake us; its `put` may be called by a signal's function.
        self._wakes: queue.SimpleQueue[threading.Thread | None] = queue.SimpleQueue()
        self._working: set[threading.Thread] = set()
        self._stopping = False
        self.worked = 0  # how many times it went on with a run

    def stop(self) -> None:
        """No new runs; those at hand are suspended at their next step."""
        self._stopping = True
        self._wakes.put(None)

    def work(self, *, until_idle: bool = False) -> None:
        """Until it is stopped; with `until_idle` until nothing is due and nothing is at work here."""
        trouble = 0.0
        while not self._stopping:
            try:
                claimed = self._claim_all()
                trouble = 0.0
            except TakebackError as error:
                # Not ours to solve: whoever runs the store does, and then we go on.
                trouble = min(trouble * 2 or POLL, _TROUBLED)
                self._tell(f"The store cannot be asked for work: {error}")
                claimed = False
            if until_idle and not claimed and not self._working and not trouble:
                return
            self._pause(trouble or POLL)
        if self._working:
            count = len(self._working)
            waits = "a run is" if count == 1 else f"{count} runs are"
            self._tell(f"Stopping when {waits} at the next step; a second signal does not wait for that.")
        while self._working:
            self._pause(POLL)

    def _pause(self, seconds: float) -> None:
        """Until there may be something to do; a store that cannot be asked is no reason to end."""
        if self._stopping or self._working or not self._waited(seconds):
            with suppress(queue.Empty):
                self._through(self._wakes.get(timeout=seconds))
        with suppress(queue.Empty):
            while True:
                self._through(self._wakes.get_nowait())

    def _waited(self, seconds: float) -> bool:
        try:
            self._place.wait(seconds)
        except TakebackError:
            return False
        return True

    def _through(self, thread: threading.Thread | None) -> None:
        if thread:
            thread.join()
            self._working.discard(thread)

    def _claim_all(self) -> bool:
        place, claimed = self._place, False
        while len(self._working) < self._concurrency and not self._stopping:
            begun = since_boot()
            lease = place.parts.leases.claim(myself(), place.now(), place.lasts, tuple(self._workflows))
            if lease is None:
                break
            claimed = True
            self.worked += 1
            thread = threading.Thread(
                target=self._work_on, args=(lease, begun), name=f"takeback-run-{lease.run}"
            )
            thread.daemon = True  # a second signal does not wait for it
            self._working.add(thread)
            thread.start()
        return claimed

    def _work_on(self, lease: Lease, begun: int) -> None:
        place = self._place
        try:
            info = next(place.parts.journal.runs((lease.run,)))
            run = place.begin(info, lease, begun)
            work_on(
                Shift(
                    place.parts,
                    place.now,
                    lambda: self._stopping,
                    self._tell,
                    lambda: Taker(myself(), place.now(), place.lasts),
                ),
                run,
                info,
                self._workflows[info.workflow],
            )
        except TakebackError as error:
            self._tell(f"Run {lease.run[:8]} is left for later: {error}")
        finally:
            self._wakes.put(threading.current_thread())


@contextmanager
def stopped_by_signals(worker: Worker, at_once: Callable[[int], None]) -> Iterator[None]:
    """The first one lets the runs at hand come to their next step; the second one ends the process."""
    seen: list[int] = []

    def heard(number: int, frame: FrameType | None) -> None:
        if seen:
            at_once(number)
        seen.append(number)
        worker.stop()

    before = {number: signal.signal(number, heard) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, function in before.items():
            signal.signal(number, function)
