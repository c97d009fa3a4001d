"""Whoever carried an effect out died, and someone else came between: nothing stays half-changed."""

from collections.abc import Sequence

from takeback.adapters.file.build import Tools
from takeback.adapters.file.scratch import scratch
from takeback.adapters.file.states import same
from takeback.adapters.file.trouble import CannotCapture, translated
from takeback.adapters.tree.adjusting import adjust
from takeback.adapters.tree.grounds import Ground, close_up, open_up
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import Mixture, see
from takeback.adapters.tree.swapping import Swap
from takeback.adapters.tree.units import Unit, units_of
from takeback.errors import Drifted
from takeback.model.remedy import Target


def bring_to_rest(effect: str, targets: Sequence[Target], grounds: Sequence[Ground], tools: Tools) -> None:
    """What was displaced and is someone else's is given back; what is in the store and waits beside goes; an inode
    that got some of its new properties gets its old ones. Each path is before, after, or someone else's then."""
    with Places(targets) as places:
        open_up(grounds, places)
        for unit in reversed(units_of(targets)):  # a directory's own properties after what is in it
            with translated(unit.resource):
                if unit.adjusts:
                    _adjusted_back(unit, places)
                else:
                    _unswapped(effect, unit, places, tools)
        close_up(grounds, places)


def _adjusted_back(unit: Unit, places: Places) -> None:
    place = places.if_there(unit.resource)
    if place is None:
        return
    try:
        now = see(place, unit.start)
    except CannotCapture:
        return
    if same(now, unit.start) or same(now, unit.goal) or not Mixture(unit.start, unit.goal).holds(now):
        return
    adjust(place, unit.goal, unit.start)


def _unswapped(effect: str, unit: Unit, places: Places, tools: Tools) -> None:
    place = places.if_there(unit.resource)
    if place is None:
        return
    swap = Swap(unit, place, scratch(effect, unit.number, place.name), tools)
    try:
        swap.settle()
    except Drifted:
        pass  # what was displaced was someone else's, and is back
    swap.tidy()
