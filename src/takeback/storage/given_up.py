"""A note beside the store of ways back, and of drops, that were given up by policy, until a person was told.

It is written before they are forgotten, so that a kill in between loses no line. So it may name effects that were not
forgotten after all: whoever shows it asks the journal.
"""

import json
import os
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from takeback.storage import disk

NAME = "GIVEN_UP"
_MOST = 1_000  # effects that the note names; the journal has them all


class Bound(StrEnum):
    """What was reached, so that a way back was given up; the value is in the record."""

    TIME = "time"
    STORE = "store"  # it is over its cap
    DISK = "disk"  # too little is free
    VERSIONS = "versions"  # of one file
    DROPS = "drops"  # too many of a project
    DROPPED = "dropped"  # too many bytes of them

    @property
    def setting(self) -> str:
        """The one that moves the limit."""
        return _SETTINGS[self]


_SETTINGS = {
    Bound.TIME: "accepted_seconds",
    Bound.STORE: "store_bytes",
    Bound.DISK: "free_bytes",
    Bound.VERSIONS: "versions_per_file",
    Bound.DROPS: "dropped_most",
    Bound.DROPPED: "dropped_bytes",
}


class GivenUp(NamedTuple):
    effect: str
    bound: Bound
    at: int  # when the effect was made
    limit: int  # the number that was reached: seconds, bytes or versions


def untold(path: str) -> tuple[GivenUp, ...]:
    try:
        with open(os.path.join(path, NAME), encoding="utf-8") as file:
            return tuple(GivenUp(one[0], Bound(one[1]), int(one[2]), int(one[3])) for one in json.load(file))
    except (OSError, ValueError, TypeError, IndexError):
        return ()  # only a note: the records tell as well


def note(path: str, more: Iterable[GivenUp]) -> None:
    known = {one.effect: one for one in (*untold(path), *more)}
    text = json.dumps([list(one) for one in list(known.values())[-_MOST:]])
    disk.write_file(os.path.join(path, NAME), text.encode() + b"\n")


def was_told(path: str, effects: Iterable[str]) -> None:
    """A person has read of these."""
    told = set(effects)
    if left := [one for one in untold(path) if one.effect not in told]:
        disk.write_file(os.path.join(path, NAME), json.dumps([list(one) for one in left]).encode() + b"\n")
    elif os.path.lexists(os.path.join(path, NAME)):
        disk.remove(os.path.join(path, NAME))
