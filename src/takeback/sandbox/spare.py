"""A first process inside, made before there is a command for it: forking it and the mounts that are always the same
take as long as all the rest."""

import marshal
import os
import select
import signal
import socket  # noqa: TID253 this module is loaded by the small process only
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from takeback.sandbox.calls import NEWIPC, NEWNET, NEWNS, NEWPID, NEWUTS, kernel
from takeback.sandbox.first import Home, live
from takeback.sandbox.job import Job, packed
from takeback.sandbox.rootfs import Scene

# It holds on to every filesystem that was mounted when it was made, so it does not wait for long.
PATIENCE = 10  # seconds


class Spare(NamedTuple):
    pid: int
    pidfd: int
    door: socket.socket  # see `live`
    network: bool
    mounts: bytes  # all that was mounted in the world when it was made
    made: float


def make_spare(network: bool, mounts: bytes, home: Home, forget: Callable[[], None]) -> Spare:
    """`forget` closes in the child what is open by accident."""
    flags = NEWNS | NEWPID | NEWIPC | NEWUTS | (0 if network else NEWNET)
    ours, theirs = socket.socketpair()
    try:
        pid = kernel().fork_into(flags)
        if pid == 0:
            live(theirs, home, (ours.close, forget))
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return Spare(pid, os.pidfd_open(pid), ours, network, mounts, time.monotonic())


def is_alive(spare: Spare) -> bool:
    poll = select.poll()
    poll.register(spare.pidfd, select.POLLIN)
    return not poll.poll(0)


def hand_over(spare: Spare, order: dict[str, Any], scene: Scene, stdio: tuple[int, int, int]) -> None:
    """If it was killed meanwhile nothing is said here: its end will tell."""
    raw = marshal.dumps(packed(Job(order, scene)))
    try:
        socket.send_fds(spare.door, [len(raw).to_bytes(8, "little")], list(stdio))
        spare.door.sendall(raw)
    except (BrokenPipeError, ConnectionResetError):
        return


def end_spare(spare: Spare) -> None:
    os.kill(spare.pid, signal.SIGKILL)
    os.waitpid(spare.pid, 0)
    os.close(spare.pidfd)
    spare.door.close()
