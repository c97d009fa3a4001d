"""Where the world stands with respect to one effect."""

from enum import StrEnum
from typing import Any, NamedTuple


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
