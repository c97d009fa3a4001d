"""Compare and merge sequences: the lines of a text, the entries of a list.

The merge runs twice, once from the top and once from the bottom. A comparison must choose where several alignments
are possible (a block that was copied, a repeated line), and the two directions choose the opposite ends. So a merge is
accepted only if both directions find it clean and give the same result.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")
_MOST_STEPS = 2_000_000  # of the slow comparison; a stretch that needs more counts as replaced


class Hunk(NamedTuple):
    """`old[start:end]` became `new[new_start:new_end]`."""

    start: int
    end: int
    new_start: int
    new_end: int


class Edit(NamedTuple):
    """`ours[start:end]` is replaced by `theirs[from_:to]`."""

    start: int
    end: int
    from_: int
    to: int


class Clash(Exception):
    """`ours[start:end]` was changed as well, or it is not certain which part of `ours` is meant."""

    def __init__(self, start: int, end: int, ambiguous: bool = False) -> None:
        super().__init__(start, end, ambiguous)
        self.start = start
        self.end = end
        self.ambiguous = ambiguous


def merge_edits(base: Sequence[Hashable], theirs: Sequence[Hashable], ours: Sequence[Hashable]) -> list[Edit]:
    """The edits that make of `ours` what the change from `base` to `theirs` asks for, in order."""
    numbers: dict[Hashable, int] = {}
    three = [[numbers.setdefault(item, len(numbers)) for item in part] for part in (base, theirs, ours)]
    edits = _edits(*three)
    turned = [part[::-1] for part in three]
    size = len(ours)
    try:
        from_below = _edits(*turned)
    except Clash as clash:
        raise Clash(size - clash.end, size - clash.start, ambiguous=True) from None
    if edited(three[2], edits, three[1]) != edited(turned[2], from_below, turned[1])[::-1]:
        raise Clash(edits[0].start, edits[-1].end, ambiguous=True)
    return edits


def edited(ours: Sequence[_T], edits: Iterable[Edit], theirs: Sequence[_T]) -> list[_T]:
    result: list[_T] = []
    at = 0
    for edit in edits:
        result += ours[at : edit.start]
        result += theirs[edit.from_ : edit.to]
        at = edit.end
    result += ours[at:]
    return result


def hunks(old: Sequence[int], new: Sequence[int]) -> list[Hunk]:
    """Where the two differ, in order."""
    found: list[Hunk] = []
    at = new_at = 0
    for start, new_start, size in [*_matches(old, new), (len(old), len(new), 0)]:
        if start > at or new_start > new_at:
            found.append(Hunk(at, start, new_at, new_start))
        at, new_at = start + size, new_start + size
    return found


def _edits(base: list[int], theirs: list[int], ours: list[int]) -> list[Edit]:
    others = hunks(base, ours)
    place = _places(len(base), len(ours), others)
    found: list[Edit] = []
    for hunk in hunks(base, theirs):
        near = [one for one in others if one.start <= hunk.end and one.end >= hunk.start]
        at = _where(hunk, place, near)
        if at is not None:
            found.append(Edit(at, at + hunk.end - hunk.start, hunk.new_start, hunk.new_end))
            continue
        wanted = theirs[hunk.new_start : hunk.new_end]
        if any(one[:2] == hunk[:2] and ours[one.new_start : one.new_end] == wanted for one in near):
            continue  # someone has changed it in the same way already
        raise Clash(min(one.new_start for one in near), max(one.new_end for one in near))
    return found


def _places(size: int, new_size: int, changed: list[Hunk]) -> list[int]:
    """Of each item of the old sequence its place in the new one, -1 if it is not there; and of the end."""
    place = [-1] * size
    at = new_at = 0
    for hunk in [*changed, Hunk(size, size, new_size, new_size)]:
        place[at : hunk.start] = range(new_at, new_at + hunk.start - at)
        at, new_at = hunk.end, hunk.new_end
    return [*place, new_size]


def _where(hunk: Hunk, place: list[int], near: list[Hunk]) -> int | None:
    """Where the items of a hunk stand now, one after another and all of them. Where it has none, both neighbours must
    still be side by side; or one is there, and the other was replaced item by item; or what was beside it is gone."""
    if hunk.start < hunk.end:
        first = place[hunk.start]
        whole = range(first, first + hunk.end - hunk.start)
        return first if first >= 0 and place[hunk.start : hunk.end] == list(whole) else None
    at_top = hunk.start == 0
    left, right = -1 if at_top else place[hunk.start - 1], place[hunk.start]
    has_left, has_right = at_top or left >= 0, right >= 0
    if has_left and has_right:
        return right if right == left + 1 else None
    if len(near) == 1 and near[0].new_start == near[0].new_end:
        return near[0].new_start
    if len(near) == 1 and near[0].end - near[0].start == near[0].new_end - near[0].new_start:
        return left + 1 if has_left else right if has_right else None
    return None


def _matches(old: Sequence[int], new: Sequence[int]) -> list[tuple[int, int, int]]:
    """Stretches that are equal, as (place in old, place in new, length), in order."""
    found: list[tuple[int, int, int]] = []
    pending = [(0, len(old), 0, len(new))]
    while pending:
        low, high, new_low, new_high = pending.pop()
        start, new_start = low, new_low
        while low < high and new_low < new_high and old[low] == new[new_low]:
            low, new_low = low + 1, new_low + 1
        if low > start:
            found.append((start, new_start, low - start))
        end = high
        while low < high and new_low < new_high and old[high - 1] == new[new_high - 1]:
            high, new_high = high - 1, new_high - 1
        if end > high:
            found.append((high, new_high, end - high))
        if low == high or new_low == new_high:
            continue
        anchors = _anchors(old, low, high, new, new_low, new_high)
        if not anchors:
            found += _shortest(old, low, high, new, new_low, new_high)
            continue
        for at, new_at in anchors:
            pending.append((low, at, new_low, new_at))
            low, new_low = at, new_at
        pending.append((low, high, new_low, new_high))
    return sorted(found)


def _anchors(
    old: Sequence[int], low: int, high: int, new: Sequence[int], new_low: int, new_high: int
) -> list[tuple[int, int]]:
    """Items that occur once in both, as many as stand in the same order."""
    from bisect import bisect_left

    there = _once(new, new_low, new_high)
    pairs = [(at, there[item]) for item, at in _once(old, low, high).items() if item in there]
    tops: list[int] = []  # of the shortest ends of rising rows: their last place in new
    rows: list[int] = []  # the same, as indexes of pairs
    before: list[int] = []
    for index, (_, place) in enumerate(pairs):
        length = bisect_left(tops, place)
        before.append(rows[length - 1] if length else -1)
        tops[length : length + 1] = [place]
        rows[length : length + 1] = [index]
    found: list[tuple[int, int]] = []
    index = rows[-1] if rows else -1
    while index >= 0:
        at, new_at = pairs[index]
        index = before[index]
        if index < 0 or pairs[index] != (at - 1, new_at - 1):  # else it is found by going on from that one
            found.append((at, new_at))
    return found[::-1]


def _once(items: Sequence[int], low: int, high: int) -> dict[int, int]:
    """Those that occur once, with their place."""
    place: dict[int, int] = {}
    for at in range(low, high):
        item = items[at]
        place[item] = -1 if item in place else at
    return {item: at for item, at in place.items() if at >= 0}


def _shortest(
    old: Sequence[int], low: int, high: int, new: Sequence[int], new_low: int, new_high: int
) -> list[tuple[int, int, int]]:
    """The fewest insertions and deletions (Myers 1986); nothing in common if finding them takes too long."""
    size, new_size = high - low, new_high - new_low
    if set(old[low:high]).isdisjoint(new[new_low:new_high]):
        return []
    reach = {1: 0}
    trace: list[dict[int, int]] = []
    steps = 0
    for distance in range(size + new_size + 1):
        trace.append(dict(reach))
        for diagonal in range(-distance, distance + 1, 2):
            x = _step(reach, diagonal, distance)
            y = x - diagonal
            start = x
            while x < size and y < new_size and old[low + x] == new[new_low + y]:
                x, y = x + 1, y + 1
            reach[diagonal] = x
            steps += x - start + 1
            if x >= size and y >= new_size:
                return _walked(trace, size, new_size, low, new_low)
        steps += distance
        if steps > _MOST_STEPS:
            return []
    return []


def _step(reach: dict[int, int], diagonal: int, distance: int) -> int:
    down = _goes_down(reach, diagonal, distance)
    return reach[diagonal + 1] if down else reach[diagonal - 1] + 1


def _walked(
    trace: list[dict[int, int]], size: int, new_size: int, low: int, new_low: int
) -> list[tuple[int, int, int]]:
    """The equal stretches on the way back to the beginning."""
    found: list[tuple[int, int, int]] = []
    x, y = size, new_size
    for distance in range(len(trace) - 1, -1, -1):
        reach = trace[distance]
        diagonal = x - y
        start = _step(reach, diagonal, distance)
        if x > start:
            found.append((low + start, new_low + start - diagonal, x - start))
        if distance:
            down = _goes_down(reach, diagonal, distance)
            x, y = (start, start - diagonal - 1) if down else (start - 1, start - diagonal)
    return found


def _goes_down(reach: dict[int, int], diagonal: int, distance: int) -> bool:
    return diagonal == -distance or (diagonal != distance and reach[diagonal - 1] < reach[diagonal + 1])
