"""The effects around one effect as a picture; the page has them as a list too."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from takeback.api import opened_of
from takeback.errors import TakebackError
from takeback.model.effect import Effect, State
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.api import Takeback

_MOST = 8  # of each side
_WIDE, _HIGH, _GAP = 210, 44, 14


class Neighbours(NamedTuple):
    needs: tuple[Effect, ...]  # it stands on these
    later: tuple[Effect, ...]  # these stand on it
    undo: tuple[Effect, ...]  # what it undoes, and what undid it
    trouble: str = ""  # why it is not known what stands on it

    @property
    def is_empty(self) -> bool:
        return not (self.needs or self.later or self.undo)


class GraphBox(NamedTuple):
    effect: Effect
    x: int
    y: int
    is_middle: bool = False


class Arrow(NamedTuple):
    x1: int
    y1: int
    x2: int
    y2: int


class Picture(NamedTuple):
    boxes: tuple[GraphBox, ...]
    arrows: tuple[Arrow, ...]
    width: int
    height: int
    left_out: int


def neighbours_of(tb: "Takeback", effect: Effect) -> Neighbours:
    from takeback.engine.dependents import dependents
    from takeback.engine.portion import standing

    journal, parts = tb.store.journal, opened_of(tb).parts
    needs = tuple(journal.effects(Query(ids=effect.needs, damaged_too=True))) if effect.needs else ()
    ids = tuple(filter(None, (effect.undoes, effect.undone_by)))
    undo = tuple(journal.effects(Query(ids=ids, damaged_too=True))) if ids else ()
    if effect.state is not State.DONE or effect.forgotten:
        return Neighbours(needs, (), undo)
    try:
        found = {one.id: one for one in dependents(parts, standing(parts, effect))}
    except TakebackError as error:
        return Neighbours(needs, (), undo, str(error))
    return Neighbours(needs, tuple(sorted(found.values(), key=lambda one: one.order)), undo)


def picture(effect: Effect, around: Neighbours) -> Picture:
    """From left to right: what it stands on, itself, what stands on it."""
    sides = (around.needs[:_MOST], (effect,), (*around.later[:_MOST], *around.undo))
    tallest = max(len(one) for one in sides)
    height = tallest * (_HIGH + _GAP) + _GAP
    columns = [side for side in sides if side]
    boxes: list[GraphBox] = []
    for column, side in enumerate(columns):
        boxes += _column(side, _GAP + column * (_WIDE + 3 * _GAP), height, side is sides[1])
    middle = next(one for one in boxes if one.is_middle)
    arrows = tuple(
        Arrow(one.x + _WIDE, one.y + _HIGH // 2, middle.x, middle.y + _HIGH // 2)
        if one.x < middle.x
        else Arrow(middle.x + _WIDE, middle.y + _HIGH // 2, one.x, one.y + _HIGH // 2)
        for one in boxes
        if not one.is_middle
    )
    width = _GAP + len(columns) * (_WIDE + 3 * _GAP) - 2 * _GAP
    left_out = max(0, len(around.needs) - _MOST) + max(0, len(around.later) - _MOST)
    return Picture(tuple(boxes), arrows, width, height, left_out)


def _column(effects: Sequence[Effect], x: int, height: int, is_middle: bool) -> list[GraphBox]:
    top = (height - len(effects) * (_HIGH + _GAP) + _GAP) // 2
    return [GraphBox(one, x, top + row * (_HIGH + _GAP), is_middle) for row, one in enumerate(effects)]
