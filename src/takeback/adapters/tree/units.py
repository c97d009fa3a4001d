"""What can be done in one step: the paths of an effect, put together so that each unit is independent of the others.

A directory that comes or goes is one unit with everything in it. Every other path is a unit of its own. So nothing has
to be ordered between units, except that a directory that stays gets its properties after what is in it.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from takeback.adapters.file.states import State
from takeback.adapters.tree.states import Mixture, in_place, is_dir, is_excluded
from takeback.errors import Corrupt
from takeback.model.remedy import Target
from takeback.model.resource import display


class Unit(NamedTuple):
    number: int  # of its target in the effect: it names the scratch
    resource: str
    start: State
    goal: State
    leaving: dict[str, State] = {}  # what is in a directory that goes, by quoted path from it
    coming: dict[str, State] = {}  # what is in one that comes
    adjusts: bool = False  # only what the inode carries differs

    @property
    def parent(self) -> str:
        return self.resource.rpartition("/")[0]


def units_of(targets: Sequence[Target], forward: bool = True) -> list[Unit]:
    """Outermost first, by name; forward from before to after, or back."""
    found: list[Unit] = []
    top: Unit | None = None
    late = late_ones(targets)
    for index, target in in_order(targets):
        if is_excluded(target.before, target.after):
            continue  # never touched; a directory that holds it does not go either
        start, goal = (target.before, target.after) if forward else (target.after, target.before)
        if late:
            start, goal = (with_late(state, late) for state in (start, goal))
        if top is not None and target.resource.startswith(top.resource + "/"):
            _put_inside(top, target.resource, start, goal)
            continue
        top = Unit(index, target.resource, start, goal, {}, {}, in_place(start, goal))
        found.append(top)
        if is_dir(start) and is_dir(goal):
            top = None  # it stays: what is in it are units of their own
    return found


def late_ones(targets: Iterable[Target]) -> dict[str, Mixture]:
    """Files with further names that come or go, and that get other properties when those names are there already."""
    twins = {
        state["twin"] for target in targets for state in (target.before, target.after) if "twin" in state
    }
    if not twins:
        return {}
    return {
        target.resource: Mixture(target.before, target.after)
        for target in targets
        if target.resource in twins and in_place(target.before, target.after)
    }


def with_late(state: State, late: dict[str, Mixture]) -> State:
    mixture = late.get(state.get("twin", ""))
    return state | {"late": mixture} if mixture else state


def in_order(targets: Iterable[Target]) -> list[tuple[int, Target]]:
    """A directory before what is in it, and all that is in it right after it."""
    return sorted(enumerate(targets), key=lambda each: each[1].resource.split("/"))


def _put_inside(top: Unit, resource: str, start: State, goal: State) -> None:
    path = resource[len(top.resource) + 1 :]
    for state, inside, whole in ((start, top.leaving, top.start), (goal, top.coming, top.goal)):
        if state["type"] == "absent":
            continue
        if not is_dir(whole) or not _has_parent(inside, path):
            raise Corrupt(
                f"An effect says that {display(resource)} is in a directory that it says is none.",
                hint="Nothing was changed.",
            )
        inside[path] = state


def _has_parent(inside: dict[str, State], path: str) -> bool:
    parent = path.rpartition("/")[0]
    return not parent or (parent in inside and is_dir(inside[parent]))
