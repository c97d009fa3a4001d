"""Whether two requests mean the same, however they are written: for asking, never for doing."""

import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, cast

# Ids that a client makes up for each request; which one it is changes nothing of what is asked for.
_MADE_UP_NAMES = re.compile(
    r"(^|_)(request|idempotency|correlation|trace|span|message|client|attempt)_?(id|key|ref|token|uuid)$|(^|_)(nonce|uuid)$",
    re.IGNORECASE,
)
_MADE_UP = re.compile(
    r"^(?:[a-z]{1,12}[_-])?(?:"
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # a UUID
    r"|[0-9a-f]{32,64}"
    r"|[0-7][0-9A-HJKMNP-TV-Z]{25}"  # a ULID
    r")$",
    re.IGNORECASE,
)
_MADE_UP_WORD = "<made up>"
_STAMP_WORD = "<time of the call>"
_STAMP = re.compile(r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?\s?(Z|[+-]\d\d:?\d\d)?)?$")
_NEAR = 600  # seconds between a call and the time that it gives as its own
_DAY = 86_400
_NUMBER = re.compile(r"^[+-]?\d{1,30}(\.\d{1,30})?$")


def sameness(value: Any, name: str = "", at: int = 0) -> Any:
    """Equal for what means the same: other order of names, 500 or 500.00 or "500", another id made up by the client,
    another time stamp. `at`: when it was called, microseconds since 1970; a time near that says only when it was asked
    for, and one that is further away is part of what is asked for."""
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        meant = {one: sameness(found[one], one, at) for one in sorted(found)}
        return {one: what for one, what in meant.items() if what != _STAMP_WORD}
    if isinstance(value, (list, tuple)):
        return [sameness(one, "", at) for one in cast("list[Any]", value)]
    if isinstance(value, bool) or value is None:
        return value
    if name and _MADE_UP_NAMES.search(name):
        return _MADE_UP_WORD
    if at and _is_stamp(value, at / 1e6):
        return _STAMP_WORD
    if isinstance(value, (int, float)):
        return _number(str(value))
    text = " ".join(str(value).split())
    if _MADE_UP.match(text):
        return _MADE_UP_WORD
    return _number(text) if _NUMBER.match(text) else text


def _is_stamp(value: Any, at: float) -> bool:
    if isinstance(value, (int, float)):
        return any(abs(value / scale - at) <= _NEAR for scale in (1, 1e3, 1e6, 1e9))
    text = str(value).strip()
    if not _STAMP.match(text):
        return False
    try:
        told = datetime.fromisoformat(text)
    except ValueError:
        return False
    near = _DAY if len(text) == len("2026-11-18") else _NEAR
    zones = (told,) if told.tzinfo else (told.replace(tzinfo=UTC), told.astimezone())
    return any(abs(one.timestamp() - at) <= near for one in zones)


def _number(text: str) -> str:
    try:
        return f"{Decimal(text).normalize():f}"
    except InvalidOperation:
        return text
