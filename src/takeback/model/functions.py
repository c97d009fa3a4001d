"""Functions of the user, actions and workflows: found again by name, JSON in and out."""

import json
from _thread import get_ident
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, cast

from takeback.errors import Misuse

LOOKING: ContextVar[bool] = ContextVar("takeback is looking for an action", default=False)

CALLING: ContextVar[tuple[str, int]] = ContextVar(
    "the run that calls an action, and its thread", default=("", 0)
)


def refuse_inside_a_call(run: str) -> None:
    """The call has a thread of its own, and the run waits for it."""
    if CALLING.get()[0] == run and CALLING.get()[1] != get_ident():
        raise Misuse(
            "An action uses the run that calls it.",
            hint="An action only acts on the world outside; let what calls it do the rest.",
        )


def refuse_while_looking() -> None:
    if LOOKING.get():
        raise Misuse(
            "This module is imported to find an action in it, and begins a run.",
            hint='Put what it does when it is run below `if __name__ == "__main__":`.',
        )


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
        return as_json(result, "Its result")
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


def refuse_nameless(noun: str, function: object) -> Callable[..., Any]:
    """What `functools.partial` makes, or an object that can be called, has no place where another process finds it."""
    if not callable(function):
        raise Misuse(f"{noun} is a function, not {function!r}.", hint="Write the decorator over a def.")
    if not all(
        isinstance(getattr(function, name, None), str) for name in ("__name__", "__qualname__", "__module__")
    ):
        raise Misuse(
            f"{noun} is a function with a name, and {type(function).__name__} is none.",
            hint="Write a def that calls it.",
        )
    return function


def refuse_odd_name(noun: str, name: object, example: str) -> None:
    if not isinstance(name, str) or not name.isprintable() or name.split() != [name]:
        raise Misuse(f"{noun} cannot be named {name!r}.", hint=f'For example name="{example}".')
