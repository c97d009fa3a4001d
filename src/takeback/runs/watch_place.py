"""Where watches keep what they need of a tree, and when that goes."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from takeback.errors import Misuse
from takeback.model.settings import DAY

if TYPE_CHECKING:
    from takeback.adapters.watch.watched_root import WatchPlace
    from takeback.engine.parts import Parts

ADAPTER = "tree"
UNUSED = DAY  # after that the copy of a tree that was kept for the next watch of it is dropped


class Manner(NamedTuple):
    """How a watch differs from one that begins and ends in one `with` block."""

    key: str = ""  # any process can end it by this, or continue it
    late: bool = (
        False  # it is proposed when it ends, and only if something was found: nothing is known of a call
    )
    whole: bool = False  # also what the project ignores and could make again
    doubts: bool = False  # what someone else may have changed too, undo leaves unless it is named
    follows: bool = False  # another watch of the same roots has just ended, and looked
    # Words before the summary: the command itself works elsewhere, so what is found is not its own.
    beside: str = ""


def place_of(parts: "Parts") -> "WatchPlace":
    from takeback.adapters.watch.watched_root import WatchPlace
    from takeback.engine.parts import adapter_of

    place = getattr(adapter_of(parts, ADAPTER), "place", None)
    if not isinstance(place, WatchPlace):
        raise Misuse("This store cannot watch directories.", hint="Use a store on disk.")
    return place._replace(room=parts.refuse_without_room, blobs=parts.blobs)


def release_dead(parts: "Parts", place: "WatchPlace", names: "Sequence[str] | None" = None) -> None:
    """Watches that were registered by processes which died before they could propose anything; in these indexes only,
    if some are named."""
    from takeback.adapters.watch.adapter import baselines_of
    from takeback.adapters.watch.index import Index, indexes_in
    from takeback.adapters.watch.processes import lives
    from takeback.model.effect import OPEN_STATES
    from takeback.storage.protocols import Query

    for name in indexes_in(place.directory):
        if names is not None and name not in names:
            continue
        index = place.opened.get(name) or Index(place.directory, name)
        try:
            dead = [watch.token for watch in index.watches() if not lives(watch.owner)]
            if dead:
                effects = parts.journal.effects(Query(states=OPEN_STATES))
                needed = {one.token for effect in effects for one in baselines_of(effect.change)}
                index.release([token for token in dead if token not in needed])
        finally:
            if index is not place.opened.get(name):
                index.close()


def any_unused(store: str, now: float) -> bool:
    """Whether a sweep would drop some. Asked at the end of each run, so that nothing is loaded where there are none."""
    directory = os.path.join(store, "watch")
    if not os.path.isdir(directory):
        return False
    from takeback.adapters.watch.index import last_used

    return any(used < now - UNUSED for used in last_used(directory))


def drop_unused(parts: "Parts", before: float) -> int:
    """Remove indexes of directories that are gone, or not watched since that time; a new watch starts from nothing. How
    many bytes were freed; the contents are freed by the sweep that follows."""
    from takeback.adapters.watch.index import Index, indexes_in
    from takeback.model.resource import path_of

    try:
        place = place_of(parts)
    except Misuse:
        return 0
    release_dead(parts, place)

    def unused(root: str, used: float) -> bool:
        return used < before or bool(root and not os.path.isdir(path_of(root)))

    return sum(Index(place.directory, name).drop(unused) for name in indexes_in(place.directory))
