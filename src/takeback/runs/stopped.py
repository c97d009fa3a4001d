"""A stop while a command runs: it is ended, and what it had changed is taken back."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from takeback.engine.drop import Final
from takeback.engine.stop import stop_of
from takeback.errors import Stopped, TakebackError
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.runs.commands.outcome import why_final
from takeback.runs.core import RunCore

_EVERY = 0.2  # seconds


@contextmanager
def ended_by_stop(core: RunCore, end: Callable[[], None]) -> Iterator[None]:
    """Calls `end`, in another thread, when a stop comes that concerns the run before the block is left."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_EVERY):
            with suppress(TakebackError):  # a store that cannot be asked now
                if stop_of(core.parts, core.agent, core.id):
                    end()
                    return

    thread = threading.Thread(target=watch, name=f"takeback-stop-{core.id}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def with_drop(error: Stopped, dropped: Effect | None, final: Final | None) -> Stopped:
    """It says what became of the changes that a command had made until it was ended."""
    lifts = error.way_on
    if dropped is None:
        why = f" for good: {why_final(final)}" if final else ""
        error.hint = f"The command was ended, and what it had changed is dropped{why}. {lifts}"
        return error
    error.effect = dropped.id
    makes = f"`takeback apply {short(dropped.id)}` makes it after all, once the stop is lifted."
    error.hint = f"The command was ended, and what it had changed is dropped. {lifts} {makes}"
    return error
