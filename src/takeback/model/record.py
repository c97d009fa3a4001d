"""Journal records, the hash chain that ties each to all before it, and what a check of them finds."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, NamedTuple

from takeback.errors import Misuse

_sha256: Callable[[bytes], Any]
try:  # as `random` does it
    _sha256 = __import__("_sha2" if sys.version_info >= (3, 12) else "_sha256").sha256
except ImportError:
    from hashlib import sha256 as _sha256

_MUCH = 1 << 16  # bytes; OpenSSL is faster


def sha256_of(data: bytes) -> bytes:
    if len(data) < _MUCH:
        return _sha256(data).digest()
    import hashlib

    return hashlib.sha256(data).digest()


class Flaw(str):
    """One thing that is wrong. Decisions use its fields; the text may say it in any words."""

    __slots__ = ("blob", "effect", "run", "unreadable")

    blob: str  # digest of the blob that is damaged or missing
    effect: str  # the effect whose records or rows are wrong
    run: str  # the run whose records or rows are wrong
    unreadable: bool  # a part of the journal cannot be read, so that no one can say what else is damaged

    def __new__(
        cls, text: str, *, blob: str = "", effect: str = "", run: str = "", unreadable: bool = False
    ) -> "Flaw":
        self = super().__new__(cls, text)
        self.blob, self.effect, self.run, self.unreadable = blob, effect, run, unreadable
        return self


GENESIS = bytes(32)
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _pieces() -> Callable[[Any, int], Iterable[str]]:
    """The pieces that `_ENCODER` would compute again for each value: half of the time of a short one."""
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # an interpreter without it
        return lambda value, _: (_ENCODER.encode(value),)
    text: Any = json.encoder.encode_basestring  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    return make(None, _ENCODER.default, text, None, ":", ",", True, False, True)


_PIECES = _pieces()
# Outside a string only a float is written so; inside one it may look so too, and then the value is walked through.
# Every number follows one of three signs, the first of all as well: a `^` would make the search twice as slow.
_MAYBE_FRACTION = re.compile(r"[\[:,]-?(?:\d+[.e]|Infinity|NaN)").search


class Kind(StrEnum):
    OPEN = "open"
    CLOSE = "close"
    PROPOSE = "propose"
    DECIDE = "decide"
    INTENT = "intent"
    DONE = "done"
    ABORT = "abort"
    STICK = "stick"
    DROP = "drop"  # it is not made, and can be made after all until its time is over
    ERASE = "erase"  # what was dropped cannot be made any more; of nothing else
    ACCEPT = "accept"
    KEEP = "keep"  # the same, in a store of format 1; never written any more
    PIN = "pin"
    UNPIN = "unpin"
    CHECKPOINT = "checkpoint"
    REMEMBER = "remember"
    SIGNAL = "signal"  # someone tells a run something; it may be waiting for that
    FORGET = "forget"
    # Of the store: their run is `STORE`, and what they are about stands in the body.
    STOP = "stop"  # an agent, a run or everything does nothing more
    LIFT = "lift"  # a stop ends
    POLICY = "policy"  # these rules count from now on
    TRUST = "trust"  # a person let a file of a project count, exactly as it was
    ANCHOR = "anchor"  # the head of the chain was signed, or kept elsewhere
    REHEARSE = "rehearse"  # a way back was tried on a copy
    CLIMB = "climb"  # what was tried next for an undo that failed
    REDACT = "redact"  # content was erased for good


STORE = "store"  # stands for the run in these
OF_STORE = (
    Kind.STOP, Kind.LIFT, Kind.POLICY, Kind.TRUST, Kind.ANCHOR, Kind.REHEARSE, Kind.CLIMB, Kind.REDACT
)  # fmt: skip


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
    seal: bytes = b""  # what the chain covers of the body: see `covered`


def canonical(value: Any) -> bytes:
    """RFC 8785 for the JSON we write: text, whole numbers, booleans, null, lists, and objects with ASCII keys.

    A test holds it against the reference implementation. Numbers with a fraction are refused, because their text
    differs between writers; store such a number inside a string.
    """
    text = "".join(_PIECES(value, 0))
    if _MAYBE_FRACTION("," + text):
        _refuse_fractions((value,))
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Misuse(
            f"Text for the journal holds half a character ({error.object[error.start]!a}).",
            hint="Use valid Unicode in names, labels, keys and agents; paths may be any bytes.",
        ) from None


def _refuse_fractions(values: Iterable[Any]) -> None:
    for value in values:
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind is str or kind is int:  # nearly all there is
            continue
        if kind is float:
            raise ValueError("a record holds no numbers with a fraction")
        if kind is dict:
            _refuse_fractions(value.values())
        elif kind is list or kind is tuple:
            _refuse_fractions(value)


def chained(previous: bytes, seq: int, at: int, kind: str, run: str, effect: str, of_body: bytes) -> bytes:
    """The hash of a record; it covers everything in it and, through `previous`, every record before it. `of_body`: what
    it covers of the body (`covered`)."""
    head = f"{seq} {at} {kind} {run} {effect}\n".encode()
    data = previous + head + of_body
    return _sha256(data).digest() if len(data) < _MUCH else sha256_of(data)


# The seal of a record says what the chain covers of its body, and tells itself by its length:
#
# 16 bytes: random, and the chain covers the hash of them and the body. Without them that hash confirms no guess.
# 32 bytes: that hash itself; body and random bytes were erased, and a REDACT record names what is left.
# none: the chain covers the body itself, as in formats 1 and 2.
# 1 byte: the same, and the body was erased. The REDACT record vouches for its hash and the one before.


HASH = 32
SALT = 16
UNSALTED = b"\0"


def new_salt() -> bytes:
    return os.urandom(SALT)


def covered(seal: bytes, body: bytes) -> bytes:
    """What the chain covers of a body; of an erased one too, but for that of an unsalted record."""
    if len(seal) == SALT:
        data = seal + body
        return _sha256(data).digest() if len(data) < _MUCH else sha256_of(data)
    return seal or body


def is_erased(seal: bytes) -> bool:
    return len(seal) in (HASH, len(UNSALTED))


def erased(seal: bytes, body: bytes) -> bytes:
    """The seal of a record when its body has gone."""
    return covered(seal, body) if seal else UNSALTED


def is_tied(previous: bytes, record: "tuple[int, str, str, str, int, bytes, bytes]", seal: bytes) -> bool:
    """Whether a row (seq, kind, run, effect, at, body, hash) has the hash that it should. One whose unsalted body was
    erased cannot be computed again: that its hash and the one before are the ones of then, its REDACT record says."""
    seq, kind, run, effect, at, body, hash = record
    if seal == UNSALTED:
        return True
    return chained(previous, seq, at, kind, run, effect, covered(seal, body)) == hash
