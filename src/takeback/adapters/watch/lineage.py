"""Which processes a command started, told by the kernel as they start: also those that have ended since.

Root only, and not in a container: there nobody is told.
"""

import os
import struct
from collections.abc import Iterator

_CONNECTOR = 11
_PROCESSES = (1, 1)  # which of the connector's subjects: CN_IDX_PROC, CN_VAL_PROC
_LISTEN = 1
_FORK = 1
_DONE = 3  # NLMSG_DONE
_HEADER = struct.Struct("=IHHII")
_MESSAGE = struct.Struct("=IIIIHH")
_EVENT = struct.Struct("=IIQ")  # what happened; the rest does not matter
_FORKED = struct.Struct("=IIII")  # parent's thread and process, child's thread and process
_ROOM = 32 << 20
_FORCE_ROOM = 33  # SO_RCVBUFFORCE
_WAIT = 1000  # milliseconds


class Lineage:
    def __init__(self) -> None:
        """`OSError` where the kernel does not tell."""
        import socket

        self._lost = False
        self._children: list[tuple[int, int]] = []
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _CONNECTOR)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _FORCE_ROOM, _ROOM)
            self._socket.bind((0, _PROCESSES[0]))
            self._socket.setblocking(False)
            # Newer kernels tell of forks alone if asked so, older ones do not answer such a question.
            if not self._asked(struct.pack("=II", _LISTEN, _FORK)) and not self._asked(
                struct.pack("=I", _LISTEN)
            ):
                raise OSError("nobody answers")
        except OSError:
            self._socket.close()
            raise

    def _asked(self, operation: bytes) -> bool:
        message = _MESSAGE.pack(*_PROCESSES, 0, 0, len(operation), 0) + operation
        self._socket.send(_HEADER.pack(_HEADER.size + len(message), _DONE, 0, 0, 0) + message)
        import select

        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(_WAIT)) and any(what == 0 for what, _ in self._told())

    def close(self) -> None:
        self._socket.close()

    def descendants(self, of: int) -> set[int] | None:
        """Of a process, itself among them, and all that were started since we listen; None if not all were told."""
        self._children += [_FORKED.unpack_from(rest)[1::2] for what, rest in self._told() if what == _FORK]
        if self._lost:
            return None
        found = {of}
        for parent, child in self._children:
            if parent in found:
                found.add(child)
        return found

    def _told(self) -> Iterator[tuple[int, bytes]]:
        while True:
            try:
                data = self._socket.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:  # more was told than there is room for
                self._lost = True
                return
            at = _HEADER.size + _MESSAGE.size
            if len(data) >= at + _EVENT.size + _FORKED.size:
                what, _, _ = _EVENT.unpack_from(data, at)
                yield what, data[at + _EVENT.size :]


def open_lineage() -> Lineage | None:
    if os.geteuid() != 0:
        return None
    try:
        return Lineage()
    except OSError:
        return None
