"""Init processes made ahead, before there is a command for them, and those no longer needed."""

import marshal
import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from takeback.sandbox import command, protocol
from takeback.sandbox.calls import NEWIPC, NEWNET, NEWNS, NEWPID, NEWUTS, kernel
from takeback.sandbox.command import PreparedCommand, SandboxPlan, UnfitLayers
from takeback.sandbox.init import READY, Home, live
from takeback.sandbox.rootfs import Job, RootScene, packed
from takeback.sandbox.scratch import Workshop

# A first process inside, made before there is a command for it: forking it and all the mounts take much longer than
# most commands. While one runs, the next one's process and those mounts that are always the same are made; when it has
# ended, the rest for a command that continues from there.


# It holds on to every filesystem that was mounted when it was made, so it does not wait for long.
PATIENCE = 10  # seconds
_SLOW = 5  # seconds: one that takes longer hangs in some mount


class Spare(NamedTuple):
    pid: int
    pidfd: int
    door: protocol.Talk  # see `live`
    network: bool
    mounts: bytes  # all that was mounted in the world when it was made
    made: float
    plan: SandboxPlan | None = None  # what it was built for ahead
    prepared: PreparedCommand | None = None


def make_spare(network: bool, mounts: bytes, home: Home, forget: Callable[[], None]) -> Spare:
    """`forget` closes in the child what is open by accident."""
    flags = NEWNS | NEWPID | NEWIPC | NEWUTS | (0 if network else NEWNET)
    ours, theirs = protocol.pair()
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
    return not protocol.has_news(spare.pidfd, 0)


def is_built(spare: Spare) -> bool:
    """Waits for it, as the command has to anyway."""
    try:
        return protocol.has_news(spare.door, _SLOW) and spare.door.recv(1) == READY
    except ConnectionResetError:
        return False


def hand_over(spare: Spare, order: dict[str, Any], scene: RootScene, stdio: tuple[int, int, int]) -> None:
    _tell(spare, Job(order, None if spare.plan else scene), stdio)


def _tell(spare: Spare, job: Job, stdio: tuple[int, ...]) -> None:
    """If it was killed, report nothing here: its end is reported."""
    raw = marshal.dumps(packed(job))
    with suppress(BrokenPipeError, ConnectionResetError):
        protocol.send_fds(spare.door, len(raw).to_bytes(8, "little"), list(stdio))
        spare.door.sendall(raw)


def dismiss(spare: Spare) -> None:
    """It ends by itself, and with it its mounts."""
    os.kill(spare.pid, signal.SIGKILL)
    spare.door.close()


def wait_for(spare: Spare) -> None:
    os.waitpid(spare.pid, 0)
    os.close(spare.pidfd)


_ENOUGH = 2  # misses, one after the other: then nothing is built ahead until one would have been a hit


class Spares:
    def __init__(
        self,
        poll: select.poll,
        make: Callable[[bool, bytes], Spare],
        plan: Callable[[dict[str, Any], bytes], SandboxPlan],
    ) -> None:
        self._poll = poll
        self._make = make
        self._plan = plan
        self._leaving: dict[int, Spare] = {}  # by their descriptor
        self._predicted: SandboxPlan | None = None
        self._misses = 0
        self.waiting: Spare | None = None
        self.table = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        poll.register(self.table, select.POLLPRI)

    def take(self, network: bool, mounts: bytes, plan: SandboxPlan | None) -> Spare:
        """The one that was made ready, if the world has not changed since. Without a plan: not one that is built."""
        spare, predicted, self._predicted = self.waiting, self._predicted, None
        if predicted:
            self._misses = 0 if predicted == plan else self._misses + 1
        if spare and spare.network == network and spare.mounts == mounts and is_alive(spare):
            if not spare.plan or (spare.plan == plan and is_built(spare)):
                self.waiting = None
                return spare
        self.dismiss(spare)
        return self._make(network, mounts)

    def have(self, network: bool, mounts: bytes) -> None:
        if not self.waiting:
            self.waiting = self._make(network, mounts)

    def build(self, order: dict[str, Any], mounts: bytes, workshop: Workshop) -> None:
        """For a command that continues where the last one ended; useless if commands of several boxes alternate."""
        spare = self.waiting
        if not spare or spare.mounts != mounts:
            return
        with suppress(OSError, UnfitLayers):  # the next command will try, and tell
            self._predicted = plan = self._plan(order, mounts)
            if spare.plan == plan or self._misses >= _ENOUGH:
                return
            if spare.plan:  # it went back in between
                self.dismiss(spare)
                spare = self.waiting = self._make(spare.network, mounts)
            prepared = command.prepare(plan, workshop)
            _tell(spare, Job(None, prepared.scene), ())
            self.waiting = spare._replace(plan=plan, prepared=prepared, made=time.monotonic())

    def hear(self, fd: int, workshop: Workshop | None) -> None:
        spare = self._leaving.pop(fd, None)
        if spare:
            self._poll.unregister(fd)
            wait_for(spare)
            if spare.prepared and workshop:
                workshop.clear(spare.prepared.scratch)
        elif fd == self.table and self.waiting and self.waiting.plan:
            self.dismiss(self.waiting)  # it would hold on to what was unmounted

    def tire(self) -> None:
        if self.waiting and time.monotonic() - self.waiting.made > PATIENCE:
            self.dismiss(self.waiting)

    def dismiss(self, spare: Spare | None) -> None:
        """End it without waiting."""
        if spare is self.waiting:
            self.waiting = None
        if spare:
            dismiss(spare)
            self._leaving[spare.pidfd] = spare
            self._poll.register(spare.pidfd, select.POLLIN)

    def close(self) -> None:
        self.dismiss(self.waiting)
        for spare in self._leaving.values():
            wait_for(spare)
