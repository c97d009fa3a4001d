"""Directories in which git keeps its objects. Such a file is never written a second time: its name says what is in it.

So at the beginning of a watch the names are enough, where these are as they were. At its end every file is looked at.
"""

import re
from collections.abc import Callable

from takeback.adapters.watch.listings import ListingEntry, Row, entries_of, folders_of, names_of

_CTIME = ListingEntry._fields.index("ctime")
_PLACE = re.compile(r"(?P<home>(?:.+/)?)objects/(?P<fan>pack|[0-9a-f]{2})")
_LOOSE = re.compile(rb"(?:[0-9a-f]{38}(?:[0-9a-f]{24})?(?:\0|$))*")
_PACKS = re.compile(rb"(?:pack-[0-9a-f]+\.[a-z]+(?:\0|$))*")


def only_objects(path: str, row: Row, known: Callable[[str], Row | None]) -> bool:
    """Whether nothing but objects is in this directory, and it is in a git directory."""
    place = _PLACE.fullmatch(path)
    if place is None or row.folders or row.extras or any(not entry[_CTIME] for entry in entries_of(row)):
        return False  # what was too young to tell is looked at
    if not (_PACKS if place["fan"] == "pack" else _LOOSE).fullmatch(row.names):
        return False
    home = known(place["home"].removesuffix("/"))
    return (
        home is not None and b"HEAD" in names_of(home) and {b"objects", b"refs"}.issubset(folders_of(home))
    )
