"""What every part of a run shares: whose it is, how it is held, and where in its work it stands."""

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from takeback.engine.parts import Parts
from takeback.errors import Misuse
from takeback.model.database import Database, resource_of
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.record import Draft
from takeback.model.resource import path_of
from takeback.model.run import Lease, RunInfo
from takeback.model.settings import Settings
from takeback.runs.call_keys import CallKeys, awaiting
from takeback.runs.lease import Heartbeat, Interruptions, OwnLock
from takeback.runs.selection import name_of
from takeback.runs.workflows.replay import Replay
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.adapters.watch.watched_root import WatchedRoot
    from takeback.sandbox.sandbox import Sandbox


class OpenDatabase(Protocol):
    @property
    def database(self) -> Database: ...

    @property
    def in_transaction(self) -> bool: ...

    @property
    def in_transaction_here(self) -> bool: ...

    def close(self) -> None: ...


class RunCore:
    """`Run` is what an agent sees of it. Workers and an opened store work with this."""

    def __init__(
        self,
        parts: Parts,
        info: RunInfo,
        lease: Lease,
        settings: Settings,
        now: Callable[[], int],
        keep_up: Callable[[str], None] = lambda run: None,
        begun: int = 0,
    ) -> None:
        """`begun`: what `since_boot` said before the lease was taken; 0: not known."""
        self.id, self.name, self.agent = info.id, info.name, info.agent
        self.parts = parts
        self.info = info
        self.lease = lease
        self.settings = settings
        self.now = now
        self.keep_up = keep_up
        self.lock = OwnLock(info.id)
        self.calls = CallKeys(parts, lease, self.lock, fresh=not info.effects)
        self.lasts = settings.lease_seconds * 1_000_000
        self.heartbeat = Heartbeat(parts.leases, lease, now, self.lasts, begun=begun)
        self.signals: Interruptions | None = None
        self.replay: Replay | None = None  # in a workflow
        self.part_of: tuple[int, str] | None = None  # the step that is being made: its number, its intent
        self.heard: dict[str, int] = {}  # in an ordinary run: by event, the signal that was taken last
        self.position = info.effects - awaiting(parts, info)
        self.since_checkpoint = 0
        self.joined = 0  # parts of this process that joined it too, and have not left it
        self.ended = False
        self.released = False
        self.rooms: Sandbox | None = None
        self.databases: list[OpenDatabase] = []
        self.trees: dict[str, WatchedRoot] = {}  # directories that were watched, by resource
        self.state: Any = None  # the agent's own, when it was resumed from a checkpoint

    def append(self, draft: Draft) -> Any:
        return self.calls.books.journal.append(self.lease, [draft])[0]

    def effect(self, effect: "Effect | str") -> Effect:
        id = name_of(effect)
        found = next(self.parts.journal.effects(Query(ids=(id,))), None)
        if found is None:
            raise Misuse(f"There is no effect {id!r}.", hint="`run.effects()` lists those of this run.")
        return found

    def outlast(self, seconds: float) -> None:
        """The lease is held for that long from now, or `LeaseLost`."""
        self.heartbeat.outlast(seconds, self.lock.others)

    def uninterrupted(self) -> AbstractContextManager[None]:
        """A signal that arrives in the block is raised when it is left."""
        return (self.signals or Interruptions()).held_back()

    def give_way(self) -> None:
        """In such a block, before anything was begun: a signal that has arrived is raised."""
        if self.signals:
            self.signals.give_way()

    @property
    def is_a_childs_copy(self) -> bool:
        """After a fork: the run is the parent's, which continues it."""
        return os.getpid() != self.lease.owner.pid

    def refuse_ended(self) -> None:
        if self.ended:
            raise Misuse(f"Run {short(self.id)} has ended.", hint="Start another one with tb.run(…).")

    def refuse_in_workflow(self, what: str, instead: str) -> None:
        """What could not be answered from the journal when the function is replayed."""
        if self.replay is not None:
            raise Misuse(f"{what} cannot be a step of a workflow.", hint=f"Nothing was changed. {instead}")

    def refuse_in_transaction(self, effects: Iterable[Effect]) -> None:
        """Before an undo: it would wait for the transaction in which it is asked for."""
        busy = {resource_of(one.database) for one in self.databases if one.in_transaction_here}
        for one in effects:
            if one.change.resource in busy:
                raise Misuse(
                    f"Effect {short(one.id)} cannot be taken back in the middle of a transaction on the same database.",
                    hint="Nothing was changed. Undo it before or after the `with db.transaction():` block.",
                    effect=one.id,
                )

    def sandbox(self, place: str) -> "Sandbox":
        """The one small process that starts this run's commands."""
        with self.lock:
            self.refuse_ended()
            if self.rooms is None:
                self.rooms = rooms_of(self.parts, place)
            return self.rooms

    def close_databases(self) -> None:
        for database in self.databases:
            database.close()
        self.databases.clear()


def rooms_of(parts: Parts, place: str) -> "Sandbox":
    """A small process that starts commands, with a place below this one."""
    from takeback.sandbox.ability import forget
    from takeback.sandbox.sandbox import Sandbox
    from takeback.storage.disk import reachable

    rooms = os.path.join(place, "rooms")
    with reachable(rooms, "written"):
        os.makedirs(rooms, mode=0o700, exist_ok=True)
    store = os.fsdecode(path_of(parts.off_limits))
    return Sandbox(rooms, lambda: forget(store))
