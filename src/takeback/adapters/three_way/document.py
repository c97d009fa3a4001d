"""Merge documents key by key: what one change did to a document is taken out of a later state of it."""

from typing import Any, cast

from takeback.adapters.config.keys import Tagged, plain_type, pointer_of, same
from takeback.adapters.three_way.sequence import Clash, edited, merge_edits

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
    """Whether no entry came, went or moved: then its place tells which one it is."""
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
