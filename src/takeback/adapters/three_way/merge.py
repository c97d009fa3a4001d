"""Take one change out of the content of a file: text by line, configuration by key. Clean or not at all."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from takeback.adapters.config.keys import Tagged, plain_type, pointer_of, same
from takeback.adapters.three_way.sequence import Clash, Hunk, edited, hunks, merge_edits

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


_LARGEST_BY_KEY = {"yaml": 1 << 20}  # its parser needs a minute for more
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
    most = _LARGEST_BY_KEY.get(format, 0)
    if most and max(map(len, three)) > most:
        return Merged(None, f"is too large to merge by key (over {most >> 20} MB)")
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
        return Merged(
            b"".join(edited(now, merge_edits(old, new, now), new)), "merged by line; other changes stay"
        )
    except Clash as clash:
        where = _lines(clash.start, clash.end)
        if clash.ambiguous:
            return Merged(None, f"does not merge: {where} could be merged in more than one way")
        return Merged(None, f"does not merge: {where} changed since")


def _lines(start: int, end: int) -> str:
    first, last = start + 1, max(start + 1, end)
    return f"line {first:,}" if first == last else f"lines {first:,} to {last:,}"


def _by_key(format: str, ours: bytes, base: bytes, theirs: bytes) -> Merged:
    from takeback.adapters.config import formats
    from takeback.adapters.config.keys import same
    from takeback.errors import TakebackError

    try:
        now, old, new = (formats.read(format, one) for one in (ours, base, theirs))
        wanted = merged_document(old, new, now)
        by_line = lines_merged(ours, base, theirs)
        if by_line is not None and same(formats.read(format, by_line), wanted):
            return Merged(
                by_line, "merged by key; other changes stay"
            )  # comments and layout of the change go with it
        if same(old, new):
            return Merged(None, "does not merge: the change is in comments or layout, which changed since")
        data = formats.rewritten(format, ours, wanted)
    except KeyClash as clash:
        where = clash.pointer or "the whole document"
        why = "could be merged in more than one way" if clash.ambiguous else "changed since"
        return Merged(None, f"does not merge: {where} {why}")
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
        told += [_shown(" ", line) for line in old[at : hunk.start]]
        told += [_shown("-", line) for line in old[hunk.start : hunk.end]]
        told += [_shown("+", line) for line in new[hunk.new_start : hunk.new_end]]
        at = hunk.end
    return told + [_shown(" ", line) for line in old[at : at + after]]


def _span(start: int, size: int) -> str:
    return f"{start + 1 if size else start},{size}"


def _shown(sign: str, line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    return (
        f"{sign}{text}" if line.endswith((b"\n", b"\r")) else f"{sign}{text}\n\\ No newline at end of file\n"
    )


def merged_value(base: Any, theirs: Any, ours: Any) -> tuple[bool, Any]:
    """Whether the values of one key merge, and what comes of it."""

    try:
        return True, merged_document(base, theirs, ours)
    except KeyClash:
        return False, None
