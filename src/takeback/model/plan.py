"""What an undo would do, and what it did."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from takeback.errors import Misuse, TakebackError
from takeback.model.effect import Effect


class OnConflict(StrEnum):
    REFUSE = "refuse"
    MERGE = "merge"
    SKIP = "skip"
    FORCE = "force"


def on_conflict_named(name: str) -> OnConflict:
    try:
        return OnConflict(name)
    except ValueError:
        raise Misuse(f"on_conflict cannot be {name!r}.", hint="It is refuse, merge, skip or force.") from None


class Outcome(StrEnum):
    """Of one target of an undo."""

    UNDONE = "undone"
    ALREADY = "already"
    CONFLICT = "conflict"
    EXCLUDED = "excluded"
    FAILED = "failed"


class Obstacle(StrEnum):
    """What stands in the way of a target that is a conflict."""

    CHANGED = "changed"  # it is not what the effect left
    OPEN = "open"  # a process has it open, and would go on writing to what was put aside
    MOUNT = "mount"  # something was mounted or unmounted on the way to it


class TargetOutcome(NamedTuple):
    resource: str
    outcome: Outcome
    detail: str = ""
    effect: str = ""
    obstacle: Obstacle = Obstacle.CHANGED


def nothing_to_do(targets: Sequence[TargetOutcome]) -> bool:
    """Someone has taken it back already, by hand."""
    return bool(targets) and all(one.outcome is Outcome.ALREADY for one in targets)


class Plan(NamedTuple):
    """Effects to take back, newest first, and what stands in the way."""

    effects: tuple[Effect, ...]
    targets: tuple[TargetOutcome, ...]  # what would happen to each target
    blockers: tuple[Effect, ...] = ()  # later effects that stand on these and are not part of the plan
    pulled_in: tuple[
        str, ...
    ] = ()  # effects that are here because of cascade or needs, not because they were named


class UndoResult(NamedTuple):
    outcome: str  # done | partial | refused | stuck ; "planned" for a dry run
    effects: tuple[Effect, ...]  # as they stand now
    targets: tuple[TargetOutcome, ...]
    undo: tuple[Effect, ...] = ()  # the effects that did it; redo takes these back
    state: Any = None  # the agent's own state, when undo went back to a checkpoint
    postponed: bool = False  # something could not be reached just now: trying again may do more
    settled: tuple[str, ...] = ()  # effects that were stuck, and are not any more
    because: TakebackError | None = None  # why nothing was changed, when nothing was
