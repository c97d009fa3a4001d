"""SIGINT, SIGTERM and SIGHUP wait until the effect in hand is settled."""

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruptions:
    """Holds a signal back while an effect is being made, and raises it the moment that one is settled.

    Only in the main thread, and only where nobody else has put a handler of his own: a framework that handles
    SIGTERM itself keeps doing so.
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
            current = signal.getsignal(number)
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
        """Another thread was told of it; the main one, which may be waiting for something, is to know."""
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
        handler: Callable[..., Any] | int | None = signal.getsignal(number)
        owner = getattr(handler, "__self__", None)
        if isinstance(owner, Interruptions):
            return owner
    return Interruptions()
