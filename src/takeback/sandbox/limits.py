"""Limits of a command: memory, processes, and a network that is only itself."""

import _socket
import fcntl
import resource
import struct
from typing import Any

from takeback.sandbox import wire


def give_back(files: tuple[int, int]) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, files)


def restrain(pid: int, order: dict[str, Any]) -> None:
    """Of the process that was just started, not of ourselves."""
    for which, wanted in (
        (resource.RLIMIT_AS, order["memory"]),
        (resource.RLIMIT_NPROC, order["processes"]),
    ):
        if wanted:
            _lower(pid, which, wanted)


def _lower(pid: int, which: int, wanted: int) -> None:
    hard = resource.prlimit(pid, which)[1]
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.prlimit(pid, which, (wanted, wanted))


def raise_loopback() -> None:
    with wire.Talk(_socket.AF_INET, _socket.SOCK_DGRAM) as some:
        fcntl.ioctl(some, 0x8914, struct.pack("=16sh14x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS, up and running
