"""A point in time as people write it: `10m`, `2h`, `3d` ago; `09:30`, `2026-11-18`, `2026-11-18 09:30:00+01:00`."""

import re
import time

from takeback.errors import Misuse

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
