"""Keys of a document as RFC 6901 pointers, and the plain values they lead to; nothing here knows a format."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from takeback.errors import Misuse
from takeback.model.resource import quote, unquote

ROOT = ""  # the pointer to the whole document
APPEND = "-"  # the place behind the last item of a list


class Tagged(NamedTuple):
    """A YAML value that JSON has no word for: a date, an alias (tag `*`), something with a tag of its own."""

    tag: str
    value: Any

    def __str__(self) -> str:
        return str(self.value)


class SpelledInt(int):
    """A whole number that remembers how it was written (0o755)."""

    text: str

    def __repr__(self) -> str:
        return self.text


class SpelledFloat(float):
    """A number that remembers how it was written (1.50, 1e400)."""

    text: str

    def __repr__(self) -> str:
        return self.text


def spelled_int(value: int, text: str) -> SpelledInt:
    number = SpelledInt(value)
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
    """What a caller may ask for. A document may hold stranger keys; those we must still be able to take back."""
    if not isinstance(pointer, str):
        raise Misuse(f"{pointer!r} is not a key pointer.", hint='Give text, for example "/server/port".')
    tokens(pointer)
    if pointer.replace("~0", "").replace("~1", "").count("~"):
        raise Misuse(
            f"{pointer!r} is not a key pointer: ~ stands only in ~0 (for ~) and ~1 (for /).",
            hint="Write ~0 for a ~ in a key.",
        )
    demand_whole(pointer)


def demand_whole(text: str) -> None:
    if any("\ud800" <= c <= "\udfff" for c in text):
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
