"""Messages between the caller and the small process that starts commands: a length, then JSON."""

import _socket  # loading `socket` makes hundreds of enum members
import array
import json
import os
import struct
from typing import Any, Self

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


class Talk(_socket.socket):
    """One end of a connection within this machine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def talk_on(fd: int) -> Talk:
    return Talk(-1, -1, -1, fd)


def pair(kind: int = _socket.SOCK_STREAM) -> tuple[Talk, Talk]:
    one, other = _socket.socketpair(_socket.AF_UNIX, kind)
    return talk_on(one.detach()), talk_on(other.detach())


def send_fds(talk: Talk, message: bytes, fds: list[int]) -> None:
    talk.sendmsg([message], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", fds))])


def recv_fds(talk: Talk, most: int, count: int) -> tuple[bytes, list[int]]:
    fds = array.array("i")
    message, beside, _, _ = talk.recvmsg(most, _socket.CMSG_LEN(count * fds.itemsize))
    for level, kind, raw in beside:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            fds.frombytes(raw[: len(raw) - len(raw) % fds.itemsize])
    return message, list(fds)
