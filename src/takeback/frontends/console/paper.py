"""Templates, and the one filter that all output passes: what an agent wrote can neither be markup nor hide."""

import json
import os
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from takeback.api import now
from takeback.frontends.cli.output.screen import ago, ahead, clean, counted, seconds_in_words
from takeback.model.ids import short
from takeback.model.resource import display
from takeback.model.settings import bytes_in_words
from takeback.policy.secrets import masked, masked_json

HERE = os.path.dirname(__file__)
_MOST = 4_000  # characters of one value
_BRIEF = 28
_SHORT = 200
_MOST_STACKED = 3  # marks over one letter


def visible(value: Any, most: int = _MOST) -> Any:
    """Text without secrets, in which each character can be seen: control, zero-width and direction characters become
    escapes; too many marks over one letter and text without end are cut."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return _short_visible(value) if len(value) <= min(_SHORT, most) else _visible(value, most)


def _visible(text: str, most: int) -> str:
    left = len(text) - most
    told = plain(masked(text[:most] if left > 0 else text))
    return f"{told} … and {left:,} more characters" if left > 0 else told


@lru_cache(maxsize=4096)  # names and states come again on every line
def _short_visible(text: str) -> str:
    return _visible(text, _SHORT)


def plain(text: str) -> str:
    return _unstacked(clean(text))


def _unstacked(text: str) -> str:
    if text.isascii():
        return text
    kept: list[str] = []
    stacked = 0
    for one in text:
        stacked = stacked + 1 if unicodedata.combining(one) else 0
        kept.append(one if stacked <= _MOST_STACKED else f"\\u{ord(one):04x}")
    return "".join(kept)


def raw(text: str) -> Markup:
    """For the value of a field, which has to come back as it was; markup it cannot be."""
    return Markup.escape(text.encode("utf-8", "replace").decode())


def text_of(line: bytes) -> str:
    """A line of someone's file; bytes that are no UTF-8 become escapes later."""
    return line.decode("utf-8", "surrogateescape").replace("\t", "    ")


def pretty(text: str) -> list[str]:
    """JSON as lines, if it is some."""
    try:
        told = json.dumps(masked_json(json.loads(text)), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        told = masked(text)
    return told[: 4 * _MOST].split("\n")


def brief(text: str) -> str:
    """A few words for a picture: of a path only the end."""
    words = [
        f"…/{one.rstrip('/').rpartition('/')[2]}" if len(one) > 16 and "/" in one else one
        for one in text.split()
    ]
    told = " ".join(words)
    return visible(told if len(told) <= _BRIEF else f"{told[: _BRIEF - 1]}…")


def address(page: str, /, **fields: object) -> str:
    """One of ours, with these fields."""
    from urllib.parse import urlencode

    pairs: list[tuple[str, object]] = []
    for name, value in fields.items():
        some = value if isinstance(value, (list, tuple)) else (value,)  # pyright: ignore[reportUnknownVariableType]
        pairs += [(name, one) for one in some if one not in ("", None, False, 0)]  # pyright: ignore[reportUnknownVariableType]
    return f"{page}?{urlencode(pairs, errors='surrogateescape')}" if pairs else page


def _iso(at: int) -> str:
    from takeback.audit.views import iso

    return iso(at) or ""


def _linked(page: str, /, **fields: object) -> Markup:
    return Markup.escape(address(page, **fields))


_FILTERS: dict[str, Callable[..., Any]] = {
    "short": short,
    "display": display,
    "size": bytes_in_words,
    "seconds": seconds_in_words,
    "ago": lambda at: ago(at, now()),  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    "ahead": lambda at: ahead(at, now()),  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    "iso": _iso,
    "pretty": pretty,
    "brief": brief,
    "cut": visible,
}


@lru_cache(maxsize=1)  # compiling the templates takes a while
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(os.path.join(HERE, "templates")),
        autoescape=True,
        finalize=visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(_FILTERS)
    shared: dict[str, Any] = made.globals  # pyright: ignore[reportAssignmentType]
    shared.update({"address": _linked, "raw": raw, "counted": counted})
    return made
