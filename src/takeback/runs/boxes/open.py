"""The part of a run that opens boxes."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from takeback.engine.plan import Wishes
from takeback.model.change import Change
from takeback.model.effect import DropReason, Effect
from takeback.model.plan import UndoResult
from takeback.model.resource import path_of
from takeback.runs.verbs import Options

if TYPE_CHECKING:
    from takeback.engine.parts import Parts
    from takeback.runs.boxes.box import Box
    from takeback.runs.lease import OwnLock
    from takeback.sandbox.sandbox import Sandbox


class Boxing(ABC):
    _parts: "Parts"
    _lock: "OwnLock"
    _rooms: "Sandbox | None"

    @property
    @abstractmethod
    def id(self) -> str: ...

    @abstractmethod
    def _refuse_ended(self) -> None: ...

    @abstractmethod
    def _refuse_in_workflow(self, what: str, instead: str) -> None: ...

    @abstractmethod
    def _change(self, build: Callable[[], Change], options: Options) -> Effect | None: ...

    @abstractmethod
    def _undo_all(self, wanted: Sequence[Effect], wishes: Wishes, dry_run: bool) -> UndoResult: ...

    def sandbox(
        self,
        base: "str | os.PathLike[str]" = "/",
        *,
        box: str = "",
        cwd: "str | os.PathLike[str] | None" = None,
        env: Mapping[str, str] | None = None,
        network: bool = True,
        timeout: float = 0,
        memory: int = 0,
        processes: int = 0,
    ) -> "Box":
        """A session over the machine's own files or over a directory with a root filesystem: every command is a step
        with a way back, and nothing is seen outside until it is committed. `box` goes on with an earlier one."""
        from takeback.runs.boxes.box import Box
        from takeback.runs.boxes.setting import BoxHand, BoxLimits, begin, reopen
        from takeback.runs.commands.request import refuse_odd

        refuse_odd(timeout=timeout, memory=memory, processes=processes, env=env)
        with self._lock:
            self._refuse_ended()
            self._refuse_in_workflow("A sandbox session", "Use run.command, or run.call with an action.")
            hand = BoxHand(self._parts, self._change, self._sandbox, self._undo_all, self._drop, self._hold)
            setting = reopen(hand, box, env) if box else begin(hand, base, cwd, env)
            return Box(hand, setting, BoxLimits(network, timeout, memory, processes), self.id)

    @abstractmethod
    def _hold(self, change: Change, options: Options) -> Effect | None: ...

    @abstractmethod
    def _drop(self, change: Change, reason: DropReason, size: int | None = None) -> Effect | None: ...

    def _sandbox(self, place: str) -> "Sandbox":
        """The one small process that starts this run's commands."""
        with self._lock:
            self._refuse_ended()
            if self._rooms is None:
                self._rooms = rooms_of(self._parts, place)
            return self._rooms

    def _close_rooms(self) -> None:
        if self._rooms is not None:
            self._rooms.close()
            self._rooms = None


def rooms_of(parts: "Parts", place: str) -> "Sandbox":
    """A small process that starts commands, with a place below this one."""
    from takeback.sandbox.ability import forget
    from takeback.sandbox.sandbox import Sandbox
    from takeback.storage.disk import reachable

    rooms = os.path.join(place, "rooms")
    with reachable(rooms, "written"):
        os.makedirs(rooms, mode=0o700, exist_ok=True)
    store = os.fsdecode(path_of(parts.off_limits))
    return Sandbox(rooms, lambda: forget(store))
