"""What can be done in one step: the paths of an effect, put together so that each unit is independent of the others.

A directory that comes or goes is one unit with everything in it. Every other path is a unit of its own. So nothing has
to be ordered between units, except that a directory that stays gets its properties after what is in it.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from takeback.adapters.file.states import FileState, blobs_of, linked_names
from takeback.adapters.tree.git.layout import GitPart, Spot, may_be_gits, spots_of
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import Mixture, in_place, is_dir, is_excluded
from takeback.errors import Corrupt
from takeback.model.change import Change
from takeback.model.plan import Bond
from takeback.model.remedy import Target
from takeback.model.resource import display, file_resource
from takeback.storage.protocols import Blobs

# Which paths of an effect are only taken back together: names of one file, both ends of a move, a database
# with its side files, a ref of git with its reflog.


_BESIDE = ("-wal", "-shm", "-journal")

Group = tuple[Bond, frozenset[str]]


def bonds_of(targets: Sequence[Target]) -> list[Group]:
    found = [*linked_names(targets), *moves_of(targets), *_databases(targets), *_refs(targets)]
    return [(bond, names) for bond, names in found if len(names) > 1]


def moves_of(targets: Sequence[Target]) -> Iterator[Group]:
    """What went and what came with the same content. Of several with that content nothing tells which became which."""
    went: dict[object, list[str]] = {}
    came: dict[object, list[str]] = {}
    for target in targets:
        before, after = target.before, target.after
        if after["type"] == "absent" and before.get("digest") and before.get("size"):
            went.setdefault(before["digest"], []).append(target.resource)
        elif before["type"] == "absent" and after.get("digest") and after.get("size"):
            came.setdefault(after["digest"], []).append(target.resource)
    for digest, names in went.items():
        if len(names) == 1 and len(came.get(digest, ())) == 1:
            yield Bond.MOVE, frozenset((*names, *came[digest]))


class Rename(NamedTuple):
    """A path that went and came back unchanged under another name; a directory with everything in it."""

    old: str
    new: str
    paths: tuple[str, ...]  # both names, and everything below them
    replaced: bool  # a file that had the new name


_SAME = ("type", "digest", "size", "mode", "uid", "gid", "mtime", "target", "rdev")
_APART = {"twin", "held", "excluded", "owner_lost", "mixed", "then", "over", "unit", "meta", "left_out"}


def renames(targets: Sequence[Target]) -> list[Rename]:
    """For reports. Equal paths are left out: it is unknown which of them became which."""
    went = {one.resource: one.before for one in targets if one.after.get("type") == "absent"}
    came = {one.resource: one.after for one in targets if went and one.resource not in went and _is_new(one)}
    (old, below_old), (new, below_new) = _marks(went), _marks(came)
    absent = {one.resource for one in targets if one.before.get("type") == "absent"}
    found: list[Rename] = []
    taken: set[str] = set()
    for of_directories in (True, False):
        sides: tuple[dict[int, list[str]], ...] = ({}, {})
        for side, states, marks in zip(sides, (went, came), (old, new), strict=True):
            for resource, mark in reversed(marks.items()):  # outermost first
                if resource not in taken and is_dir(states[resource]) == of_directories:
                    side.setdefault(mark, []).append(resource)
        for mark, (name, *others) in sides[0].items():
            ends = sides[1].get(mark, ())
            if not others and len(ends) == 1 and taken.isdisjoint((name, ends[0])):
                paths = (*_whole(name, below_old), *_whole(ends[0], below_new))
                taken.update(paths)
                found.append(Rename(name, ends[0], paths, ends[0] not in absent))
    return found


def _is_new(target: Target) -> bool:
    """Whether a path came, or a file was put in the place of another one."""
    kinds = {state.get("type") for state in (target.before, target.after)}
    return "absent" in kinds or (kinds <= {"file", "symlink"} and _APART.isdisjoint(target.before))


def _marks(states: dict[str, FileState]) -> tuple[dict[str, int], dict[str, list[str]]]:
    """A number for each path, the same for equal ones; and by directory the paths in it."""
    marks: dict[str, int] = {}
    below: dict[str, list[str]] = {}
    in_turn = list(reversed(states))
    for resource in sorted(in_turn, key=lambda one: -one.count("/")):
        state, inside = states[resource], below.get(resource, [])
        if _APART.isdisjoint(state) and state.get("nlink", 1) == 1 and marks.keys() >= set(inside):
            names = frozenset((one.rpartition("/")[2], marks[one]) for one in inside)
            marks[resource] = hash(
                (*map(state.get, _SAME), repr((state.get("xattrs"), state.get("holes"))), names)
            )
        below.setdefault(resource.rpartition("/")[0], []).append(resource)
    return marks, below


def _whole(resource: str, below: dict[str, list[str]]) -> list[str]:
    found = [resource]
    for one in found:
        found += below.get(one, ())
    return found


def _databases(targets: Iterable[Target]) -> Iterator[Group]:
    """By what a watch said of them, or by their names."""
    resources = {target.resource: target for target in targets}
    units: dict[str, set[str]] = {}
    for resource, target in resources.items():
        unit = target.after.get("unit") or target.before.get("unit")
        if unit:
            units.setdefault(unit, set()).add(resource)
        for suffix in _BESIDE:
            if resource.endswith(suffix):
                units.setdefault(resource.removesuffix(suffix), set()).add(resource)
    for name, files in units.items():
        yield Bond.DATABASE, frozenset(files | ({name} & resources.keys()))


def _refs(targets: Sequence[Target]) -> Iterator[Group]:
    if not any(may_be_gits(target.resource) for target in targets):
        return
    with Places(targets) as places:
        spots = spots_of(targets, places)
    for home in dict.fromkeys(spot.home for spot in spots.values()):
        yield from _refs_of({one: spot for one, spot in spots.items() if spot.home == home}, targets)


def _refs_of(spots: dict[str, Spot], targets: Iterable[Target]) -> Iterator[Group]:
    files = {one.resource for one in targets if "file" in (one.before["type"], one.after["type"])}
    by_name: dict[str, set[str]] = {}
    for resource, spot in spots.items():
        if resource in files and spot.part in (GitPart.REF, GitPart.LOG, GitPart.HEAD):
            by_name.setdefault(spot.name or "HEAD", set()).add(resource)
    refs = {one for one, spot in spots.items() if spot.part is GitPart.REF and one in files}
    if any(spot.part is GitPart.PACKED for spot in spots.values()):
        # A ref may be in the list, in a file of its own, or in both: only all of them together tell what it was.
        packed = {one for one, spot in spots.items() if spot.part is GitPart.PACKED}
        logs = {one for name, names in by_name.items() if name != "HEAD" for one in names}
        yield Bond.REF, frozenset(packed | refs | logs)
    branches = [one for one in by_name if one.startswith("refs/heads/") and by_name[one] & refs]
    for name, names in by_name.items():
        # The reflog of HEAD has the lines of the branch that it points to.
        heads = by_name.get("HEAD", set[str]()) if branches == [name] else set[str]()
        yield Bond.REF, frozenset(names | heads)
    yield Bond.REF, frozenset(one for one, spot in spots.items() if spot.part is GitPart.TABLE)


# Changes of many paths: what each was and what it is to be, as one blob that a change names.


COMMAND, TREE = "command", "tree"
RUN, WATCH = "run", "watch"


def put_targets(blobs: Blobs, targets: Iterable[Target]) -> str:
    """The digest under which `read_targets` finds them again; what they name lives as long."""
    listed = list(targets)
    rows = [[target.resource, target.before, target.after] for target in listed]
    text = json.dumps(rows, separators=(",", ":"), sort_keys=True)
    return blobs.put(text.encode("ascii"), refs=contents(listed))


def read_targets(blobs: Blobs, digest: str) -> tuple[Target, ...]:
    try:
        rows: list[list[Any]] = json.loads(b"".join(blobs.read(digest)))
        return tuple(Target(resource, before, after) for resource, before, after in rows)
    except (ValueError, TypeError) as error:
        raise Corrupt(
            "A list of paths in the store is not readable.", hint="`takeback verify` shows the extent."
        ) from error


def contents(targets: Iterable[Target]) -> list[str]:
    """Every blob that the states name, each once."""
    needed: dict[str, None] = {}
    for target in targets:
        for state in (target.before, target.after):
            if "digest" in state:
                needed.update(dict.fromkeys(blobs_of(state)))
    needed.pop("", None)
    return list(needed)


def command_change(
    blobs: Blobs, cwd: str, summary: str, targets: Sequence[Target], args: dict[str, Any] | None = None
) -> Change:
    """What a command did, as a change that can be merged into the world and taken back."""
    more = dict(args or {}) | {"targets": put_targets(blobs, targets)}
    return Change(COMMAND, RUN, file_resource(cwd), summary, more)


class Unit(NamedTuple):
    number: int  # of its target in the effect: it names the scratch
    resource: str
    start: FileState
    goal: FileState
    leaving: dict[str, FileState] = {}  # what is in a directory that goes, by quoted path from it
    coming: dict[str, FileState] = {}  # what is in one that comes
    adjusts: bool = False  # only what the inode carries differs

    @property
    def parent(self) -> str:
        return self.resource.rpartition("/")[0]

    @property
    def sides(self) -> tuple[tuple[FileState, dict[str, FileState]], ...]:
        """Before and after, as far as something is there, each with what is in it."""
        both = ((self.start, self.leaving), (self.goal, self.coming))
        return tuple(side for side in both if side[0]["type"] != "absent")


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


def with_late(state: FileState, late: dict[str, Mixture]) -> FileState:
    mixture = late.get(state.get("twin", ""))
    return state | {"late": mixture} if mixture else state


def in_order(targets: Iterable[Target]) -> list[tuple[int, Target]]:
    """A directory before what is in it, and all that is in it right after it."""
    return sorted(enumerate(targets), key=lambda each: each[1].resource.split("/"))


def _put_inside(top: Unit, resource: str, start: FileState, goal: FileState) -> None:
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


def _has_parent(inside: dict[str, FileState], path: str) -> bool:
    parent = path.rpartition("/")[0]
    return not parent or (parent in inside and is_dir(inside[parent]))
