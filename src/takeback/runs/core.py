"""What every part of a run shares: whose it is, how it is held, and where in its work it stands."""

import hashlib
import os
from _thread import get_ident
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from takeback.adapters.protocol import traits_of
from takeback.engine.parts import Parts
from takeback.engine.pipelined import PipelinedJournal
from takeback.errors import Misuse
from takeback.model.change import Change, intent
from takeback.model.database import Database, resource_of
from takeback.model.effect import OPEN_STATES, Effect, State, waits_for_approval
from takeback.model.ids import short
from takeback.model.record import Draft, Kind, canonical
from takeback.model.resource import function_in, path_of
from takeback.model.run import Lease, RunInfo
from takeback.model.settings import Settings
from takeback.runs.lease import Heartbeat, Interruptions, OwnLock
from takeback.runs.selection import name_of
from takeback.runs.workflows.replay import Replay
from takeback.runs.workflows.rewind import BACK, Past, answer, past_of
from takeback.storage.protocols import Journal, Query

if TYPE_CHECKING:
    from takeback.adapters.watch.processes import Lineage
    from takeback.adapters.watch.watched_root import WatchedRoot
    from takeback.runs.commands.merge import Merge
    from takeback.sandbox.sandbox import Sandbox


class OpenDatabase(Protocol):
    @property
    def database(self) -> Database: ...

    @property
    def in_transaction(self) -> bool: ...

    @property
    def in_transaction_here(self) -> bool: ...

    def close(self) -> None: ...


class OpenWatch(Protocol):
    """Of a call whose end another process may tell."""

    effect: Effect | None
    outside: tuple[str, ...]  # what else it is known to have changed, which is not recorded

    def finish(self, more: Mapping[str, Any] | None = None) -> Effect | None: ...


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
        self.closed = False  # its end is recorded
        self.freed = False  # with that record its lease was released
        self.rooms: Sandbox | None = None
        self.databases: list[OpenDatabase] = []
        self.trees: dict[str, WatchedRoot] = {}  # directories that were watched, by the name of their index
        self.watches: dict[str, OpenWatch] = {}  # those that have a key, by it
        # Who started whom, for all watches of the run: it is drained by who gave it.
        self.lineage: Lineage | None = None
        self.is_note: Callable[[bytes], bool] | None = None  # files that the agent keeps for itself
        self.asked_first = False  # the host of the agent asks the policy before each call
        self.makers: Callable[[], Iterable[int]] | None = None  # see `WatchPlace`
        # Why what a command in a sandbox has changed must not be made; empty if it may.
        self.forbids: Callable[[Merge], str] | None = None
        self.families: dict[
            int, frozenset[int]
        ] = {}  # by process: what it had started before the lineage began
        self.state: Any = None  # the agent's own, when it was resumed from a checkpoint

    def append(self, draft: Draft) -> Any:
        return self.calls.books.journal.append(self.lease, [draft])[0]

    def effect(self, effect: "Effect | str") -> Effect:
        id = name_of(effect)
        found = next(self.parts.journal.effects(Query(ids=(id,))), None)
        if found is None:
            raise Misuse(
                f"There is no effect {id!r}.", hint=f"`takeback log --run {short(self.id)}` lists them."
            )
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


# The keys of a run's calls: which are under way, which are asked for again, which the past answers.


class OneByOne(NamedTuple):
    """A thread's calls of one list: the parts that it makes them with, and their keys."""

    parts: Parts
    journal: PipelinedJournal
    keys: list[str]


class CallKeys:
    def __init__(self, parts: Parts, lease: Lease, lock: OwnLock, fresh: bool) -> None:
        """`fresh`: the run has no effects yet."""
        self._parts = parts
        self._lease = lease
        self._lock = lock
        self._past = Past() if fresh else None  # None: the journal was not asked yet
        self._calls = 0  # that had no key of their own, under this lease
        # Keys of calls that failed or were left open, by what was asked for.
        self._again: dict[bytes, list[str]] | None = {} if fresh else None
        self._joined: dict[int, OneByOne] = {}  # by thread

    @property
    def books(self) -> Parts:
        """The parts of the run; in a thread that makes calls one after the other, with a journal of its own."""
        mine = self._joined.get(get_ident()) if self._joined else None
        return mine.parts if mine else self._parts

    @contextmanager
    def one_by_one(self) -> Generator[None, None, None]:
        """In the block, what became of a call of this thread is recorded together with the intent of its next."""
        mine, joined = get_ident(), PipelinedJournal(self._parts.journal)
        self._joined[mine] = OneByOne(self._parts._replace(journal=cast(Journal, joined)), joined, [])
        try:
            yield
        finally:
            try:
                joined.flush()
            finally:
                self._lock.end_calls(*self._joined.pop(mine).keys)

    def key_of(self, change: Change) -> str:
        """From the run, the lease under which it works, and a number that no other call under it has: whichever thread
        is quicker, none is taken for another. Asked again after an error, the same call has the same key; so has one
        that was left open by the process that had the run before."""
        told = canonical(intent(change))
        if self._again is None:
            self._again = _left_open(self._parts.journal, self._lease.run)
        if keys := self._again.get(told):
            return keys.pop(0)
        self._calls += 1
        place = f"{self._lease.run} {self._lease.generation} {self._calls} "
        return hashlib.sha256(place.encode() + told).hexdigest()[:16]

    def begin(self, key: str) -> None:
        if key in self._lock.under_way:
            self.flush()
        self._lock.begin_call(key)

    def flush(self) -> None:
        """Before this thread waits for another one, which may wait for what this one has made: that is recorded."""
        if mine := self._joined.get(get_ident()):
            mine.journal.flush()
            self._lock.end_calls(*mine.keys)
            mine.keys.clear()

    def failed(self, change: Change, key: str) -> None:
        with self._lock:
            again = self._again if self._again is not None else {}
            again.setdefault(canonical(intent(change)), []).append(key)
            self._again = again

    def end(self, key: str) -> None:
        if mine := self._joined.get(get_ident()):
            # What came of it is recorded with the next one, and until then no one may ask.
            mine.keys.append(key)
        else:
            self._lock.end_calls(key)

    def quiet(self) -> None:
        """Before the run ends or goes back, with the lock held: no call is under way, and what came of each is
        recorded."""
        self.flush()
        self._lock.wait_for_calls()

    # Calls of the past, after the run went back.

    @property
    def past(self) -> Past:
        if self._past is None:
            self._past = past_of(self._parts.journal, self._lease.run)
        return self._past

    def answered(self, change: Change, now: Callable[[], int]) -> Effect | None:
        """From the journal, after the run went back: what cannot come again is not called again."""
        spent = self.past.spent if traits_of(change).calls else ()
        found = answer(spent, change, now()) if spent else None
        if found and self._past:
            # Two that are the same are answered one after the other.
            self._past = self._past._replace(spent=tuple(one for one in spent if one.id != found.id))
        return found

    def go_back(self, seq: int) -> Draft | None:
        """To be recorded before anything is taken back: the next process must know after a crash."""
        later = self._parts.journal.effects(Query(run=self._lease.run, made=True))
        if not any(traits_of(one.change).calls and one.order > seq for one in later):
            return None
        self._past = None
        return Draft(Kind.REMEMBER, self._lease.run, "", {BACK: seq})

    def fork(self) -> None:
        """Later calls are new calls, even with the same arguments. That is recorded first."""
        self._past = Past((), self.past.forks + 1)
        self._again = {}


def _left_open(journal: Journal, run: str) -> dict[bytes, list[str]]:
    """Calls of this run whose outcome is not known yet, or that wait for an approval."""
    found: dict[bytes, list[str]] = {}
    for one in journal.effects(Query(run=run, states=OPEN_STATES)):
        if one.key and not one.is_undo and function_in(one.change.resource):
            found.setdefault(canonical(intent(one.change)), []).append(one.key)
    return found


def awaiting(parts: Parts, info: RunInfo) -> int:
    """How many of its effects wait for an approval: asked for again, each is at the place where it was."""
    if not info.effects:
        return 0
    found = parts.journal.effects(Query(run=info.id, states=(State.PROPOSED,)))
    return sum(1 for one in found if waits_for_approval(one))
