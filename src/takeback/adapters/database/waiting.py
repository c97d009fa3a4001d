"""How long our own connections wait for what somebody else has locked."""

from collections.abc import Callable
from typing import NamedTuple

SECONDS = 10


def _silently(words: str) -> None:
    """Nobody listens."""


class Waiting(NamedTuple):
    """A statement waits as any client does, except for what takeback itself holds for a decision: that has no end by
    itself. An undo waits for nobody longer than this."""

    seconds: int = SECONDS  # 0: no limit
    tell: Callable[[str], None] = _silently  # for a person, while it waits


USUAL = Waiting()
