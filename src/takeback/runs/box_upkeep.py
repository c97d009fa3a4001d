"""What a box does beside its commands: old layers are squashed, dropped ones removed."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from takeback.errors import TakebackError
from takeback.storage.layers import Layers

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor


class Upkeep:
    """One thread, started when there is something to do; nothing that depends on it waits for it."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._last: Future[object] | None = None
        self._failed: TakebackError | None = None

    def later(self, work: Callable[[], object]) -> None:
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(1, "takeback-box")
        self._last = self._threads.submit(_quietly, work)

    def settle(self, layers: Layers, box: str) -> None:
        """Have what was told of written to the disk."""

        def work() -> None:
            try:
                layers.settle(box)
            except TakebackError as error:
                self._failed = error

        self.later(work)

    def complain(self) -> None:
        """What could not be written in the background is told with the next call."""
        failed, self._failed = self._failed, None
        if failed:
            raise failed

    def wait(self) -> None:
        if self._last is not None:
            self._last.result()

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None


def _quietly(work: Callable[[], object]) -> None:
    """What could not be done is done by the next sweep, or not needed: every layer is still there."""
    with suppress(OSError, TakebackError):
        work()


def remove_layer(path: str, base: str) -> None:
    from takeback.sandbox.as_owner import remove_as_owner

    remove_as_owner(path, base)


def clear_scratch(layers: Layers, box: str) -> int:
    """What killed processes left in a box; only while nobody else has it open, or a squash in the making would go."""
    count = 0
    for path in list(layers.scratch(box)):
        with suppress(OSError):
            remove_layer(path, layers.base_of(box))
            count += 1
    return count
