"""What setting, deleting and putting back keys makes of a document, and the steps that lead there."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from takeback.adapters.config.keys import (
    APPEND,
    ROOT,
    Tagged,
    covers,
    find,
    is_index,
    key_in,
    plain_type,
    pointer_of,
    same,
    tokens,
)
from takeback.errors import Misuse, Refused


class Restored(NamedTuple):
    """What one key is to be again."""

    pointer: str
    present: bool
    value: Any = None
    after: str | None = None  # the key it came after; "" for none, None for "at the end"
    key: Any = None  # the key itself where it is not plain text


class Outcome(NamedTuple):
    wanted: Any  # the document as it shall be
    on_the_way: Any  # with everything set and nothing deleted yet
    touched: tuple[str, ...]  # the keys to name; a list whose length changes is named as a whole
    made: tuple[str, ...]  # parents that had to be made, outermost first


def with_changes(document: Any, sets: Mapping[str, Any], deletes: Iterable[str]) -> Outcome:
    """The document with these keys set and those gone. Pointers name places in the document as it is now."""
    gone = tuple(dict.fromkeys(deletes))
    _refuse_overlap([*sets, *gone])
    touched: list[str] = []
    made: list[str] = []
    wanted = copied(document)
    for pointer, value in sets.items():
        touched.append(_set(wanted, tokens(pointer), value, made))
    on_the_way = copied(wanted) if gone else wanted
    # From the back, so that the positions still to come stay what they were.
    for path in sorted((tokens(pointer) for pointer in gone), key=_back_to_front, reverse=True):
        touched.append(_delete(wanted, path))
    order = list(dict.fromkeys(touched))
    named = [p for p in order if not any(p != other and covers(other, p) for other in order)]
    return Outcome(wanted, on_the_way, tuple(named), tuple(dict.fromkeys(made)))


def with_restored(document: Any, keys: Iterable[Restored], made: Iterable[str] = ()) -> Outcome:
    """The document with each key as it was; parents in `made` go too when they are left empty."""
    wanted = copied(document)
    made_again: list[str] = []
    pending = list(keys)
    touched = tuple(key.pointer for key in pending)
    while pending:
        key = pending.pop(_first_to_restore(pending))
        path = tokens(key.pointer)
        if not path:
            wanted = copied(key.value)
            continue
        if not key.present:
            _delete(wanted, path)
            continue
        is_new = not find(wanted, key.pointer)[0]
        _set(wanted, path, key.value, made_again)
        parent = find(wanted, pointer_of(path[:-1]))[1]
        if is_new and isinstance(parent, dict):
            _place(cast("dict[Any, Any]", parent), path[-1], key)
    for pointer in sorted(made, key=len, reverse=True):
        if find(wanted, pointer) == (True, {}):
            _delete(wanted, tokens(pointer))
    return Outcome(wanted, wanted, touched, tuple(dict.fromkeys(made_again)))


def copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list):
        return [copied(inner) for inner in cast("list[Any]", value)]
    return value


def _refuse_overlap(pointers: list[str]) -> None:
    for place, pointer in enumerate(pointers):
        if pointer == ROOT:
            raise Misuse(
                "The empty pointer names the whole document.",
                hint="To replace all of it, write the whole file.",
            )
        for other in pointers[place + 1 :]:
            if covers(pointer, other) or covers(other, pointer):
                raise Misuse(
                    f"The keys {pointer} and {other} are one inside the other.",
                    hint="Ask for each key once, or make two edits.",
                )


def _back_to_front(path: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    return tuple((int(token), "") if is_index(token) else (-1, token) for token in path)


def _set(document: Any, path: tuple[str, ...], value: Any, made: list[str]) -> str:
    container = document
    named: str | None = None
    for depth, token in enumerate(path):
        here, last = pointer_of(path[: depth + 1]), depth == len(path) - 1
        if isinstance(container, list):
            items = cast("list[Any]", container)
            index = len(items) if token == APPEND else _index(items, token, path[:depth])
            if index == len(items):
                items.append({})
                named = pointer_of(path[:depth]) if named is None else named
            if last:
                items[index] = value
            container = items[index]
            continue
        mapping = _mapping(container, path[:depth])
        key = key_in(mapping, token)
        if last:
            mapping[key] = value
        elif key not in mapping:
            mapping[key] = {}
            made.append(here)
        container = mapping[key]
    return pointer_of(path) if named is None else named


def _delete(document: Any, path: tuple[str, ...]) -> str:
    parent_pointer = pointer_of(path[:-1])
    present, parent = find(document, parent_pointer)
    if not present:
        return pointer_of(path)
    if isinstance(parent, list):
        items = cast("list[Any]", parent)
        if not is_index(path[-1]) or int(path[-1]) >= len(items):
            return pointer_of(path)
        del items[int(path[-1])]
        return parent_pointer
    mapping = _mapping(parent, path[:-1])
    mapping.pop(key_in(mapping, path[-1]), None)
    return pointer_of(path)


def _first_to_restore(keys: list[Restored]) -> int:
    """One whose neighbour is not itself still missing; so that keys come back in their old order."""
    coming = {key.pointer for key in keys if key.present}
    for place, key in enumerate(keys):
        neighbour = pointer_of((*tokens(key.pointer)[:-1], key.after)) if key.after else ""
        if neighbour not in coming:
            return place
    return 0


def _place(entries: dict[Any, Any], token: str, restored: Restored) -> None:
    """Move a new entry behind its old neighbour, under its old key."""
    anchor = key_in(entries, restored.after) if restored.after else None
    value = entries.pop(key_in(entries, token))
    rest = list(entries.items())
    place = len(rest)
    if restored.after is not None and (anchor is None or anchor in entries):
        place = next((n + 1 for n, (name, _) in enumerate(rest) if name == anchor), 0)
    rest.insert(place, (token if restored.key is None else restored.key, value))
    entries.clear()
    entries.update(rest)


def _mapping(container: Any, path: tuple[str, ...]) -> dict[Any, Any]:
    if isinstance(container, dict):
        return cast("dict[Any, Any]", container)
    where = pointer_of(path) or "The document"
    if isinstance(container, Tagged) and container.tag == "*":
        raise Refused(
            f"{where} is an alias of &{container.value}, so a change in it would change other keys too.",
            hint="Edit the key that carries the anchor, or set the whole key.",
        )
    raise Refused(
        f"{where} holds {_in_words(container)}, not an object, so it has no keys.",
        hint=f"Set {where} itself." if path else "Write the whole file instead.",
    )


def _index(items: list[Any], token: str, path: tuple[str, ...]) -> int:
    if is_index(token) and int(token) <= len(items):
        return int(token)
    raise Refused(
        f"{pointer_of(path) or 'The document'} is a list of {len(items)}; {token!r} names no place in it.",
        hint='Use an index from 0, or "-" to append.',
    )


def _in_words(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "a list"
    return {str: "text", int: "a number", float: "a number"}.get(plain_type(value), "a single value")


# -- steps from one document to another


class Put(NamedTuple):
    """Give this place another value."""

    path: tuple[Any, ...]
    value: Any


class Add(NamedTuple):
    """A new entry: in an object behind the key `after` (None: first), in a list at the index `key`."""

    path: tuple[Any, ...]  # of the container
    key: Any
    value: Any
    after: Any = None


class Drop(NamedTuple):
    path: tuple[Any, ...]


Step = Put | Add | Drop


class Unhandled(Exception):
    """The text around a step is laid out in a way that this editor does not know."""


def steps(now: Any, wanted: Any, path: tuple[Any, ...] = ()) -> Iterator[Step]:
    """The smallest steps, in an order in which each finds its place as named."""
    if same(now, wanted):
        return
    if isinstance(now, dict) and isinstance(wanted, dict):
        yield from _steps_in_mapping(cast("dict[Any, Any]", now), cast("dict[Any, Any]", wanted), path)
    elif isinstance(now, list) and isinstance(wanted, list):
        yield from _steps_in_list(cast("list[Any]", now), cast("list[Any]", wanted), path)
    else:
        yield Put(path, wanted)


def _steps_in_mapping(now: dict[Any, Any], wanted: dict[Any, Any], path: tuple[Any, ...]) -> Iterator[Step]:
    before: Any = None
    for key, value in wanted.items():
        if key in now:
            yield from steps(now[key], value, (*path, key))
        else:
            yield Add(path, key, value, before)
        before = key
    for key in now:
        if key not in wanted:
            yield Drop((*path, key))


def _steps_in_list(now: list[Any], wanted: list[Any], path: tuple[Any, ...]) -> Iterator[Step]:
    import difflib

    matcher = difflib.SequenceMatcher(None, list(map(repr, now)), list(map(repr, wanted)), autojunk=False)
    for kind, start, end, from_, to in reversed(matcher.get_opcodes()):
        if kind == "equal":
            continue
        paired = min(end - start, to - from_)
        # New ones before old ones go: a list that is never empty keeps its shape on the page.
        for offset in reversed(range(paired, to - from_)):
            yield Add(path, start + paired, wanted[from_ + offset])
        for index in reversed(range(start + paired, end)):
            yield Drop((*path, index))
        for offset in reversed(range(paired)):
            yield from steps(now[start + offset], wanted[from_ + offset], (*path, start + offset))
