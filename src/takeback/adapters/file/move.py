"""Move and move back: a rename, which brings along whatever is inside; told by identity, never by content.

The moved thing never gets a scratch name, because its content is in no store. Something it replaces is captured, and
sits for a moment under the other name.
"""

import os
from typing import NamedTuple

from takeback.adapters.file.build import Tools, mount_of
from takeback.adapters.file.directory import (
    EXTRA,
    PATH,
    TYPE,
    ReadScope,
    Row,
    SeenDirectory,
    extra,
    read_manifest,
)
from takeback.adapters.file.kernel import exchange, rename_new
from takeback.adapters.file.look import look, look_closely
from takeback.adapters.file.paths import Place, Scratch
from takeback.adapters.file.remove import is_captured
from takeback.adapters.file.states import ABSENT, FileState, difference, lasting, same, same_inode
from takeback.adapters.file.swap import AGAIN, bring, drifted
from takeback.errors import Drifted, NoRemedy, VerifyFailed
from takeback.model.effect import Effect
from takeback.model.remedy import Target
from takeback.model.resource import display

# A move to another filesystem: no rename leads there, so it is copied, read again, and only then removed
# where it was.
#
# It is an effect with two targets and nothing of its own: what appears comes first, what goes comes last,
# there and back. So a crash at any moment leaves one of them whole in the world, and both in the store.


ACROSS = "across"  # in the payload of a move's remedy, and of the remedies of its undo and redo


def is_across(old: Place, new: Place) -> bool:
    """Also between two mounts of one filesystem: the kernel does not rename there either."""
    return os.fstat(old.fd).st_dev != os.fstat(new.fd).st_dev or mount_of(old.fd) != mount_of(new.fd)


def goes_across(effect: Effect) -> bool:
    return effect.remedy is not None and ACROSS in effect.remedy.payload


def across_targets(old: str, new: str, what: FileState, replaced: FileState) -> list[Target]:
    # The copy is a file of its own: other names of the old one stay behind, and come together again by undo.
    apart = ("held", "holds", "apart")
    copy = {key: value for key, value in lasting(what).items() if key not in apart}
    return [Target(new, replaced, copy), Target(old, what, {"type": "absent"})]


def demand_exact(place: Place, goal: FileState, tools: Tools) -> None:
    """The copy is read again, times and all, before the original goes: a filesystem may have kept less than it got."""
    sight = look_closely(place, goal, ReadScope())
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
        hint="The source is unchanged. The other filesystem may not support everything that the file has.",
    )


class FileMove(NamedTuple):
    """Of one effect: the two names, what moves, and what it replaces."""

    old: str
    new: str
    what: FileState  # an identity
    replaced: FileState
    back: bool  # the effect itself goes from the new name to the old one: it undoes a move


def move_of(effect: Effect) -> FileMove | None:
    assert effect.remedy
    if "move" not in effect.remedy.payload:
        return None
    one, other = effect.remedy.targets
    if effect.remedy.payload["move"] == "back":
        return FileMove(one.resource, other.resource, one.after, other.after, True)
    return FileMove(one.resource, other.resource, one.before, other.before, False)


def move_targets(move: FileMove) -> tuple[Target, Target]:
    """The target of the old name, then of the new one."""
    if move.back:
        return Target(move.old, ABSENT, move.what), Target(move.new, move.what, move.replaced)
    return Target(move.old, move.what, ABSENT), Target(move.new, move.replaced, move.what)


def go(
    old: Place, new: Place, names: Scratch, move: FileMove, tools: Tools, seen: SeenDirectory | None
) -> None:
    """From the old name to the new one. Twice is once."""
    there, here = look(new, move.what), look(old, move.what)
    # If it is there already, only scratch of a killed one can be left.
    is_there = _is(there, move.what) and here["type"] == "absent"
    if not is_there and not halfway(old, new, move, here, there):
        _demand(old, here, move.what)
        if move.replaced["type"] == "absent":
            _rename(old, new, move)
            return
        _demand(new, look(new, move.replaced), move.replaced)
        _exchange(old, new, move)
        if not is_captured(old, move.replaced, tools.blobs, seen):
            found = look(old)
            _exchange(old, new, move)
            raise drifted(new, move.replaced, found)
    if move.replaced["type"] != "absent":
        bring(old, names, move.replaced, ABSENT, tools, seen=seen)


def come_back(old: Place, new: Place, names: Scratch, move: FileMove, tools: Tools) -> None:
    """From the new name to the old one. Twice is once."""
    there, here = look(new, move.what), look(old, move.what)
    if move.replaced["type"] == "absent":
        if there["type"] == "absent" and _is(here, move.what):
            return
        _demand(new, there, move.what)
        if here["type"] != "absent":
            raise drifted(old, ABSENT, here)
        _rename(new, old, move)
        return
    if not halfway(old, new, move, here, there):
        if _is(here, move.what) and same(look(new, move.replaced), move.replaced):
            return
        _demand(new, there, move.what)
        bring(old, names, ABSENT, move.replaced, tools)
    _exchange(old, new, move)


def halfway(old: Place, new: Place, move: FileMove, here: FileState, there: FileState) -> bool:
    """Exchanged: what moves has the new name, and what it replaces still has the old one."""
    if move.replaced["type"] == "absent" or here["type"] == "absent":
        return False
    if not same_inode(there, move.what) or same_inode(here, move.what):
        return False
    return same(look(old, move.replaced), move.replaced)


def _is(found: FileState, what: FileState) -> bool:
    return found["type"] != "absent" and same(found, what)


def _demand(place: Place, found: FileState, expected: FileState) -> None:
    if not same(found, expected):
        raise drifted(place, expected, found)


def _rename(source: Place, goal: Place, move: FileMove) -> None:
    try:
        rename_new(source.fd, source.name, goal.fd, goal.name)
    except FileExistsError:
        raise Drifted(f"Something is now at {display(goal.resource)}.", hint=AGAIN) from None
    found = look(goal, move.what)
    if not same(found, move.what):
        rename_new(goal.fd, goal.name, source.fd, source.name)
        raise drifted(source, move.what, found)


def _exchange(old: Place, new: Place, move: FileMove) -> None:
    if not exchange(old.fd, old.name, new.fd, new.name):
        raise NoRemedy(
            f"The filesystem of {display(new.resource)} cannot replace a file by a move in one step.",
            hint="Delete the target first, then move without replacing.",
        )
