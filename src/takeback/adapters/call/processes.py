"""What calls need to know of processes; the store knows how to find out."""

from collections.abc import Callable
from typing import NamedTuple

from takeback.model.run import Owner


class Processes(NamedTuple):
    """Who we are, and whether someone else still lives; None where that cannot be seen from here."""

    myself: Callable[[], Owner]
    alive: Callable[[Owner], bool | None]
    # The lease of that run is ours for so many seconds from now, or LeaseLost: asked before each further try.
    hold: Callable[[str, float], None] = lambda run, seconds: None
    # Whether modules that only the journal names may be imported: a store from elsewhere could name any.
    trusted: Callable[[], bool] = lambda: True
