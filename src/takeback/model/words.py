"""Words for people: a time as they write it, the name they meant, how to install what is missing."""

import json
import os
import re
import time
from collections.abc import Iterable
from typing import Any

from takeback.errors import Misuse


def install_hint(extra: str) -> str:
    """A hint that works: a checkout is named by its directory, because an index may not know takeback at all."""
    return f"Install it: pip install '{_named(extra)}'."


def _named(extra: str) -> str:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        told = distribution("takeback").read_text("direct_url.json")
    except PackageNotFoundError:
        told = None
    origin = _understood(told)
    url = str(origin.get("url", ""))
    if "vcs_info" in origin:
        kind, commit = origin["vcs_info"].get("vcs", "git"), origin["vcs_info"].get("commit_id", "")
        return f"takeback[{extra}] @ {kind}+{url}" + (f"@{commit}" if commit else "")
    if "dir_info" in origin and url.startswith("file://"):
        from urllib.parse import unquote

        return f"{unquote(url.removeprefix('file://'))}[{extra}]"
    if url:
        return f"takeback[{extra}] @ {url}"
    if checkout := _checkout():
        return f"{checkout}[{extra}]"
    return f"takeback[{extra}]"


def _understood(told: str | None) -> dict[str, Any]:
    try:
        return dict(json.loads(told or "{}"))
    except (ValueError, TypeError):
        return {}


def _checkout() -> str:
    """Where this very file comes from, if it was never installed."""
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
    return root if os.path.isfile(os.path.join(root, "pyproject.toml")) else ""


_CLOSE = 0.6


def closest(word: str, known: Iterable[str], close: float = _CLOSE) -> str:
    """The one that was most likely meant; "" if none is near."""
    from difflib import get_close_matches

    names = list(known)
    begun = [name for name in names if len(word) > 1 and name.startswith(word)]
    if len(begun) == 1:
        return begun[0]
    return next(iter(get_close_matches(word, names, 1, close)), "")


def did_you_mean(word: str, known: Iterable[str], otherwise: str, prefix: str = "") -> str:
    found = closest(word, known)
    return f"Did you mean `{prefix}{found}`?" if found else otherwise


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGO = re.compile(r"(?:(\d{1,9})([smhdw]))+")
_EACH = re.compile(r"(\d{1,9})([smhdw])")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_MICRO = 1_000_000
_HINT = "For example 10m, 2h, 3d, 09:30, 2026-11-18 or '2026-11-18 09:30'."


def point_in_time(text: str, now: int) -> int:
    """Microseconds since 1970. A time without a zone is local; a clock time is the last one that has passed."""
    word = text.strip()
    if _AGO.fullmatch(word):
        ago = sum(int(number) * _UNITS[unit] for number, unit in _EACH.findall(word))
        return max(0, now - ago * _MICRO)
    if found := _CLOCK.fullmatch(word):
        return _by_the_clock(text, found, now)
    found = _dated(word)
    if found is None:
        raise Misuse(f"{text!r} is not a time.", hint=_HINT)
    return found


def is_of_yesterday(text: str, now: int) -> bool:
    """Whether it is a time of the clock that has not come today, so that yesterday's is meant."""
    if not _CLOCK.fullmatch(text.strip()):
        return False
    then, today = (time.localtime(at // _MICRO) for at in (point_in_time(text, now), now))
    return then[:3] != today[:3]


def _by_the_clock(text: str, found: re.Match[str], now: int) -> int:
    hour, minute, second = (int(part or 0) for part in found.groups())
    if hour > 23 or minute > 59 or second > 59:
        raise Misuse(f"{text!r} is not a time.", hint=_HINT)
    today = time.localtime(now // _MICRO)
    at = _seconds(today, hour, minute, second)
    if at * _MICRO > now:
        at = _seconds(time.localtime(now // _MICRO - 86400), hour, minute, second)
    return at * _MICRO


def _seconds(day: time.struct_time, hour: int, minute: int, second: int) -> int:
    return int(time.mktime((day.tm_year, day.tm_mon, day.tm_mday, hour, minute, second, 0, 0, -1)))


def _dated(word: str) -> int | None:
    from datetime import datetime

    try:
        when = datetime.fromisoformat(word)
        return round(when.timestamp() * _MICRO)  # without a zone: local time
    except (ValueError, OverflowError, OSError):
        return None
