"""Files that someone else is about to change, by their names: their state now, and later what became of it."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from takeback.adapters.file.directory import ReadScope
from takeback.adapters.file.os_errors import translated
from takeback.adapters.file.states import ABSENT, FileState, same
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import is_dir, see
from takeback.adapters.watch.other_effects import steps_of
from takeback.adapters.watch.subtract import without
from takeback.errors import Misuse
from takeback.model.change import Change
from takeback.model.effect import Effect
from takeback.model.remedy import Target
from takeback.model.resource import file_resource
from takeback.storage.protocols import Blobs

FILES = "files"  # in the arguments of a change: by resource, its state then


def resources_of(paths: Iterable["str | bytes | os.PathLike[str]"]) -> list[str]:
    """Of each path: the name itself, the file that a link there leads to, the directories that are still missing on the
    way and the one around these. Outermost first."""
    found: dict[str, None] = {}
    for path in paths:
        name = os.path.abspath(os.fsencode(path))
        if os.path.isdir(name):
            raise Misuse(f"{os.fsdecode(name)} is a directory.", hint="Name the files in it.")
        direct = os.path.join(os.path.realpath(os.path.dirname(name)), os.path.basename(name))
        for one in dict.fromkeys((direct, os.path.realpath(name))):
            found[file_resource(_there(one))] = None  # its time moves when a name in it comes or goes
            found |= dict.fromkeys(file_resource(above) for above in reversed(list(_missing(one))))
            found[file_resource(one)] = None
    return list(found)


def _there(path: bytes) -> bytes:
    """The innermost directory around it that is there."""
    above = os.path.dirname(path)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    return above


def _missing(path: bytes) -> Iterator[bytes]:
    """Innermost first."""
    above = os.path.dirname(path)
    while not os.path.lexists(above):
        yield above
        above = os.path.dirname(above)


def states_of(resources: Sequence[str], blobs: Blobs, limit: int) -> dict[str, FileState]:
    """Their content is in the store when this returns."""
    scope = ReadScope(blobs, limit)
    found: dict[str, FileState] = {}
    with Places() as places:
        for resource in resources:
            with translated(resource):
                place = places.if_there(resource)
                found[resource] = see(place, ABSENT, scope) if place else ABSENT
    return found


def bytes_at(resources: Sequence[str]) -> int:
    """What capturing them would add to the store, at most."""
    with Places() as places:
        seen = [place.stat() for one in resources if (place := places.if_there(one))]
    return sum(status.st_size for status in seen if status)


def changed_since(
    change: Change, blobs: Blobs, limit: int, others: Sequence[Effect] = ()
) -> tuple[Target, ...]:
    """What became of them since; `others`: effects recorded in between."""
    before: dict[str, FileState] = dict(change.args[FILES])
    now = states_of(list(before), blobs, limit)
    targets = tuple(
        Target(resource, before[resource], now[resource])
        for resource in before
        if _differs(before[resource], now[resource])
    )
    return without(targets, steps_of(others), change.args["roots"], blobs) if others else targets


def _differs(before: FileState, now: FileState) -> bool:
    """Of a directory that was there only its time is part of this: what else is in it is others'."""
    if is_dir(before):
        return is_dir(now) and same(before, now) and before.get("mtime") != now.get("mtime")
    return not same(before, now)


def recorded(states: dict[str, FileState]) -> list[list[Any]]:
    return [[resource, state] for resource, state in states.items()]
