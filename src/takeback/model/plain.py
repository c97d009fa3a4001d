"""What outlives a process: JSON, as text, so that numbers come back exactly as they were."""

import json
from typing import Any, cast

from takeback.errors import Misuse

_TEXT = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def as_json(value: Any, what: str) -> str:
    """As text, so that numbers come back exactly as they were; keys in order."""
    try:
        _refuse_other(value, what)
        return _TEXT.encode(value)
    except ValueError as error:
        raise Misuse(f"{what} is not JSON: {error}.", hint="Give numbers that are numbers.") from None
    except RecursionError:
        raise Misuse(f"{what} is nested too deeply, or in itself.", hint="Give plain JSON.") from None


def _refuse_other(value: object, what: str) -> None:
    if value is None or isinstance(value, (str, bool, int, float)):
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise Misuse(f"{what} holds half a character.", hint="Use valid Unicode.") from None
        return
    if isinstance(value, (list, tuple)):
        for place, one in enumerate(cast("list[object]", value)):
            _refuse_other(one, f"{what}[{place}]")
        return
    if isinstance(value, dict):
        for name, one in cast("dict[object, object]", value).items():
            if not isinstance(name, str):
                raise Misuse(f"{what} has the name {name!r}, which is no text.", hint="JSON names are text.")
            _refuse_other(one, f"{what}[{name!r}]")
        return
    raise Misuse(
        f"{what} is a {type(value).__name__}, which is no JSON.",
        hint="Use text, numbers, true and false, None, lists and dicts; it has to outlive this process.",
    )


def kept(result: Any) -> str:
    """As JSON text. It has happened by now, so that a result which is no JSON is no reason to fail: what cannot be kept
    as it is is kept as words."""
    try:
        return as_json(result, "What it returned")
    except Misuse:
        try:
            return json.dumps(result, default=str, allow_nan=False, sort_keys=True, separators=(",", ":"))
        except (TypeError, ValueError):
            return json.dumps(_in_words(result))


def _in_words(result: Any) -> str:
    try:
        return str(result)
    except ValueError:  # a number with more digits than Python prints
        return f"a {type(result).__name__} that cannot be printed"
