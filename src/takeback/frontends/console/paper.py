"""Templates, and the one filter that all output passes: what an agent wrote can neither be markup nor hide."""

import json
import os
import unicodedata
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from takeback.api import now
from takeback.frontends.cli.output.screen import ago, ahead, clean, counted, local_time, seconds_in_words
from takeback.model.ids import short
from takeback.model.resource import display
from takeback.model.settings import bytes_in_words

HERE = os.path.dirname(__file__)
_MOST = 4_000  # characters of one value
_MOST_STACKED = 3  # marks over one letter


def visible(value: Any, most: int = _MOST) -> Any:
    """Text in which each character can be seen: control, zero-width and direction characters become escapes; too many
    marks over one letter and text without end are cut."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    left = len(value) - most
    text = _unstacked(clean(value[:most] if left > 0 else value))
    return f"{text} … and {left:,} more characters" if left > 0 else text


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
        told = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        told = text
    return told[: 4 * _MOST].split("\n")


def address(page: str, /, **fields: object) -> str:
    """One of ours, with these fields."""
    from urllib.parse import urlencode

    pairs: list[tuple[str, object]] = []
    for name, value in fields.items():
        some = value if isinstance(value, (list, tuple)) else (value,)  # pyright: ignore[reportUnknownVariableType]
        pairs += [(name, one) for one in some if one not in ("", None, False, 0)]  # pyright: ignore[reportUnknownVariableType]
    return f"{page}?{urlencode(pairs, errors='surrogateescape')}" if pairs else page


def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(os.path.join(HERE, "templates")),
        autoescape=True,
        finalize=visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "short": short,
        "display": display,
        "size": bytes_in_words,
        "seconds": seconds_in_words,
        "ago": lambda at: ago(at, now()),
        "ahead": lambda at: ahead(at, now()),
        "clock": lambda at: local_time(at, now()),
        "iso": _iso,
        "pretty": pretty,
        "cut": lambda text, most: visible(text, most),
    }
    made.globals |= {"address": lambda page, /, **fields: Markup.escape(address(page, **fields)), "raw": raw, "counted": counted}
    return made


def _iso(at: int) -> str:
    from takeback.audit.views import iso

    return iso(at) or ""

