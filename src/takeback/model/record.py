"""Journal records, and the hash chain that ties each to all before it."""

import hashlib
import json
from enum import StrEnum
from typing import Any, NamedTuple

from takeback.errors import Misuse

GENESIS = bytes(32)


class Kind(StrEnum):
    OPEN = "open"
    CLOSE = "close"
    PROPOSE = "propose"
    DECIDE = "decide"
    INTENT = "intent"
    DONE = "done"
    ABORT = "abort"
    STICK = "stick"
    KEEP = "keep"
    CHECKPOINT = "checkpoint"
    REMEMBER = "remember"
    FORGET = "forget"


class Draft(NamedTuple):
    """A record that has no place in the journal yet."""

    kind: Kind
    run: str
    effect: str = ""
    body: dict[str, Any] = {}


class Record(NamedTuple):
    seq: int
    kind: Kind
    run: str
    effect: str
    at: int  # microseconds since 1970, UTC
    body: dict[str, Any]
    hash: bytes


def canonical(value: Any) -> bytes:
    """RFC 8785 for the JSON we write: text, whole numbers, booleans, null, lists, and objects with ASCII keys.

    A test holds it against the reference implementation. Numbers with a fraction are refused, because their text
    differs between writers; whoever needs them stores them inside a string.
    """
    _refuse_fractions(value)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Misuse(
            f"Text for the journal holds half a character ({error.object[error.start]!a}).",
            hint="Use valid Unicode in names, labels, keys and agents; paths may be any bytes.",
        ) from None


def _refuse_fractions(value: Any) -> None:
    if type(value) is float:
        raise ValueError("a record holds no numbers with a fraction")
    if type(value) is dict:
        for inner in value.values():  # pyright: ignore[reportUnknownVariableType]
            _refuse_fractions(inner)
    elif type(value) in (list, tuple):
        for inner in value:
            _refuse_fractions(inner)


def chained(previous: bytes, seq: int, at: int, kind: str, run: str, effect: str, body: bytes) -> bytes:
    """The hash of a record; it covers everything in it and, through `previous`, every record before it."""
    head = f"{seq} {at} {kind} {run} {effect}\n".encode()
    return hashlib.sha256(previous + head + body).digest()
