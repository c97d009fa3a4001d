"""Keys of a document as RFC 6901 pointers, and the plain values they lead to; nothing here knows a format."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from takeback.errors import Misuse, Refused
from takeback.model.resource import quote, unquote

ROOT = ""  # the pointer to the whole document
APPEND = "-"  # the place behind the last item of a list


class Tagged(NamedTuple):
    """A YAML value that JSON has no word for: a date, an alias (tag `*`), something with a tag of its own."""

    tag: str
    value: Any

    def __str__(self) -> str:
        return str(self.value)


class _Spelled:
    """A number that remembers how it was written."""

    text: str

    def __repr__(self) -> str:
        return self.text


class SpelledInt(_Spelled, int):
    """Such as 0o755."""


class SpelledFloat(_Spelled, float):
    """Such as 1.50 and 1e400."""


def spelled_int(text: str, base: int) -> SpelledInt:
    number = SpelledInt(text, base)
    number.text = text
    return number


def spelled_float(text: str) -> SpelledFloat:
    number = SpelledFloat(text.replace("_", ""))
    number.text = text
    return number


# -- pointers


def tokens(pointer: str) -> tuple[str, ...]:
    if pointer == ROOT:
        return ()
    if not pointer.startswith("/"):
        raise Misuse(
            f"{pointer!r} is not a key pointer: it must begin with a slash.",
            hint='Write keys as JSON pointers, for example "/server/tls/enabled".',
        )
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/"))


def demand_pointer(pointer: object) -> None:
    """Refuse a key that a caller must not ask for. Documents may hold stranger keys; undo must still handle those."""
    if not isinstance(pointer, str):
        raise Misuse(f"{pointer!r} is not a key pointer.", hint='Give text, for example "/server/port".')
    tokens(pointer)
    if pointer.replace("~0", "").replace("~1", "").count("~"):
        raise Misuse(
            f"{pointer!r} is not a key pointer: ~ stands only in ~0 (for ~) and ~1 (for /).",
            hint="Write ~0 for a ~ in a key.",
        )
    demand_whole(pointer)


def has_half_a_character(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)


def line_start(text: str, position: int) -> int:
    return text.rfind("\n", 0, position) + 1


def demand_whole(text: str) -> None:
    if has_half_a_character(text):
        raise Misuse(f"{text!a} holds half a character.", hint="Use valid Unicode in keys and values.")


def pointer_of(path: Iterable[str]) -> str:
    return "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in path)


def to_fragment(pointer: str) -> str:
    """ASCII, as it stands behind the # of a resource."""
    return quote(pointer.encode("utf-8", "surrogatepass"))


def from_fragment(fragment: str) -> str:
    return unquote(fragment).decode("utf-8", "surrogatepass")


def covers(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer + "/")


# -- looking


def same(one: Any, other: Any) -> bool:
    """Equal in type as well as in value: 1 is neither true nor 1.0; the order of keys does not count."""
    if isinstance(one, dict) and isinstance(other, dict):
        mine, theirs = cast("dict[Any, Any]", one), cast("dict[Any, Any]", other)
        return mine.keys() == theirs.keys() and all(same(mine[key], theirs[key]) for key in mine)
    if isinstance(one, list) and isinstance(other, list):
        ours, others = cast("list[Any]", one), cast("list[Any]", other)
        return len(ours) == len(others) and all(map(same, ours, others))
    if isinstance(one, Tagged) and isinstance(other, Tagged):
        return one.tag == other.tag and same(one.value, other.value)
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return plain_type(one) is plain_type(other) and one == other


def plain_type(value: Any) -> type:
    if isinstance(value, SpelledInt):
        return int
    return type(value)  # pyright: ignore[reportUnknownVariableType]


def key_in(mapping: Mapping[Any, Any], token: str) -> Any:
    """The key a token names; the token when there is none. A YAML key need not be text: "8080" names 8080."""
    if token in mapping:
        return token
    return next((key for key in mapping if isinstance(key, Tagged) and str(key) == token), token)


def find(document: Any, pointer: str) -> tuple[bool, Any]:
    """Whether the key is there, and its value."""
    value = document
    for token in tokens(pointer):
        if isinstance(value, dict):
            mapping = cast("dict[Any, Any]", value)
            key = key_in(mapping, token)
            if key not in mapping:
                return False, None
            value = mapping[key]
        elif isinstance(value, list):
            items = cast("list[Any]", value)
            if not is_index(token) or int(token) >= len(items):
                return False, None
            value = items[int(token)]
        else:
            return False, None
    return True, value


def neighbours(document: Any, pointer: str) -> tuple[str | None, Any]:
    """The key right before this one ("" when it is the first, None when it is not there), and the key itself."""
    path = tokens(pointer)
    present, parent = find(document, pointer_of(path[:-1]))
    if not path or not present or not isinstance(parent, dict):
        return None, None
    keys = list(cast("dict[Any, Any]", parent))
    names = [str(key) for key in keys]
    if path[-1] not in names:
        return None, None
    place = names.index(path[-1])
    return (names[place - 1] if place else ""), keys[place]


def is_index(token: str) -> bool:
    return token.isascii() and token.isdigit() and (token == "0" or token[0] != "0")


# What setting, deleting and putting back keys makes of a document, and the steps that lead there.


class RestoredKey(NamedTuple):
    """What one key is to be again."""

    pointer: str
    present: bool
    value: Any = None
    after: str | None = None  # the key it came after; "" for none, None for "at the end"
    key: Any = None  # the key itself where it is not plain text


class EditedDocument(NamedTuple):
    wanted: Any  # the document as it shall be
    on_the_way: Any  # with everything set and nothing deleted yet
    touched: tuple[str, ...]  # the keys to name; a list whose length changes is named as a whole
    made: tuple[str, ...]  # parents that had to be made, outermost first


def with_changes(document: Any, sets: Mapping[str, Any], deletes: Iterable[str]) -> EditedDocument:
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
    return EditedDocument(wanted, on_the_way, tuple(named), tuple(dict.fromkeys(made)))


def with_restored(document: Any, keys: Iterable[RestoredKey], made: Iterable[str] = ()) -> EditedDocument:
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
    return EditedDocument(wanted, wanted, touched, tuple(dict.fromkeys(made_again)))


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


def _first_to_restore(keys: list[RestoredKey]) -> int:
    """One whose neighbour is not itself still missing; so that keys come back in their old order."""
    coming = {key.pointer for key in keys if key.present}
    for place, key in enumerate(keys):
        neighbour = pointer_of((*tokens(key.pointer)[:-1], key.after)) if key.after else ""
        if neighbour not in coming:
            return place
    return 0


def _place(entries: dict[Any, Any], token: str, restored: RestoredKey) -> None:
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


EditStep = Put | Add | Drop


class Unhandled(Exception):
    """The text around a step is laid out in a way that this editor does not know."""


def steps(now: Any, wanted: Any, path: tuple[Any, ...] = ()) -> Iterator[EditStep]:
    """The smallest steps, in an order in which each finds its place as named."""
    if same(now, wanted):
        return
    if isinstance(now, dict) and isinstance(wanted, dict):
        yield from _steps_in_mapping(cast("dict[Any, Any]", now), cast("dict[Any, Any]", wanted), path)
    elif isinstance(now, list) and isinstance(wanted, list):
        yield from _steps_in_list(cast("list[Any]", now), cast("list[Any]", wanted), path)
    else:
        yield Put(path, wanted)


def _steps_in_mapping(
    now: dict[Any, Any], wanted: dict[Any, Any], path: tuple[Any, ...]
) -> Iterator[EditStep]:
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


def _steps_in_list(now: list[Any], wanted: list[Any], path: tuple[Any, ...]) -> Iterator[EditStep]:
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
