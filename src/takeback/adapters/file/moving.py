"""Move and move back: a rename, which brings along whatever is inside; told by identity, never by content.

The moved thing never gets a scratch name, because its content is in no store. Something it replaces is captured, and
sits for a moment under the other name.
"""

from typing import NamedTuple

from takeback.adapters.file.build import Tools
from takeback.adapters.file.custody import is_captured
from takeback.adapters.file.kernel import exchange, rename_new
from takeback.adapters.file.look import look
from takeback.adapters.file.paths import Place
from takeback.adapters.file.scratch import Scratch
from takeback.adapters.file.states import ABSENT, State, same, same_inode
from takeback.adapters.file.swap import AGAIN, bring, drifted
from takeback.adapters.file.tree import Seen
from takeback.errors import Drifted, NoRemedy
from takeback.model.effect import Effect
from takeback.model.remedy import Target
from takeback.model.resource import display


class Move(NamedTuple):
    """Of one effect: the two names, what moves, and what it replaces."""

    old: str
    new: str
    what: State  # an identity
    replaced: State
    back: bool  # the effect itself goes from the new name to the old one: it undoes a move


def move_of(effect: Effect) -> Move | None:
    assert effect.remedy
    if "move" not in effect.remedy.payload:
        return None
    one, other = effect.remedy.targets
    if effect.remedy.payload["move"] == "back":
        return Move(one.resource, other.resource, one.after, other.after, True)
    return Move(one.resource, other.resource, one.before, other.before, False)


def move_targets(move: Move) -> tuple[Target, Target]:
    """The target of the old name, then of the new one."""
    if move.back:
        return Target(move.old, ABSENT, move.what), Target(move.new, move.what, move.replaced)
    return Target(move.old, move.what, ABSENT), Target(move.new, move.replaced, move.what)


def go(old: Place, new: Place, names: Scratch, move: Move, tools: Tools, seen: Seen | None) -> None:
    """From the old name to the new one. Twice is once."""
    there, here = look(new, move.what), look(old, move.what)
    if _is(there, move.what) and here["type"] == "absent":
        _remove_replaced(old, names, move, tools, seen)  # only scratch of a killed one can be left
        return
    if not halfway(old, new, move, here, there):
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
    _remove_replaced(old, names, move, tools, seen)


def come_back(old: Place, new: Place, names: Scratch, move: Move, tools: Tools) -> None:
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


def halfway(old: Place, new: Place, move: Move, here: State, there: State) -> bool:
    """Exchanged: what moves has the new name, and what it replaces still has the old one."""
    if move.replaced["type"] == "absent" or here["type"] == "absent":
        return False
    if not same_inode(there, move.what) or same_inode(here, move.what):
        return False
    return same(look(old, move.replaced), move.replaced)


def _remove_replaced(old: Place, names: Scratch, move: Move, tools: Tools, seen: Seen | None) -> None:
    if move.replaced["type"] != "absent":
        bring(old, names, move.replaced, ABSENT, tools, seen=seen)


def _is(found: State, what: State) -> bool:
    return found["type"] != "absent" and same(found, what)


def _demand(place: Place, found: State, expected: State) -> None:
    if not same(found, expected):
        raise drifted(place, expected, found)


def _rename(source: Place, goal: Place, move: Move) -> None:
    try:
        rename_new(source.fd, source.name, goal.fd, goal.name)
    except FileExistsError:
        raise Drifted(f"Something is now at {display(goal.resource)}.", hint=AGAIN) from None
    found = look(goal, move.what)
    if not same(found, move.what):
        rename_new(goal.fd, goal.name, source.fd, source.name)
        raise drifted(source, move.what, found)


def _exchange(old: Place, new: Place, move: Move) -> None:
    if not exchange(old.fd, old.name, new.fd, new.name):
        raise NoRemedy(
            f"The filesystem of {display(new.resource)} cannot replace a file by a move in one step.",
            hint="Delete what is there first, then move without replacing.",
        )
