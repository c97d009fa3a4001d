"""A first process inside, made before there is a command for it: forking it and all the mounts take much longer than
most commands. While one runs, the next one's process and those mounts that are always the same are made; when it has
ended, the rest for one that would go on from there."""

import marshal
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from takeback.sandbox import wire
from takeback.sandbox.calls import NEWIPC, NEWNET, NEWNS, NEWPID, NEWUTS, kernel
from takeback.sandbox.first import READY, Home, live
from takeback.sandbox.job import Job, packed
from takeback.sandbox.rootfs import Scene
from takeback.sandbox.run import Plan, Prepared

# It holds on to every filesystem that was mounted when it was made, so it does not wait for long.
PATIENCE = 10  # seconds
_SLOW = 5  # seconds: one that is not built by then hangs in some mount


class Spare(NamedTuple):
    pid: int
    pidfd: int
    door: wire.Talk  # see `live`
    network: bool
    mounts: bytes  # all that was mounted in the world when it was made
    made: float
    plan: Plan | None = None  # what it was built for ahead
    prepared: Prepared | None = None


def make_spare(network: bool, mounts: bytes, home: Home, forget: Callable[[], None]) -> Spare:
    """`forget` closes in the child what is open by accident."""
    flags = NEWNS | NEWPID | NEWIPC | NEWUTS | (0 if network else NEWNET)
    ours, theirs = wire.pair()
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


def build_ahead(spare: Spare, plan: Plan, prepared: Prepared) -> Spare:
    _tell(spare, Job(None, prepared.scene), ())
    return spare._replace(plan=plan, prepared=prepared, made=time.monotonic())


def is_built(spare: Spare) -> bool:
    """Waits for it, as the command has to anyway."""
    poll = select.poll()
    poll.register(spare.door, select.POLLIN)
    try:
        return bool(poll.poll(_SLOW * 1000)) and spare.door.recv(1) == READY
    except ConnectionResetError:
        return False


def hand_over(spare: Spare, order: dict[str, Any], scene: Scene, stdio: tuple[int, int, int]) -> None:
    _tell(spare, Job(order, None if spare.plan else scene), stdio)


def _tell(spare: Spare, job: Job, stdio: tuple[int, ...]) -> None:
    """If it was killed meanwhile nothing is said here: its end will tell."""
    raw = marshal.dumps(packed(job))
    try:
        wire.send_fds(spare.door, len(raw).to_bytes(8, "little"), list(stdio))
        spare.door.sendall(raw)
    except (BrokenPipeError, ConnectionResetError):
        return


def dismiss(spare: Spare) -> None:
    """It ends by itself, and with it its mounts."""
    os.kill(spare.pid, signal.SIGKILL)
    spare.door.close()


def wait_for(spare: Spare) -> None:
    os.waitpid(spare.pid, 0)
    os.close(spare.pidfd)
