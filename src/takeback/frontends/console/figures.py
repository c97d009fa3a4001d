"""SlowFigures that take long: worked out beside, shown with their age."""

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

_STALE = 300  # seconds


class Figure(NamedTuple):
    value: Any
    at: float  # seconds since 1970
    took: float

    @property
    def age(self) -> int:
        return max(0, int(time.time() - self.at))


class SlowFigures:
    def __init__(self) -> None:
        self._known: dict[str, Figure] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def known(self, name: str) -> Figure | None:
        return self._known.get(name)

    def figure(self, name: str, work: Callable[[], Any], afresh: bool = False) -> Figure:
        """The one that is known, unless it is old; two that ask at once wait for one answer."""
        asked = time.time()
        with self._lock:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            known = self._known.get(name)
            if known and (known.at >= asked or (known.age < _STALE and not afresh)):
                return known
            began = time.time()
            value = work()
            made = Figure(value, time.time(), time.time() - began)
            self._known[name] = made
            return made
