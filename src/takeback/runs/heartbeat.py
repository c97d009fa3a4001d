"""A lease stays ours as long as we live: renewed in the background, for those who cannot see our process."""

import signal
import threading
from collections.abc import Callable

from takeback.errors import TakebackError
from takeback.model.run import Lease
from takeback.storage.protocols import Leases


class Heartbeat:
    def __init__(self, leases: Leases, lease: Lease, now: Callable[[], int], lasts: int) -> None:
        self._leases = leases
        self._lease = lease
        self._now = now
        self._lasts = lasts
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"takeback-lease-{lease.run}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _beat(self) -> None:
        # Signals are for the main thread, which may have asked not to be told of them.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        while not self._stopped.wait(self._lasts / 3_000_000):
            try:
                self._lease = self._leases.renew(self._lease, self._now(), self._lasts)
            except TakebackError:
                # Lost or unwritable: the next append finds out and says so where someone is listening.
                return
