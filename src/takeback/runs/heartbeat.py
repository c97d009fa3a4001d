"""A lease stays ours as long as we live and get on: renewed in the background, for those who cannot see our process."""

import signal
import threading
from collections.abc import Callable

from takeback.errors import LeaseLost, TakebackError
from takeback.model.boot_clock import since_boot
from takeback.model.ids import short
from takeback.model.run import Lease
from takeback.storage.protocols import Leases

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
        self._thread = threading.Thread(target=self._beat, name=f"takeback-lease-{lease.run}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

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
        # Signals are for the main thread, which may have asked not to be told of them.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        usual = pause = self._lasts / 3 / _SECOND
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
                    # Not now: a server that starts again, a full disk. Whoever appends is told of it.
                    pause = min(usual, _SOON)
