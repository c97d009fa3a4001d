"""Whether two requests mean the same, however they are written: for asking, never for doing."""

import re
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
_NUMBER = re.compile(r"^[+-]?\d{1,30}(\.\d{1,30})?$")


def sameness(value: Any, name: str = "") -> Any:
    """Equal for what means the same: other order of names, 500 or 500.00 or "500", another id made up by the client."""
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        return {one: sameness(found[one], one) for one in sorted(found)}
    if isinstance(value, (list, tuple)):
        return [sameness(one) for one in cast("list[Any]", value)]
    if isinstance(value, bool) or value is None:
        return value
    if name and _MADE_UP_NAMES.search(name):
        return _MADE_UP_WORD
    if isinstance(value, (int, float)):
        return _number(str(value))
    text = " ".join(str(value).split())
    if _MADE_UP.match(text):
        return _MADE_UP_WORD
    return _number(text) if _NUMBER.match(text) else text


def _number(text: str) -> str:
    try:
        return f"{Decimal(text).normalize():f}"
    except InvalidOperation:
        return text
