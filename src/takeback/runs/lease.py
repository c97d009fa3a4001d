"""A run is ours: its lease is renewed, one thread works at a time, signals wait for the effect in hand."""

import os
import signal
import threading
import time
from _thread import RLock, get_ident
from collections.abc import Callable, Generator
from contextlib import contextmanager
from heapq import heappop, heappush
from threading import Condition
from types import FrameType
from typing import Any

from takeback.errors import LeaseLost, Misuse, TakebackError
from takeback.model.boot_clock import since_boot
from takeback.model.functions import refuse_inside_a_call
from takeback.model.ids import short
from takeback.model.run import Lease
from takeback.storage.protocols import Leases

# `signal.getsignal` wraps each answer, which takes 20 times as long.
_handler_of: Callable[[int], Any] = __import__("_signal").getsignal
_SECOND = 1_000_000
_SOON = 1.0  # seconds until it is tried again when the store could not be written


class Heartbeat:
    """`lost` is set when another process has the lease."""

    def __init__(
        self,
        leases: Leases,
        lease: Lease,
        now: Callable[[], int],
        lasts: int,
        *,
        begun: int = 0,
        clock: Callable[[], int] = since_boot,
    ) -> None:
        """`begun` is what `clock` said before the lease was taken; 0: not known, so the first `outlast` renews it."""
        self.lost = threading.Event()
        self._leases = leases
        self._lease = lease
        self._now = now
        self._lasts = lasts
        self._clock = clock
        # Ours until then at least, by our own clock, which was read before the store read its own.
        self._until = begun + lasts if begun else 0
        self._hold = 0  # what `outlast` was asked for last
        self._deadline = 0  # of the current step; 0: it has none
        self._one_at_a_time = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._alarm = _alarms().set(self._start, lasts / 3 / _SECOND)

    def stop(self) -> None:
        self._stopped.set()
        self._alarm.call = None

    def _start(self) -> None:
        self._thread = threading.Thread(
            target=self._beat, name=f"takeback-lease-{self._lease.run}", daemon=True
        )
        self._thread.start()

    def outlast(self, seconds: float, others: bool = False) -> None:
        """From here on the lease is ours for that long at least: renewed now if need be, and kept that way until the
        next call; `others`: those before it are still under way. `LeaseLost` if it cannot be: then nothing may be
        begun."""
        with self._one_at_a_time:
            wanted = int(seconds * _SECOND)
            until = self._clock() + wanted
            self._hold = max(self._hold, until) if others else until
            if not self.lost.is_set() and self._until >= until:
                return
            self._renew(max(self._lasts, wanted + self._lasts // 2))
            if self._until < self._clock() + wanted:
                raise LeaseLost(
                    f"Run {short(self._lease.run)} could not be held for another {seconds:g} seconds.",
                    hint="The store took too long to answer; nothing was begun. Try again.",
                )

    def progress(self, seconds: float | None) -> None:
        """The current step has that long; past it the lease is let run out, so that another worker takes over from one
        that hangs. None: it may take any time."""
        self._deadline = 0 if seconds is None else self._clock() + int(seconds * _SECOND)

    def _renew(self, lasts: int) -> None:
        asked_at = self._clock()
        try:
            self._lease = self._leases.renew(self._lease, self._now(), lasts)
        except LeaseLost:
            self._until = 0
            self.lost.set()
            raise
        self._until = asked_at + lasts

    def _beat(self) -> None:
        _leave_signals_to_the_main_thread()
        usual, pause = self._lasts / 3 / _SECOND, 0.0
        while not self._stopped.wait(pause):
            pause = usual
            if self._deadline and self._clock() > self._deadline:
                continue
            with self._one_at_a_time:
                if self._stopped.is_set():
                    return
                try:
                    self._renew(max(self._lasts, self._hold - self._clock()))
                except LeaseLost:
                    return
                except TakebackError:
                    # Not now: a restarting server, a full disk. The next append reports it.
                    pause = min(usual, _SOON)


def _leave_signals_to_the_main_thread() -> None:
    """Block them in this thread, so that the main thread gets them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))


class _Alarm:
    __slots__ = ("at", "call")

    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at = at
        self.call: Callable[[], None] | None = call  # None: called off

    def __lt__(self, other: "_Alarm") -> bool:
        return self.at < other.at


class _Alarms:
    """One thread for all leases whose first beat is not due yet: most runs end before that, and need none of their
    own. It ends when it waits for nothing any more."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._changed = Condition()
        self._waiting: list[_Alarm] = []
        self._wakes_at = 0.0  # 0: there is no thread

    def set(self, call: Callable[[], None], seconds: float) -> _Alarm:
        alarm = _Alarm(time.monotonic() + seconds, call)
        with self._changed:
            heappush(self._waiting, alarm)
            if not self._wakes_at:
                self._wakes_at = alarm.at
                threading.Thread(target=self._wait, name="takeback-leases", daemon=True).start()
            elif alarm.at < self._wakes_at:
                self._changed.notify()
        return alarm

    def _wait(self) -> None:
        _leave_signals_to_the_main_thread()
        while True:
            with self._changed:
                while self._waiting and self._waiting[0].call is None:
                    heappop(self._waiting)
                if not self._waiting:
                    self._wakes_at = 0.0
                    return
                self._wakes_at = self._waiting[0].at
                left = self._wakes_at - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                call = heappop(self._waiting).call
            if call:
                call()


_of_this_process: list[_Alarms] = []


def _alarms() -> _Alarms:
    """Those of a parent stay behind with its threads when it forks."""
    if not _of_this_process or _of_this_process[0].process != os.getpid():
        _of_this_process[:] = [_Alarms()]
    return _of_this_process[0]


class OwnLock:
    """May be taken again by the thread that has it. An action that uses the run which calls it would wait for itself,
    and gets an error instead.

    User functions are called without it. Each call has a key of its own while it is under way: a second thread that
    asks for the same key waits for the first, and a run waits for all of them before it ends or goes back.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._lock = RLock()
        self._over = Condition(self._lock)
        self._calls: dict[str, int] = {}  # under way: by key, whose thread

    def __enter__(self) -> None:
        refuse_inside_a_call(self._run)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def begin_call(self, key: str) -> None:
        """The lock is held by who asks; it is free while another thread's call with this key is waited for."""
        if self._calls.get(key) == get_ident():
            raise Misuse(
                f"The call with the key {key!r} asks for itself.", hint="Give every call its own key."
            )
        self.wait_for(key)
        self._calls[key] = get_ident()

    def end_calls(self, *keys: str) -> None:
        with self._lock:
            for key in keys:
                del self._calls[key]
            self._over.notify_all()

    def wait_for(self, key: str) -> None:
        """Until no other thread's call with this key is under way."""
        with self._lock:
            while self._calls.get(key, get_ident()) != get_ident():
                self._over.wait()

    def wait_for_calls(self) -> None:
        """Until none of another thread is under way; the lock is held by who asks."""
        while self.others:
            self._over.wait()

    @property
    def under_way(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._calls)

    @property
    def others(self) -> bool:
        """Whether a call of another thread is under way."""
        return any(thread != get_ident() for thread in tuple(self._calls.values()))


_WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruptions:
    """Holds a signal back while an effect is being made, and raises it the moment that one is settled.

    Only in the main thread, and only if no other handler is installed: a framework that handles SIGTERM keeps doing so.
    """

    def __init__(self) -> None:
        self.arrived = 0
        self._waiting = False
        self._busy = 0
        self._meant = 0
        self._users = 0
        self._before: dict[int, Any] = {}

    def watch(self) -> None:
        self._users += 1
        if self._users > 1 or not _is_main():
            return
        for number in _WATCHED:
            current = _handler_of(number)
            if current in (signal.SIG_DFL, signal.default_int_handler):
                self._before[number] = signal.signal(number, self._note)

    def release(self) -> None:
        self._users -= 1
        if self._users:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    @contextmanager
    def held_back(self) -> Generator[None, None, None]:
        """A signal is for the main thread: what another one is making is waited for when its run ends."""
        if not _is_main():
            yield
            return
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            if self._waiting and not self._busy:
                self._raise()

    def give_way(self) -> None:
        """Within `held_back`, while nothing was begun yet: raises what has arrived. Not if someone further out holds it
        back, too: what they are at is more than this one effect."""
        if self._waiting and self._busy == 1 and _is_main():
            self._raise()

    def hear(self, number: int) -> None:
        """Another thread got it; pass it to the main thread, which may be waiting."""
        self._meant = number
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, signal.SIGTERM)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.arrived, self._meant = self._meant or number, 0
        self._waiting = True
        if not self._busy:
            self._raise()

    def _raise(self) -> None:
        """Once for each: what is done because of it is not interrupted by it again."""
        self._waiting = False
        if self.arrived == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + self.arrived)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def held_back() -> Generator[None, None, None]:
    """A signal that arrives in the block, also before a run in it has begun to listen, is raised when it is left."""
    signals = shared()
    signals.watch()
    try:
        with signals.held_back():
            yield
    finally:
        signals.release()


def shared() -> Interruptions:
    """The one that is already watching in this process, or a new one: runs may be nested."""
    for number in _WATCHED:
        owner = getattr(_handler_of(number), "__self__", None)
        if isinstance(owner, Interruptions):
            return owner
    return Interruptions()
