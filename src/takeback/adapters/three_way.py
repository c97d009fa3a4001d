"""Take one change out of the content of a file: text by line, configuration by key. Clean or not at all."""

import os
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from takeback.adapters.config.keys import Tagged, plain_type, pointer_of, same

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
        # Read from one side it may be that nothing is left to do.
        places = [(one.start, one.end) for one in edits]
        places += [(size - one.end, size - one.start) for one in from_below]
        raise Clash(min(places)[0], max(end for _, end in places), ambiguous=True)
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
        if index < 0 or pairs[index] != (at - 1, new_at - 1):  # else found by searching on
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


# Merge documents key by key: what one change did to a document is taken out of a later state of it.


_ABSENT: Any = object()


class KeyClash(Exception):
    """This key was changed as well, or it is not certain which entry is meant."""

    def __init__(self, path: tuple[Any, ...], ambiguous: bool = False) -> None:
        super().__init__(path, ambiguous)
        self.pointer = pointer_of(str(token) for token in path)
        self.ambiguous = ambiguous


def merged_document(base: Any, theirs: Any, ours: Any, path: tuple[Any, ...] = ()) -> Any:
    """`ours` with what leads from `base` to `theirs`; raises `KeyClash`."""
    for unchanged, result in ((theirs, ours), (ours, theirs)):
        if _equal(base, unchanged):
            return result
    if _equal(ours, theirs):
        return ours
    three = (base, theirs, ours)
    if all(isinstance(one, dict) for one in three):
        return _merged_mapping(base, theirs, ours, path)
    if all(isinstance(one, list) for one in three):
        return _merged_list(base, theirs, ours, path)
    raise KeyClash(path)


def _equal(one: Any, other: Any) -> bool:
    if one is _ABSENT or other is _ABSENT:
        return one is other
    return same(one, other)


def _merged_mapping(
    base: dict[Any, Any], theirs: dict[Any, Any], ours: dict[Any, Any], path: tuple[Any, ...]
) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    for key, value in ours.items():
        merged = merged_document(base.get(key, _ABSENT), theirs.get(key, _ABSENT), value, (*path, key))
        if merged is not _ABSENT:
            result[key] = merged
    previous: Any = _ABSENT
    for key, value in theirs.items():
        if key not in ours and merged_document(base.get(key, _ABSENT), value, _ABSENT, (*path, key)) is value:
            result = _placed(result, key, value, previous)
        if key in result:
            previous = key
    return result


def _placed(entries: dict[Any, Any], key: Any, value: Any, previous: Any) -> dict[Any, Any]:
    """A key that comes back stands behind the one it stood behind before."""
    rest = list(entries.items())
    place = 0 if previous is _ABSENT else [name for name, _ in rest].index(previous) + 1
    return dict([*rest[:place], (key, value), *rest[place:]])


def _merged_list(base: list[Any], theirs: list[Any], ours: list[Any], path: tuple[Any, ...]) -> list[Any]:
    """Entries are found by equal value and neighbours. One that both changed is merged inside where no entry came or
    went."""
    tokens = [[_token(entry) for entry in part] for part in (base, theirs, ours)]
    try:
        return edited(ours, merge_edits(*tokens), theirs)
    except Clash as clash:
        if not _stay_in_place(*tokens):
            raise KeyClash((*path, clash.start), clash.ambiguous) from None
    three = enumerate(zip(base, theirs, ours, strict=True))
    return [merged_document(*entries, (*path, index)) for index, entries in three]


def _stay_in_place(base: list[Any], theirs: list[Any], ours: list[Any]) -> bool:
    """Whether no entry was added, removed or moved: then its position identifies it."""
    if not len(base) == len(theirs) == len(ours):
        return False
    known = set(base)
    return len(known) == len(base) and all(
        one == old or one not in known for new in (theirs, ours) for one, old in zip(new, base, strict=True)
    )


def _token(value: Any) -> Any:
    """The same for values that are the same."""
    if isinstance(value, dict):
        entries = cast("dict[Any, Any]", value)
        return dict, frozenset((_token(key), _token(held)) for key, held in entries.items())
    if isinstance(value, list):
        return list, tuple(_token(held) for held in cast("list[Any]", value))
    if isinstance(value, Tagged):
        return Tagged, value.tag, _token(value.value)
    if isinstance(value, float):
        return float, repr(float(value))
    return plain_type(value), value


_LARGEST_YAML = 1 << 20  # its parser needs a minute for more
_CONTEXT = 3


class Merged(NamedTuple):
    content: bytes | None  # None: it did not merge
    detail: str
    diff: str = ""  # what the merge changes in the file as it is now


def merge(ours: bytes, base: bytes, theirs: bytes, path: bytes) -> Merged:
    """`ours` with what leads from `base` to `theirs`. The name of the file says whether it has keys."""
    from takeback.adapters.config.formats import known_format

    three = (ours, base, theirs)
    format = known_format(os.fsdecode(path))
    if format == "yaml" and max(map(len, three)) > _LARGEST_YAML:
        return Merged(None, f"is too large to merge by key (over {_LARGEST_YAML >> 20} MB)")
    if any(b"\0" in one for one in three):
        return Merged(None, "is not text, so it cannot be merged")
    result = _by_key(format, *three) if format else _by_line(*three)
    if result.content is None:
        return result
    return result._replace(diff=unified(ours, result.content, os.path.basename(path)))


def lines_merged(ours: bytes, base: bytes, theirs: bytes) -> bytes | None:
    """None if it is not clean."""
    return _by_line(ours, base, theirs).content


def _by_line(ours: bytes, base: bytes, theirs: bytes) -> Merged:
    now, old, new = (one.splitlines(keepends=True) for one in (ours, base, theirs))
    try:
        merged = edited(now, merge_edits(old, new, now), new)
    except Clash as clash:
        first, last = clash.start + 1, max(clash.start + 1, clash.end)
        where = f"line {first:,}" if first == last else f"lines {first:,} to {last:,}"
        return Merged(None, f"does not merge: {where} {_why(clash)}")
    return Merged(b"".join(merged), "merged by line; other changes stay")


def _why(clash: "Clash | KeyClash") -> str:
    return "could be merged in more than one way" if clash.ambiguous else "changed since"


def _by_key(format: str, ours: bytes, base: bytes, theirs: bytes) -> Merged:
    from takeback.adapters.config import formats
    from takeback.errors import TakebackError

    try:
        now, old, new = (formats.read(format, one) for one in (ours, base, theirs))
        wanted = merged_document(old, new, now)
        by_line = lines_merged(ours, base, theirs)
        if by_line is not None and same(formats.read(format, by_line), wanted):
            # Comments and layout of the change go with it.
            return Merged(by_line, "merged by key; other changes stay")
        if same(old, new):
            return Merged(None, "does not merge: the change is in comments or layout, which changed since")
        data = formats.rewritten(format, ours, wanted)
    except KeyClash as clash:
        return Merged(None, f"does not merge: {clash.pointer or 'the whole document'} {_why(clash)}")
    except TakebackError as error:
        return Merged(None, f"does not merge: {str(error).rstrip('.')}. {error.hint}".rstrip(" ."))
    except RecursionError:
        return Merged(None, "does not merge: it is nested too deeply")
    return Merged(data, "merged by key; other changes stay, and comments are as they are now")


def unified(ours: bytes, result: bytes, name: bytes) -> str:
    """The difference as `diff -u` shows it."""
    lines = [one.splitlines(keepends=True) for one in (ours, result)]
    numbers: dict[bytes, int] = {}
    changed = hunks(*([numbers.setdefault(line, len(numbers)) for line in part] for part in lines))
    if not changed:
        return ""
    shown = os.fsdecode(name)
    told = [f"--- {shown} (now)\n", f"+++ {shown} (merged)\n"]
    for group in _groups(changed):
        told += _group(group, *lines)
    return "".join(told)


def _groups(changed: Sequence[Hunk]) -> list[list[Hunk]]:
    """Those that are near each other are shown together."""
    found: list[list[Hunk]] = []
    for hunk in changed:
        if found and hunk.start - found[-1][-1].end <= 2 * _CONTEXT:
            found[-1].append(hunk)
        else:
            found.append([hunk])
    return found


def _group(group: list[Hunk], old: list[bytes], new: list[bytes]) -> list[str]:
    before = min(_CONTEXT, group[0].start)
    after = min(_CONTEXT, len(old) - group[-1].end)
    start, new_start = group[0].start - before, group[0].new_start - before
    size, new_size = group[-1].end + after - start, group[-1].new_end + after - new_start
    told = [f"@@ -{_span(start, size)} +{_span(new_start, new_size)} @@\n"]
    at = start
    for hunk in group:
        told += _shown(" ", old[at : hunk.start])
        told += _shown("-", old[hunk.start : hunk.end])
        told += _shown("+", new[hunk.new_start : hunk.new_end])
        at = hunk.end
    return told + _shown(" ", old[at : at + after])


def _span(start: int, size: int) -> str:
    return f"{start + 1 if size else start},{size}"


def _shown(sign: str, lines: list[bytes]) -> list[str]:
    odd = "\n\\ No newline at end of file\n"
    return [
        sign + line.decode("utf-8", "replace") + ("" if line.endswith((b"\n", b"\r")) else odd)
        for line in lines
    ]
