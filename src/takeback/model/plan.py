"""The plan and the result of an undo: the state of each target, the order, the conflicts."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from posixpath import commonpath
from typing import Any, NamedTuple

from takeback.errors import Conflict, TakebackError
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.remedy import Offer, Target, doubt_of
from takeback.model.resource import SCHEME, display, shell_word

ONLY = "only"  # in the first record of an undo's run: the paths that it takes, if these are not all
BY_KEY = "by_key"  # in the payload of an undo: other parts of the file had changed, and stayed


class Outcome(StrEnum):
    UNDONE = "undone"
    ALREADY = "already"
    CONFLICT = "conflict"
    EXCLUDED = "excluded"
    FAILED = "failed"


class Obstacle(StrEnum):
    """What stands in the way of a target that is a conflict, or cannot be captured."""

    CHANGED = "changed"  # it is not what the effect left; undo would overwrite that
    GONE = "gone"  # it was removed since: nothing would be overwritten
    DIRECTORY = "directory"  # the directory that it was in is gone
    LINK = "link"  # a directory on the way to it is a symbolic link now
    UNREADABLE = "unreadable"  # we lack the right to read it, so it cannot be captured for redo
    UNCAPTURED = "uncaptured"  # it cannot be captured for another reason, which the detail tells
    PROTECTED = "protected"  # it is marked immutable or append-only
    OTHER = "other"  # not a change of it, but something that the detail tells: other rows, a rule, an effect that stays
    OPEN = "open"  # a process has it open, and would keep writing to the old file
    MOVED_ON = "moved on"  # what was moved is no longer where it was moved to
    REPLACED = "replaced"  # another file has the name that it was moved to; undo would move that one
    COMPANION = (
        "companion"  # nothing of its own: it is taken back together with another, which something hinders
    )
    MOUNT = "mount"  # something was mounted or unmounted on the way to it


class TargetOutcome(NamedTuple):
    resource: str
    outcome: Outcome
    detail: str = ""
    effect: str = ""
    exact: bool = True  # False: merged with what was changed since
    diff: str = ""  # of a merge: what it changes
    obstacle: Obstacle = Obstacle.CHANGED


def outcome_from(told: Sequence[Any]) -> TargetOutcome:
    """As `list` wrote it; what an older version wrote is shorter."""
    resource, outcome, detail, effect, *more = told
    found = TargetOutcome(resource, Outcome(outcome), detail, effect, *more)
    return found._replace(obstacle=Obstacle(found.obstacle))


FORCE_MOVES = "moves the present one instead"
_MOST_NAMED = 5
_BY_HAND = {
    Obstacle.MOVED_ON: "Put {path} back",
    Obstacle.OPEN: "The process would keep writing to the old file: end it",
    Obstacle.MOUNT: "Mount or unmount it as it was",
    Obstacle.DIRECTORY: "Make the missing directory again",
    Obstacle.LINK: "Put the directory back in the place of the link",
    Obstacle.UNREADABLE: "`chmod u+rX {path}` lets it be read: run it",
    Obstacle.PROTECTED: "As root, `chattr -i -a {path}` takes the protection away: run it",
}


def in_the_way(found: Sequence[TargetOutcome], verb: str) -> str:
    """The targets that cannot be taken back, in a sentence. Only of those that were changed since it says so."""
    found = without_companions(found)
    changed = [one for one in found if one.obstacle is Obstacle.CHANGED]
    others = _listed([one for one in found if one.obstacle is not Obstacle.CHANGED])
    if not changed:
        return f"{others}."
    also = f" Also in the way: {others}." if others else ""
    return f"Modified after this effect, so {verb} would overwrite those changes: {_listed(changed)}.{also}"


def without_companions(found: Sequence[TargetOutcome]) -> Sequence[TargetOutcome]:
    """Those that tell why: the two names of a move have one reason."""
    return [one for one in found if one.obstacle is not Obstacle.COMPANION] or found


def _listed(found: Sequence[TargetOutcome]) -> str:
    names = [f"{display(one.resource)} {one.detail}".strip() for one in found[:_MOST_NAMED]]
    more = f"; and {len(found) - _MOST_NAMED:,} more" if len(found) > _MOST_NAMED else ""
    return "; ".join(names) + more


def refused(found: Sequence[TargetOutcome], verb: str, *, hint: str, effect: str | None = None) -> Conflict:
    """`hint` is for what was changed since."""
    obstacles = {one.resource: one.obstacle for one in found}
    ways = "" if Obstacle.CHANGED in obstacles.values() else out_of_the_way(obstacles, f"{verb} again")
    return Conflict(
        in_the_way(found, verb),
        hint=f"Nothing was touched. {ways}" if ways else hint,
        effect=effect,
        resources=tuple(obstacles),
        obstacles=obstacles,
    )


def out_of_the_way(obstacles: Mapping[str, str], again: str) -> str:
    """What to do by hand, for obstacles by resource, before `again` can help; empty where nothing is known."""
    first = {obstacle: resource for resource, obstacle in reversed(list(obstacles.items()))}
    ways = [
        way.format(path=shell_word(first[obstacle]))
        for obstacle, way in _BY_HAND.items()
        if obstacle in first
    ]
    return f"{'. '.join(ways)}, then {again}." if ways else ""


def nothing_to_do(targets: Sequence[TargetOutcome]) -> bool:
    """Someone has taken it back already, by hand."""
    return bool(targets) and all(one.outcome is Outcome.ALREADY for one in targets)


class Bond(StrEnum):
    """Why a path is taken back together with another one."""

    MOVE = "move"  # the two names of something that was moved
    LINK = "link"  # hard-linked names of one file
    DATABASE = "database"  # a database and its side files
    REF = "ref"  # a ref of git, its reflog and the list of packed refs
    DIRECTORY = "directory"  # the directory that it comes back to
    INSIDE = "inside"  # the directory that it is in goes
    WHOLE = "whole"  # the effect changed this directory, or this file, as one


class Companion(NamedTuple):
    """A path that was not named, and is taken back with one that was."""

    resource: str
    goes_with: str
    bond: Bond


class Assessment(NamedTuple):
    """What a change would touch and how it could be taken back; found by looking."""

    resources: tuple[str, ...]
    offers: tuple[Offer, ...]  # best first; empty: no way back
    changes_nothing: bool = False
    lost: tuple[str, ...] = ()  # what could not be captured, each with its reason
    outcomes: tuple[TargetOutcome, ...] = ()  # for an undo: what would happen to each target
    # For an undo: its targets hang together (a move), none can be judged without the others.
    together: bool = False
    risk: str = ""  # as it was declared: "low", "medium", "high"; empty: by the way back


class Plan(NamedTuple):
    """Effects to take back, newest first, and what stands in the way."""

    effects: tuple[Effect, ...]
    targets: tuple[TargetOutcome, ...]  # what would happen to each target
    blockers: tuple[Effect, ...] = ()  # later effects that stand on these and are not part of the plan
    pulled_in: tuple[str, ...] = ()  # effects that are here because of cascade or needs, not by their name
    stuck: tuple[Effect, ...] = ()  # undos that got stuck, of these effects or of others
    # By effect: what was found, where nothing else of the plan comes before it.
    seen: Mapping[str, Assessment] = {}


class UndoResult(NamedTuple):
    outcome: str  # done | partial | refused | stuck ; "planned" for a dry run
    effects: tuple[Effect, ...]  # as they stand now
    targets: tuple[TargetOutcome, ...]
    undo: tuple[Effect, ...] = ()  # the effects that did it; redo takes these back
    state: Any = None  # the agent's own state, when undo went back to a checkpoint
    postponed: bool = False  # something could not be reached just now: trying again may do more
    settled: tuple[str, ...] = ()  # effects that were stuck, and are not any more
    because: TakebackError | None = None  # why nothing was changed, when nothing was
    along: tuple[Companion, ...] = ()  # of an undo of some paths: others that went with them
    elsewhere: tuple[Effect, ...] = ()  # that changed only what was not watched, so there is no way back

    @property
    def outside(self) -> tuple[str, ...]:
        """Paths that these effects changed too, and that were not recorded."""
        return tuple(dict.fromkeys(path for one in (*self.effects, *self.elsewhere) for path in one.outside))


class Standing(StrEnum):
    BEFORE = "before"  # as if the effect had never been
    BETWEEN = "between"  # some of its targets are before, the others after, none anywhere else
    AFTER = "after"  # exactly what the effect leaves
    FOREIGN = "foreign"  # someone else's doing
    UNKNOWN = "unknown"  # the world could not be asked


class TargetSighting(NamedTuple):
    resource: str
    standing: Standing
    now: dict[str, Any]  # the state seen, as plain data
    detail: str = ""  # for a person: how it differs from what was expected
    cut_off: bool = False  # a directory on the way was missing or a link, perhaps only for a moment


class Sighting(NamedTuple):
    standing: Standing
    detail: str = ""
    targets: tuple[TargetSighting, ...] = ()
    receipt: dict[
        str, Any
    ] = {}  # when AFTER: what apply learned, found again, where the world still knows it
    again: bool = False  # when UNKNOWN: applying it a second time is once, so that is how to find out


def together(targets: tuple[TargetSighting, ...]) -> Sighting:
    """The standing of an effect, from those of its targets."""
    seen = {target.standing for target in targets}
    detail = "; ".join(target.detail for target in targets if target.detail)
    for odd in (Standing.UNKNOWN, Standing.FOREIGN):
        if odd in seen:
            return Sighting(odd, detail, targets)
    if len(seen) == 1:
        return Sighting(seen.pop(), detail, targets)
    return Sighting(Standing.BETWEEN if seen else Standing.UNKNOWN, detail, targets)


# Effects that changed the same in turns: a command that is watched is recorded when it has ended, after effects that
# changed its paths in between; so its earlier changes go back after theirs.


def went_over(effect: Effect) -> set[str]:
    """Effects that changed the same after this one did, though it was recorded after them."""
    states = (state for target in effect.targets for state in (target.before, target.after))
    return {id for state in states for id in state.get("over", ())}


def in_turn(effects: Iterable[Effect]) -> list[Effect]:
    """Newest first; but after those that went over it."""
    ordered = sorted(effects, key=lambda effect: -effect.order)
    for effect in list(ordered):
        if over := went_over(effect):
            ordered.remove(effect)
            at = [index for index, one in enumerate(ordered) if one.id in over]
            place = max(at) + 1 if at else sum(one.order > effect.order for one in ordered)
            ordered.insert(place, effect)
    return ordered


def only_forced(target: Target) -> bool:
    """A file that was captured before the effect and could not be captured after it: its old content can come back, but
    takeback cannot check whether the present content is what the effect left."""
    return "excluded" in target.after and "excluded" not in target.before and "digest" in target.before


def each_of(resources: Sequence[str]) -> str:
    """As the subject of a sentence about one of them."""
    names = ", ".join(display(one) for one in resources[:_MOST_NAMED])
    more = f" and {len(resources) - _MOST_NAMED:,} more" if len(resources) > _MOST_NAMED else ""
    return f"each of {names}{more}" if len(resources) > 1 else names


def directory_of(resources: Iterable[str]) -> str:
    """A directory stands for all that is in it; one path for itself."""
    return SCHEME + commonpath([one.removeprefix(SCHEME) for one in resources])


def by_name(command: str, resource: str) -> str:
    return f"`{command} -- {shell_word(resource)}` takes back what you name, also what others changed."


def way_to_both(effect: Effect, resources: Collection[str]) -> str:
    """How to take back what others had a part in too; empty if they had none in these."""
    targets = [target for target in effect.targets if target.resource in resources]
    if doubtful := [target.resource for target in targets if doubt_of(target)]:
        return by_name(f"takeback undo {short(effect.id)}", directory_of(doubtful))
    states = [state for target in targets for state in (target.before, target.after)]
    if any("mixed" in state and "over" not in state for state in states):
        return f"`takeback undo {short(effect.id)} --force` goes back to how it was before both."
    if any("over" in state for state in states):
        return f"`takeback undo {short(effect.id)} --cascade` takes back both."
    if any(map(only_forced, targets)):
        return f"`takeback undo {short(effect.id)} --force` goes back to how it was before."
    return ""
