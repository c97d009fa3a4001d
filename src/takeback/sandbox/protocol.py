"""Requests to the sandbox, their results, and the messages that carry them: a length, then JSON."""

import _socket  # loading `socket` makes hundreds of enum members
import array
import json
import os
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple, Self


class Order(NamedTuple):
    argv: tuple[str, ...]  # a program and its arguments
    cwd: str  # inside
    env: Mapping[str, str]
    stdio: tuple[int, int, int]  # descriptors of the caller that become its 0, 1 and 2
    network: bool = True
    timeout: float = 0  # seconds; 0: none
    memory: int = 0  # bytes; 0: no limit
    processes: int = 0  # 0: no limit
    hidden: tuple[str, ...] = ()  # directories of the world that are covered inside
    ask: bool = False  # cwd and exported variables afterwards are wanted
    # It begins when the clock that stamps changes is past this moment, in nanoseconds: what others change from then on
    # carries a later time.
    after: int = 0
    rescue: bool = False  # if the caller is gone, what was changed until then is left in the layer
    keep_empty: bool = True  # False: if nothing was changed there is no layer


class Ended(NamedTuple):
    """As a shell reports it: 128 + n when ended by signal n, 126 not executable, 127 not found, 124 out of time."""

    exit_code: int
    stopped: str = ""  # "time" | "memory": why we ended it
    leftover: int = 0  # processes that were still there when the command had ended, and were ended with it
    cwd: str = ""  # only with `ask`
    env: Mapping[str, str] = {}  # only with `ask`: the exported variables afterwards
    layer: bool = True  # whether there is one
    gone: bool = False  # only with `ask`: its directory could not be entered, so it ran in an empty one
    untold: str = ""  # only with `ask`: what a shell has not told, and why; a sentence
    too_long: tuple[str, ...] = ()  # only with `ask`: exported variables that no program could be given
    unstarted: str = ""  # why the command was never there


class Stack(NamedTuple):
    """What lies below the layer of a command."""

    root: str = "/"  # the machine's own root, or a directory that holds a root filesystem
    layers: tuple[str, ...] = ()  # newest first


# Who runs commands: root; an ordinary user over the machine's own root, who stays who he is; one over a root
# filesystem of his own, whose root he is.
ROOT, USER, MAPPED = "root", "user", "mapped"


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


def has_news(fd: "int | Talk", seconds: float) -> bool:
    """Whether there is something to hear or read, now or within that time."""
    import select

    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


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
