"""Messages between us and the process that has SQLite in it: a length, then plain values. Marshal is quick and knows
bytes; what it writes is read at once by the same Python and never kept."""

import marshal
import os
import struct
from collections.abc import Callable
from typing import Any

_LENGTH = struct.Struct("=Q")
_PIECE = 1 << 20
_FORMAT = 2  # without references to objects that came before: the same value is always the same bytes


Tell = Callable[
    [int, str], None
]  # who has the lock that is waited for: number and words of a process; 0: not known


def silently(process: int, words: str) -> None:
    """Report to no one."""


def send(descriptor: int, message: Any) -> None:
    body = marshal.dumps(message, _FORMAT)
    rest = memoryview(_LENGTH.pack(len(body)) + body)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def receive(descriptor: int) -> Any:
    """`EOFError` when the other side is gone."""
    (length,) = _LENGTH.unpack(_exactly(descriptor, _LENGTH.size))
    return marshal.loads(_exactly(descriptor, length))


def _exactly(descriptor: int, length: int) -> bytes:
    pieces: list[bytes] = []
    while length:
        piece = os.read(descriptor, min(length, _PIECE))
        if not piece:
            raise EOFError
        pieces.append(piece)
        length -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def plain(value: Any) -> bytes:
    """The same for the same values of the same types, and for no others."""
    return marshal.dumps(value, _FORMAT)


def text(value: Any) -> str | None:
    if value is None:
        return None
    return f"x'{value.hex()}'" if isinstance(value, bytes) else str(value)
