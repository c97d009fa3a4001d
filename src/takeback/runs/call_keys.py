"""The keys of a run's calls: which are under way, which are asked for again, which the past answers."""

import hashlib
from _thread import get_ident
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NamedTuple, cast

from takeback.engine.parts import Parts
from takeback.engine.pipelined import PipelinedJournal
from takeback.model.change import Change, intent
from takeback.model.effect import OPEN_STATES, Effect, State, waits_for_approval
from takeback.model.record import Draft, canonical
from takeback.model.resource import function_in
from takeback.model.run import Lease, RunInfo
from takeback.runs.lease import OwnLock
from takeback.runs.workflows.rewind import Past, answer, past_of, went_back
from takeback.storage.protocols import Journal, Query


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
        spent = self.past.spent if change.adapter == "call" else ()
        found = answer(spent, change, now()) if spent else None
        if found and self._past:
            # Two that are the same are answered one after the other.
            self._past = self._past._replace(spent=tuple(one for one in spent if one.id != found.id))
        return found

    def go_back(self, seq: int) -> Draft | None:
        """To be recorded before anything is taken back: the next process must know after a crash."""
        later = self._parts.journal.effects(Query(run=self._lease.run, made=True))
        if not any(one.change.adapter == "call" and one.order > seq for one in later):
            return None
        self._past = None
        return went_back(self._lease.run, seq)

    def fork(self) -> None:
        """What is called from here on is meant anew. That is recorded before."""
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
