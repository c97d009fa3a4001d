"""Functions that are found again by name: actions and workflows."""

from collections.abc import Callable
from typing import Any

from takeback.errors import Misuse


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
