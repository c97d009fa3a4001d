"""A change prepared where nobody sees it, for checks to look at."""

from typing import NamedTuple


class Staged(NamedTuple):
    resource: str
    path: str  # where the staged content can be read; a name beside the target when one was asked for
    content: bytes | None  # when it is small enough to hold
    mode: int
