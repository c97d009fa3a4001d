"""Where watches keep what they need of a tree, and when that goes."""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.errors import Misuse
from takeback.model.effect import State
from takeback.model.settings import DAY, Settings
from takeback.runs.core import RunCore
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.adapters.watch.scan import Bounds
    from takeback.adapters.watch.watched_root import Baseline, WatchedRoot, WatchPlace
    from takeback.engine.parts import Parts

Paths = Sequence[str | bytes | os.PathLike[str]]

ADAPTER = "tree"
UNUSED = DAY  # after that the copy of a tree that was kept for the next watch of it is dropped


class Manner(NamedTuple):
    """How a watch differs from one that begins and ends in one `with` block."""

    key: str = ""  # any process can end it by this, or continue it
    late: bool = False  # proposed when it ends, and only if something was found: nothing is known of a call
    whole: bool = False  # also what the project ignores and could make again
    fresh: bool = False  # nothing in the journal has the key
    doubts: bool = False  # what someone else may have changed too, undo leaves unless it is named
    # Words before the summary: the command itself works elsewhere, so what is found is not its own.
    beside: str = ""


def place_of(parts: "Parts") -> "WatchPlace":
    from takeback.adapters.watch.watched_root import WatchPlace
    from takeback.engine.parts import adapter_of

    place = getattr(adapter_of(parts, ADAPTER), "place", None)
    if not isinstance(place, WatchPlace):
        raise Misuse("This store cannot watch directories.", hint="Use a store on disk.")
    return place._replace(room=parts.refuse_without_room, blobs=parts.blobs)


def tree_of(core: RunCore, root: Any, place: "WatchPlace") -> "WatchedRoot":
    """A root that is watched again in the same run is followed by the kernel's own reports, so that only what changed
    is looked at."""
    from takeback.adapters.watch.index import index_name
    from takeback.adapters.watch.inotify import open_feed
    from takeback.adapters.watch.watched_root import WatchedRoot

    name = index_name(root.resource, root.whole)
    watched = core.trees.get(name)
    if watched is None:
        watched = core.trees[name] = WatchedRoot(root, place._replace(makers=core.makers))
        watched.follow(open_feed(root, again=False))
    elif watched.feed is None:
        watched.follow(open_feed(root, again=True, crowded=watched.crowded))
    return watched


def roots_to_watch(core: RunCore, named: Paths, any_root: bool, whole: bool) -> "Iterator[WatchedRoot]":
    """Of these directories, before the look with which a watch begins."""
    from takeback.adapters.watch.index import index_name
    from takeback.adapters.watch.roots import refuse_dangerous, roots_of

    place = place_of(core.parts)
    roots = [one._replace(whole=whole) for one in roots_of(named)]
    refuse_dangerous(roots, place.store, any_root)
    # Of what lies elsewhere in the store, once in a run is enough.
    names = [index_name(one.resource, one.whole) for one in roots]
    release_dead(core.parts, place, names if core.trees else None)
    return (tree_of(core, root, place) for root in roots)


def bounds_of(settings: Settings, any_root: bool) -> "Bounds":
    from takeback.adapters.watch.scan import Bounds

    bounds = Bounds(capture=settings.max_capture_bytes)
    if any_root:
        return bounds
    return bounds._replace(entries=settings.watch_entries, bytes=settings.watch_bytes)


def left_late(
    core: RunCore, roots: Paths, key: str, whole: bool
) -> "tuple[list[tuple[WatchedRoot, Baseline]], int] | None":
    """What a process that has died followed between two calls: its index says from where."""
    from takeback.adapters.watch.adapter import baselines_of
    from takeback.adapters.watch.roots import roots_of
    from takeback.adapters.watch.watched_root import Baseline

    found: list[tuple[WatchedRoot, Baseline]] = []
    since = 0
    # A call that has not ended may have taken over the claim, or will record again what it was for.
    calls = list(core.parts.journal.effects(Query(states=(State.PROPOSED,))))
    taken = {one.token for call in calls for one in baselines_of(call.change)}
    still = {call.id for call in calls}
    for root in (one._replace(whole=whole) for one in roots_of(roots)):
        watched = tree_of(core, root, place_of(core.parts))
        # The newest counts: one before it was for a call that has ended, and was not released any more.
        known = reversed(watched.index.watches() if watched.index.exists() else ())
        late = [one for one in known if one.owner.get("late") == key and one.token not in taken]
        begun = next((one for one in late if one.owner.get("after") not in still), None)
        if over := [one.token for one in late if one is not begun]:
            watched.index.release(over)
        if begun:
            after = begun.owner.get("after")
            ended = next(core.parts.journal.effects(Query(ids=(after,))), None) if after else None
            since = max(begun.owner["since"], ended.told if ended else 0)
            where = root.resource, watched.index.name, begun.generation, begun.token
            found.append((watched, Baseline(*where)))
    return (found, since) if found else None


def release_dead(parts: "Parts", place: "WatchPlace", names: "Sequence[str] | None" = None) -> None:
    """Watches that were registered by processes which died before they could propose anything; in these indexes only,
    if some are named."""
    from takeback.adapters.watch.adapter import baselines_of
    from takeback.adapters.watch.index import Index, indexes_in
    from takeback.adapters.watch.processes import lives
    from takeback.model.effect import OPEN_STATES

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
