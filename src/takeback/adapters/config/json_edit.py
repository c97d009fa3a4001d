"""JSON, changed by surgery on its text: what is not touched stays as it was typed.

`jsonc` is JSON with comments and trailing commas (tsconfig, editor settings). For reading, those are blanked
out with spaces, so that every position in the blanked text is the same position in the real one.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

from takeback.adapters.config.keys import (
    Add,
    Drop,
    EditStep,
    Put,
    SpelledFloat,
    has_half_a_character,
    line_start,
    spelled_float,
)
from takeback.errors import Misuse, Refused

_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"[^\s,\]}]+")
_SPACE = re.compile(r"[ \t\r\n]*")
_BLANKS = re.compile(r"[ \t]*")
_COMMA = re.compile(r"\s*,")
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\r\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=[ \t\r\n]*[\]}])', re.DOTALL)
_REST = re.compile(r"[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/[ \t]*)?(?=\r?\n|\Z)")
_ENOUGH = 200  # nodes to look at for how the file is laid out


class JsonEntry(NamedTuple):
    key: Any  # text in an object, a position in a list
    start: int  # where the key begins, or the value in a list
    value: "JsonNode"


class JsonNode(NamedTuple):
    start: int
    end: int
    entries: tuple[JsonEntry, ...] | None = None  # None: a scalar


class JsonStyle(NamedTuple):
    newline: str
    unit: str  # one level of indentation; "" when everything is on one line
    item: str  # between items on one line
    colon: str
    ascii: bool


def parse(text: str, comments: bool = False) -> Any:
    try:
        return json.loads(
            blanked(text) if comments else text,
            object_pairs_hook=_unique,
            parse_float=spelled_float,
            parse_constant=_no_constant,
        )
    except RecursionError:
        raise Refused("The JSON is nested too deeply.", hint="Write the whole file instead.") from None
    except ValueError as error:
        hint = "Put the file right first, or write the whole file instead."
        if not comments and re.search(r"^\s*(//|/\*)", text, re.MULTILINE):
            hint = "It seems to have comments: name the format jsonc (--format, format=)."
        raise Refused(f"This is not valid JSON: {error}.", hint=hint) from error


def change(text: str, step: EditStep, comments: bool = False) -> str:
    root = _node(blanked(text) if comments else text)
    style = _style(text, root)
    match step:
        case Put(path, value):
            node = _at(root, path)
            new = render(value, style, _indent_at(text, node.start), _is_broken(text, root))
            return text[: node.start] + new + text[node.end :]
        case Add(path, key, value, after):
            return _added(text, root, _at(root, path), (key, value, after), style)
        case Drop(path):
            return _dropped(text, _at(root, path[:-1]), path[-1], comments)


def render(value: Any, style: JsonStyle | None = None, indent: str = "", broken: bool = False) -> str:
    """JSON text; `broken` puts each entry on its own line, below `indent`."""
    style = style or JsonStyle("\n", "", ", ", ": ", ascii=False)
    if isinstance(value, SpelledFloat):
        return value.text
    if isinstance(value, dict):
        entries = [
            _scalar(key, style) + style.colon + render(inner, style, indent + style.unit, broken)
            for key, inner in cast("dict[str, Any]", value).items()
        ]
        return _joined("{", entries, "}", style, indent, broken)
    if isinstance(value, list):
        items = [render(inner, style, indent + style.unit, broken) for inner in cast("list[Any]", value)]
        return _joined("[", items, "]", style, indent, broken)
    return _scalar(value, style)


def blanked(text: str) -> str:
    """The same text with comments and trailing commas as spaces."""
    return _LAST_COMMA.sub(_blank, without_comments(text))


def without_comments(text: str) -> str:
    """The same text with comments as spaces."""
    return _COMMENT.sub(_blank, text)


def _blank(match: re.Match[str]) -> str:
    found = match.group()
    return found if found.startswith('"') else re.sub(r"[^\r\n]", " ", found)


# -- reading


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is there twice")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _node(text: str, position: int = 0) -> JsonNode:
    """Where everything is. The text was parsed before, so it is known to be valid."""
    start = _skip(text, position)
    if text[start] not in "{[":
        scalar = _STRING.match(text, start) or _SCALAR.match(text, start)
        return JsonNode(start, scalar.end() if scalar else start)
    is_object = text[start] == "{"
    entries: list[JsonEntry] = []
    position = _skip(text, start + 1)
    while text[position] not in "]}":
        if text[position] == ",":
            position = _skip(text, position + 1)
        key: Any = len(entries)
        begin = position
        if is_object:
            name = _STRING.match(text, position)
            assert name is not None
            key = json.loads(name.group())
            position = _skip(text, name.end()) + 1
        value = _node(text, position)
        entries.append(JsonEntry(key, begin, value))
        position = _skip(text, value.end)
    return JsonNode(start, position + 1, tuple(entries))


def _skip(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _at(node: JsonNode, path: tuple[Any, ...]) -> JsonNode:
    for key in path:
        node = next(entry.value for entry in node.entries or () if entry.key == key)
    return node


def _is_broken(text: str, node: JsonNode) -> bool:
    return bool(node.entries) and "\n" in text[node.start : node.end]


def _indent_at(text: str, position: int) -> str:
    found = _BLANKS.match(text, line_start(text, position))
    return found.group() if found else ""


def _opens_line(text: str, position: int) -> bool:
    return not text[line_start(text, position) : position].strip(" \t")


def _style(text: str, root: JsonNode) -> JsonStyle:
    unit, item, colon = "", ", ", ": "
    nodes = [root]
    for node in nodes:
        if not node.entries:
            continue
        if len(nodes) < _ENOUGH:
            nodes.extend(entry.value for entry in node.entries)
        first = node.entries[0]
        if not unit and _opens_line(text, first.start):
            inner, outer = _indent_at(text, first.start), _indent_at(text, node.start)
            unit = inner[len(outer) :] if inner.startswith(outer) else ""
        if isinstance(first.key, str):
            between = text[first.start : first.value.start]
            colon = between[between.rindex('"') + 1 :] if between.count('"') == 2 else colon
        if len(node.entries) > 1 and not _is_broken(text, node):
            item = text[first.value.end : node.entries[1].start]
    newline = "\r\n" if "\r\n" in text else "\n"
    if "\n" in colon or "/" in colon:
        colon = ": "
    if item.strip() != "," or "\n" in item:
        item = ", "
    return JsonStyle(newline, unit or "  ", item, colon, ascii=text.isascii() and "\\u" in text)


# -- writing


def _scalar(value: Any, style: JsonStyle) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=style.ascii or has_half_a_character(value))
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value, allow_nan=False)
    raise Misuse(
        f"JSON has no way to write a {type(value).__name__}.", hint="Give it as text, number, list or object."
    )


def _joined(opening: str, parts: list[str], closing: str, style: JsonStyle, indent: str, broken: bool) -> str:
    if not broken or not parts:
        return opening + style.item.join(parts) + closing
    line = style.newline + indent
    return opening + ",".join(line + style.unit + part for part in parts) + line + closing


def _added(text: str, root: JsonNode, into: JsonNode, entry: tuple[Any, Any, Any], style: JsonStyle) -> str:
    key, value, after = entry
    label = _scalar(key, style) + style.colon if isinstance(key, str) else ""
    here = _indent_at(text, into.start)
    if not into.entries:
        broken = _is_broken(text, root) or (into == root and "\n" in text.rstrip())
        inner = label + render(value, style, here + style.unit, broken)
        inside = text[into.start + 1 : into.end - 1]
        if inside.strip():  # only a comment
            end = into.end - 1 if not inside.rstrip(" \t").endswith("\n") else line_start(text, into.end - 1)
            return text[:end] + here + style.unit + inner + style.newline + text[end:]
        new = _joined(text[into.start], [inner], text[into.end - 1], style, here, broken)
        return text[: into.start] + new + text[into.end :]
    place = _place(into.entries, key, after)
    neighbour = into.entries[max(place - 1, 0)]
    own_lines = _opens_line(text, neighbour.start)
    indent = _indent_at(text, neighbour.start)
    new = label + render(value, style, indent, own_lines)
    if place == 0:
        gap = "," + style.newline + indent if own_lines else style.item
        return text[: neighbour.start] + new + gap + text[neighbour.start :]
    end = neighbour.value.end
    if not own_lines:
        return text[:end] + style.item + new + text[end:]
    comma = _COMMA.match(text, end)
    behind = comma.end() if comma else end
    line_rest = _REST.match(text, behind)
    if line_rest is None:  # more follows on this line
        return text[:end] + "," + style.newline + indent + new + text[end:]
    # Behind the rest of the line, so that a comment stays with what it is about.
    head = text[:behind] if comma else text[:end] + ","
    line = style.newline + indent + new + ("," if comma else "")
    return head + text[behind : line_rest.end()] + line + text[line_rest.end() :]


def _place(entries: tuple[JsonEntry, ...], key: Any, after: Any) -> int:
    if isinstance(key, int):
        return key
    return next((n + 1 for n, entry in enumerate(entries) if entry.key == after), 0)


def _dropped(text: str, parent: JsonNode, key: Any, comments: bool) -> str:
    entries = parent.entries or ()
    place = next(n for n, entry in enumerate(entries) if entry.key == key)
    entry = entries[place]
    end = entry.value.end
    has_comments = comments and blanked(text[parent.start : parent.end]) != text[parent.start : parent.end]
    if len(entries) == 1 and not has_comments:
        return text[: parent.start + 1] + text[parent.end - 1 :]
    comma = _COMMA.match(text, end)
    behind = comma.end() if comma else end
    line_rest = _REST.match(text, behind)
    if _opens_line(text, entry.start) and line_rest and line_rest.end() < len(text):
        stop = text.index("\n", line_rest.end()) + 1
        head = text[: line_start(text, entry.start)]
        if place and place == len(entries) - 1 and not comma:
            previous = entries[place - 1].value.end
            head = head[:previous] + re.sub(r"^(\s*),", r"\1", head[previous:], count=1)
        return head + text[stop:]
    if place < len(entries) - 1:
        return text[: entry.start] + text[entries[place + 1].start :]
    start = entries[place - 1].value.end if place else entry.start
    return text[:start] + text[end:]
