"""Messages between the caller and the small process that starts commands: a length, then JSON."""

import json
import os
import struct
from typing import Any

LARGEST = 1 << 16  # of what is said without an answer
_LENGTH = struct.Struct("=I")


def frame(message: dict[str, Any]) -> bytes:
    body = json.dumps(message).encode()
    return _LENGTH.pack(len(body)) + body


def unframed(raw: bytes | bytearray) -> tuple[dict[str, Any] | None, bytes]:
    """The first whole message and what follows it."""
    if len(raw) < _LENGTH.size:
        return None, bytes(raw)
    end = _LENGTH.size + _LENGTH.unpack_from(raw)[0]
    if len(raw) < end:
        return None, bytes(raw)
    return json.loads(raw[_LENGTH.size : end]), bytes(raw[end:])


def write_all(fd: int, raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(fd, view) :]


def read_message(fd: int) -> dict[str, Any] | None:
    """Wait for a whole message; None when the other side is gone."""
    raw = b""
    while True:
        message, _ = unframed(raw)
        if message is not None:
            return message
        piece = os.read(fd, 1 << 16)
        if not piece:
            return None
        raw += piece
