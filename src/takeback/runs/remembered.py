"""Errors as plain data, so that a step that failed fails again in the same way when its function is replayed."""

import builtins
from typing import Any

from takeback import errors
from takeback.errors import Failed, TakebackError


def to_json(error: BaseException) -> dict[str, Any]:
    told: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, TakebackError):
        optional = {"hint": error.hint, "effect": error.effect or ""}
        return told | {name: one for name, one in optional.items() if one}
    if all(isinstance(one, (str, int)) for one in error.args):
        told["args"] = list(error.args)
    return told


def from_json(told: dict[str, Any]) -> Exception:
    name, message = told["type"], told["message"]
    ours = getattr(errors, name, None)
    if isinstance(ours, type) and issubclass(ours, TakebackError):
        return ours(message, hint=told.get("hint", ""), effect=told.get("effect"))
    plain = getattr(builtins, name, None)
    if isinstance(plain, type) and issubclass(plain, Exception):
        try:
            return plain(*told.get("args", [message]))
        except TypeError:  # one that takes other arguments than words
            pass
    return Failed(in_words(told))


def lasting(error: Exception) -> Exception:
    """The error itself if it can be raised again from what is recorded; else one in its place that can."""
    told = to_json(error)
    again = from_json(told)
    return error if type(again) is type(error) else again


def in_words(told: dict[str, Any]) -> str:
    ours = getattr(errors, told["type"], None)
    if ours is not None:
        return told["message"]
    return f"{told['type']}: {told['message']}" if told["message"] else told["type"]
