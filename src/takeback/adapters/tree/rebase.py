"""A change that waited for a person meets a world that has moved on: what is at each path now is what it was before."""

import os
import stat
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from takeback.adapters.file.directory import ReadScope
from takeback.adapters.file.os_errors import translated
from takeback.adapters.file.states import ABSENT
from takeback.adapters.tree.git.layout import with_meaning
from takeback.adapters.tree.hard_links import is_joined, is_unchanged
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import is_dir, is_excluded, see
from takeback.adapters.tree.targets import in_order
from takeback.model.remedy import Target
from takeback.model.resource import ancestors, display, path_of, quote
from takeback.storage.protocols import Blobs


class Hindrance(NamedTuple):
    """Why a path cannot be changed, whatever may be overwritten."""

    resource: str
    why: str
    by_hand: str  # what a person can do about it


def hindrance(targets: Iterable[Target]) -> Hindrance | None:
    """The first that is found. Looks, and changes nothing."""
    by_name = {one.resource: one for one in targets if not is_excluded(one.before, one.after)}
    with Places(list(by_name.values())) as places:
        for _, target in in_order(by_name.values()):
            with translated(target.resource):
                found = _without_directory(target, by_name, places) or _occupied(target, by_name, places)
            if found:
                return found
    return None


def _without_directory(target: Target, known: Mapping[str, Target], places: Places) -> Hindrance | None:
    above = target.resource.rpartition("/")[0]
    if target.after["type"] == "absent" or places.within_reach(target.resource):
        return None
    if any(is_dir(known[one].after) for one in (above, *ancestors(above)) if one in known):
        return None  # it comes too
    name, found = _missing(above)
    return Hindrance(target.resource, f"cannot be written: {name} {found}", f"Put the directory {name} back")


def _missing(directory: str) -> tuple[str, str]:
    """Of the directories on the way to it the first that is not there, and how it is found."""
    for one in (*reversed(tuple(ancestors(directory))), directory):
        path = path_of(one)
        if os.path.islink(path):
            return display(one), "is now a symbolic link"
        if not os.path.isdir(path):
            return display(one), "is no directory any more" if os.path.lexists(path) else "is gone"
    return display(directory), "cannot be reached"


def _occupied(target: Target, known: Mapping[str, Target], places: Places) -> Hindrance | None:
    """A directory that is to go, with something in it that is not the change's to remove."""
    place = places.within_reach(target.resource)
    status = place.stat() if place else None
    if place is None or status is None or not stat.S_ISDIR(status.st_mode):
        return None
    if is_dir(target.after) or "unit" in target.before:
        return None
    inside = (f"{target.resource}/{quote(name)}" for name in sorted(places.names_in(place)))
    strange = next((one for one in inside if one not in known or known[one].after["type"] != "absent"), "")
    if not strange:
        return None
    verb = "removed" if target.after["type"] == "absent" else "replaced"
    return Hindrance(
        target.resource,
        f"cannot be {verb}: it is a directory and holds {display(strange)}",
        f"Move away {display(strange)}",
    )


def renewed(blobs: Blobs, targets: Iterable[Target]) -> tuple[Target, ...]:
    """The same paths with their present state as `before`, contents in the store; without paths that are in their final
    state already."""
    listed = list(targets)
    found: list[Target] = []
    with Places(listed) as places:
        for _, target in in_order(listed):
            if is_excluded(target.before, target.after):
                found.append(target)
                continue
            with translated(target.resource):
                place = places.if_there(target.resource)
                before = see(place, ABSENT, ReadScope(blobs)) if place else ABSENT
            twin: str = target.before.get("twin", "")
            if twin and is_joined(target.resource, twin, places):
                before = before | {"twin": twin}
            now = target._replace(before=before)
            if not is_unchanged(now):
                found.append(now)
    return tuple(with_meaning(found, blobs))
