"""What became of an effect that a crash had left, for programs and for people."""

from enum import StrEnum
from typing import NamedTuple

from takeback.model.ids import short


class Cause(StrEnum):
    """What an outcome alone does not tell."""

    PLAIN = ""
    IN_DOUBT = "in_doubt"  # whether it happened cannot be asked now
    UNWATCHED = "unwatched"  # what was changed while nobody watched was recorded, and stays
    UNDO_FINISHED = "undo_finished"
    REDO_FINISHED = "redo_finished"


class Settled(NamedTuple):
    """What recovery did, for people to read."""

    effect: str
    run: str
    summary: str
    outcome: str  # done | aborted | stuck | undone | left
    detail: str = ""  # in words, where the outcome alone does not tell
    cause: Cause = Cause.PLAIN


def in_words(one: Settled) -> str:
    told = {
        "done": "had been made; recorded as done",
        "aborted": "had not been completed; its target is as it was before",
        "stuck": "needs a person",
        "undone": "was taken back with its run",
        "left": "stays, because someone changed it since",
    }
    if one.cause is Cause.IN_DOUBT:
        return f"{short(one.effect)} {one.summary} {stands(one)}"
    return f"{short(one.effect)} {one.summary}: {one.detail or told[one.outcome]}"


def stands(one: Settled) -> str:
    """Of one that was not settled: why not."""
    return (
        f"is in doubt: {one.detail}" if one.cause is Cause.IN_DOUBT else f"is not recorded yet: {one.detail}"
    )
