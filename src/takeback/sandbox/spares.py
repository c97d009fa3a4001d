"""The place that waits for the next command, and those that nobody needs any more."""

import os
import select
import time
from collections.abc import Callable
from typing import Any

from takeback.sandbox import run
from takeback.sandbox.run import Plan, Unfit
from takeback.sandbox.spare import PATIENCE, Spare, build_ahead, dismiss, is_alive, is_built, wait_for
from takeback.sandbox.workshop import Workshop

_ENOUGH = 2  # misses, one after the other: then nothing is built ahead until one would have been a hit


class Spares:
    def __init__(
        self,
        poll: select.poll,
        make: Callable[[bool, bytes], Spare],
        plan: Callable[[dict[str, Any], bytes], Plan],
    ) -> None:
        self._poll = poll
        self._make = make
        self._plan = plan
        self._leaving: dict[int, Spare] = {}  # by their descriptor
        self._predicted: Plan | None = None
        self._misses = 0
        self.waiting: Spare | None = None
        self.table = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        poll.register(self.table, select.POLLPRI)

    def take(self, network: bool, mounts: bytes, plan: Plan | None) -> Spare:
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
        """For a command that goes on where the last one ended. Where others come in turns that is in vain."""
        spare = self.waiting
        if not spare or spare.mounts != mounts:
            return
        try:
            self._predicted = plan = self._plan(order, mounts)
            if spare.plan == plan or self._misses >= _ENOUGH:
                return
            if spare.plan:  # it went back meanwhile
                self.dismiss(spare)
                spare = self.waiting = self._make(spare.network, mounts)
            self.waiting = build_ahead(spare, plan, run.prepare(plan, workshop))
        except (OSError, Unfit):
            return  # the next command will try, and tell

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
        """Nobody waits for its end."""
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
