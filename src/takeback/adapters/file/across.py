"""A move to another filesystem: no rename leads there, so it is copied, read again, and only then removed where it was.

It is an effect with two targets and nothing of its own: what appears comes first, what goes comes last, there and back.
So a crash at any moment leaves one of them whole in the world, and both in the store.
"""

import os

from takeback.adapters.file.build import Tools
from takeback.adapters.file.hold import mount_of
from takeback.adapters.file.look import look_closely
from takeback.adapters.file.manifest import EXTRA, PATH, TYPE, Row, extra, read_manifest
from takeback.adapters.file.paths import Place
from takeback.adapters.file.states import State, difference, lasting, same
from takeback.adapters.file.tree import Scope
from takeback.errors import VerifyFailed
from takeback.model.effect import Effect
from takeback.model.remedy import Target
from takeback.model.resource import display

ACROSS = "across"  # in the payload of a move's remedy, and of the remedies of its undo and redo


def is_across(old: Place, new: Place) -> bool:
    """Also between two mounts of one filesystem: the kernel does not rename there either."""
    return os.fstat(old.fd).st_dev != os.fstat(new.fd).st_dev or mount_of(old.fd) != mount_of(new.fd)


def goes_across(effect: Effect) -> bool:
    return effect.remedy is not None and ACROSS in effect.remedy.payload


def across_targets(old: str, new: str, what: State, replaced: State) -> list[Target]:
    # The copy is a file of its own: other names of the old one stay behind, and come together again by undo.
    apart = ("held", "holds", "apart")
    copy = {key: value for key, value in lasting(what).items() if key not in apart}
    return [Target(new, replaced, copy), Target(old, what, {"type": "absent"})]


def demand_exact(place: Place, goal: State, tools: Tools) -> None:
    """The copy is read again, times and all, before the original goes: a filesystem may have kept less than it got."""
    sight = look_closely(place, goal, Scope())
    found = sight.state
    if not same(found, goal):
        raise _inexact(place, difference(goal, found))
    if sight.seen is not None:
        odd = _first_odd(read_manifest(tools.blobs, goal["manifest"]), sight.seen.rows)
        if odd:
            raise _inexact(place, f"differs in {odd}")
    if found["mtime"] != goal["mtime"]:
        raise _inexact(place, "has another time of change")


def _first_odd(wanted: list[Row], found: list[Row]) -> str:
    if len(wanted) != len(found):
        return f"the number of its entries ({len(found):,} instead of {len(wanted):,})"
    for one, other in zip(wanted, found, strict=True):
        if one[:EXTRA] != other[:EXTRA]:
            return display(one[PATH])
        if one[TYPE] != "link" and extra(one).get("xattrs") != extra(other).get("xattrs"):
            return display(one[PATH])
    return ""


def _inexact(place: Place, how: str) -> VerifyFailed:
    return VerifyFailed(
        f"The copy at {display(place.resource)} is not exact: it {how}.",
        hint="What was to be moved stays where it was. The other filesystem may keep less of a file than this one.",
    )
