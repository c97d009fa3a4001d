"""Keys and what they hold, in words: for conflicts and for the difference that people look at."""

from datetime import UTC, datetime
from typing import Any

from takeback.adapters.database.protocol import RowChange
from takeback.adapters.redis.content import Content
from takeback.adapters.redis.images import NEVER, Image, content
from takeback.adapters.redis.streams import Stream

_LONG = 40
EXPIRES = "(expires)"


def text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def in_words(image: Image) -> str:
    """Short: `hash of 3 fields`, `string 'abc'`."""
    if image.dump is None:
        return "nothing"
    found = content(image)
    until = "" if image.expires == NEVER else f" until {when(image.expires)}"
    return _of(found) + until


def _of(found: Content) -> str:
    if found.type == "string":
        shown = text(found.value[:_LONG])
        return f"string {shown!r}" + (f" … ({len(found.value)} bytes)" if len(found.value) > _LONG else "")
    if found.type == "unknown":
        return f"a value of a type that takeback does not know ({len(found.value)} bytes)"
    size = len(found.value.entries) if isinstance(found.value, Stream) else len(found.value)
    noun = {"list": "element", "set": "member", "zset": "member", "hash": "field", "stream": "entry"}[
        found.type
    ]
    plural = "entries" if noun == "entry" else f"{noun}s"
    return f"{found.type} of {size} {noun if size == 1 else plural}"


def when(milliseconds: int) -> str:
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{milliseconds % 1000:03d}Z"


def row(before: Image, after: Image) -> RowChange:
    types = [content(one).type for one in (before, after) if one.dump is not None]
    table = " → ".join(dict.fromkeys(types)) or "none"
    return RowChange(table, text(before.key), _columns(before), _columns(after))


def _columns(image: Image) -> dict[str, str | None] | None:
    if image.dump is None:
        return None
    found = content(image)
    columns: dict[str, str | None] = dict(_values(found.type, found.value))
    if image.expires != NEVER:
        columns[EXPIRES] = when(image.expires)
    return columns


def _values(kind: str, value: Any) -> list[tuple[str, str | None]]:
    if kind == "list":
        return [(str(place), text(one)) for place, one in enumerate(value)]
    if kind == "set":
        return [(text(one), "member") for one in sorted(value)]
    if kind == "hash":
        return [(text(field), text(one)) for field, one in sorted(value.items())]
    if kind == "zset":
        return [
            (text(member), f"{score:.17g}")
            for member, score in sorted(value.items(), key=lambda pair: (pair[1], pair[0]))
        ]
    if isinstance(value, Stream):
        return _stream(value)
    return [("value", text(value))]


def _stream(value: Stream) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = [
        (
            f"{id[0]}-{id[1]}",
            " ".join(f"{text(name)}={text(one)}" for name, one in zip(parts[::2], parts[1::2], strict=True)),
        )
        for id, parts in sorted(value.entries.items())
    ]
    for name, group in sorted(value.groups.items()):
        pending = ", ".join(f"{id[0]}-{id[1]} {text(to[0])}" for id, to in sorted(group.pending.items()))
        found.append(
            (f"(group {text(name)})", f"at {group.last[0]}-{group.last[1]}; pending: {pending or 'nothing'}")
        )
    return found
