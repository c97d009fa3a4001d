"""YAML read into nodes that know where they stand in the text.

Built from ruamel.yaml's events. Dates, aliases and words that old and new YAML read differently (`yes`,
12:30) stay what was typed, as `Tagged`: this code must write them again exactly, not calculate with them.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from takeback.adapters.config.keys import Tagged, spelled_float, spelled_int
from takeback.errors import Refused
from takeback.model.words import install_hint

ALIAS = "*"
PLAIN = "plain"  # YAML 1.1 and 1.2 disagree about it
TIMESTAMP = "timestamp"

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?([Tt \t].*)?")
_DISPUTED = re.compile(
    r"(y|yes|n|no|on|off)|<<|=|[-+]?0b[01_]+|[-+]?0[xo]?[0-9a-f]*_[0-9a-f_]*"
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?([e][-+]?[0-9]+)?",
    re.IGNORECASE,
)
_DEEPEST = 500
_CORE_TAGS = "tag:yaml.org,2002:"


class YamlNode(NamedTuple):
    value: Any
    start: int  # with anchor and tag
    body: int  # without
    end: int  # behind its last character that counts
    kind: str  # scalar · mapping · sequence
    flow: bool = False  # in brackets
    style: str = ""  # the quote or block indicator of a scalar
    entries: "tuple[YamlEntry, ...]" = ()


class YamlEntry(NamedTuple):
    key: Any  # text or Tagged in a mapping, a position in a sequence
    start: int  # of the key, or of the dash
    gap: int  # behind the colon or the dash
    value: YamlNode


def read(text: str) -> YamlNode:
    """The one document of the text; `Refused` if it is not valid, or not one."""
    if "\x00" in text:
        raise _invalid("it contains a null character")
    if _depth(text) > _DEEPEST:
        raise _invalid("it is nested too deeply")
    try:
        events = list(_events(text))
        documents = [event for event in events if type(event).__name__ == "DocumentStartEvent"]
        if len(documents) > 1:
            raise Refused(
                f"The file holds {len(documents)} YAML documents; a key would be ambiguous.",
                hint="Split the file, or write the whole file instead.",
            )
        return _Reader(text, events).document()
    except RecursionError:
        raise _invalid("it is nested too deeply") from None


def resolved(text: str) -> Any:
    """The value of a scalar without quotes."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return spelled_int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _FLOAT.fullmatch(text):
        return spelled_float(text)
    if _INFINITE.fullmatch(text):
        number = spelled_float(text.replace(".", "", 1))
        number.text = text
        return number
    if _DATE.fullmatch(text):
        return Tagged(TIMESTAMP, text)
    if _DISPUTED.fullmatch(text):
        return Tagged(PLAIN, text)
    return text


def _depth(text: str) -> int:
    """How deep the brackets go; the scanner's time grows with the square of it."""
    depth = deepest = 0
    for bracket in re.finditer(r"[\[{\]}]", text):
        depth = depth + 1 if bracket.group() in "[{" else max(depth - 1, 0)
        deepest = max(deepest, depth)
    return deepest


def _invalid(why: str) -> Refused:
    return Refused(
        f"This is not valid YAML: {why}.", hint="Put the file right first, or write the whole file instead."
    )


def _events(text: str) -> Iterator[Any]:
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import MarkedYAMLError, YAMLError
    except ImportError:
        raise Refused(
            "Editing YAML needs the package ruamel.yaml, which is not installed.",
            hint=install_hint("config"),
        ) from None
    try:
        yield from YAML(typ="safe", pure=True).parse(text)  # pyright: ignore[reportUnknownMemberType]
    except MarkedYAMLError as error:
        marked: Any = error
        mark = marked.problem_mark or marked.context_mark
        where = f" in line {mark.line + 1}" if mark else ""
        raise _invalid(f"{marked.problem or marked.context}{where}") from error
    except (YAMLError, ValueError) as error:
        raise _invalid(str(error).splitlines()[0]) from error


class _Reader:
    """Walks the events once; keeps the anchors seen so far."""

    def __init__(self, text: str, events: list[Any]) -> None:
        self.text = text
        self.events = iter(events)
        self.anchors: set[str] = set()

    def document(self) -> YamlNode:
        for event in self.events:
            name = type(event).__name__
            if name == "StreamEndEvent":
                end = len(self.text.rstrip())
                return YamlNode({}, end, end, end, "scalar")
            if name not in ("StreamStartEvent", "DocumentStartEvent"):
                return self.node(event)
        raise _invalid("it ends too early")

    def node(self, event: Any, empty_at: int | None = None) -> YamlNode:
        name = type(event).__name__
        if name == "AliasEvent":
            if event.anchor not in self.anchors:
                raise _invalid(f"the alias *{event.anchor} has no anchor before it")
            start, end = event.start_mark.index, event.end_mark.index
            return YamlNode(Tagged(ALIAS, event.anchor), start, start, end, "scalar")
        if event.anchor:
            self.anchors.add(event.anchor)
        if name == "ScalarEvent":
            return self.scalar(event, empty_at)
        return self.collection(event, "mapping" if name == "MappingStartEvent" else "sequence")

    def scalar(self, event: Any, empty_at: int | None) -> YamlNode:
        start, end, style = event.start_mark.index, event.end_mark.index, event.style or ""
        if start == end:
            start = end = start if empty_at is None else empty_at
        body = self.behind_properties(start)
        if style in ("|", ">"):
            kept = "+" in self.text[body:end].partition("\n")[0].partition("#")[0]
            held = self.text[body:end]
            end = body + len(held.removesuffix("\n") if kept else held.rstrip())
        tag = _short(event.tag)
        value: Any = str(event.value)
        if tag is None and not style:
            value = resolved(value)
        elif tag is not None and tag not in ("str", "!"):
            value = Tagged(tag, value)
        return YamlNode(value, start, min(body, end), end, "scalar", style=style)

    def collection(self, event: Any, kind: str) -> YamlNode:
        flow = bool(event.flow_style)
        entries: list[YamlEntry] = []
        names: set[str] = set()
        while not type(inner := next(self.events)).__name__.endswith("EndEvent"):
            is_pair = kind == "mapping"
            entries.append(self.pair(inner, names) if is_pair else self.item(inner, len(entries), flow))
        start = event.start_mark.index
        end = inner.end_mark.index if flow else entries[-1].value.end if entries else start
        body = self.behind_properties(start) if flow else entries[0].start if entries else start
        value: Any = (
            {entry.key: entry.value.value for entry in entries}
            if kind == "mapping"
            else [entry.value.value for entry in entries]
        )
        tag = _short(event.tag)
        if tag is not None and tag not in ("map", "seq"):
            value = Tagged(tag, value)
        return YamlNode(value, start, body, end, kind, flow, entries=tuple(entries))

    def pair(self, event: Any, names: set[str]) -> YamlEntry:
        key = self.node(event)
        if key.kind != "scalar":
            raise _invalid("a key that is itself a list or object cannot be named")
        name = key.value
        if not isinstance(name, (str, Tagged)):
            name = Tagged("key", self.text[key.body : key.end])
        if str(name) in names:
            raise _invalid(f"the key {str(name)!r} is there twice")
        names.add(str(name))
        colon = re.compile(r"\s*:").match(self.text, key.end)
        gap = colon.end() if colon else key.end
        return YamlEntry(name, key.start, gap, self.node(next(self.events), gap))

    def item(self, event: Any, place: int, flow: bool) -> YamlEntry:
        if flow:
            value = self.node(event)
            return YamlEntry(place, value.start, value.start, value)
        is_empty = type(event).__name__ == "ScalarEvent" and event.start_mark.index == event.end_mark.index
        dash = self.text.rfind("-", 0, event.start_mark.index)
        value = self.node(event, dash + 1 if is_empty else None)
        return YamlEntry(place, dash, dash + 1, value)

    def behind_properties(self, start: int) -> int:
        found = re.compile(r"(?:[&!][^\s,\[\]{}]*[ \t]*)*").match(self.text, start)
        return found.end() if found else start


def _short(tag: Any) -> str | None:
    return None if tag is None else str(tag).removeprefix(_CORE_TAGS)
