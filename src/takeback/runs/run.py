"""A run: one agent's stretch of work, held under a lease; kept or taken back as a whole."""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from takeback.engine.do import Terms, do
from takeback.engine.parts import Parts
from takeback.engine.plan import Wishes, plan_undo
from takeback.engine.stuck import Taker, carry_out
from takeback.engine.undo import (
    not_kept,
    refuse_blocked,
    refuse_conflicts,
    refuse_untouched,
    roll_back,
)
from takeback.errors import AwaitingApproval, Drifted, Misuse, ResourceUnreachable, StoreBusy
from takeback.model.change import EDIT, Change, intent
from takeback.model.effect import Effect, State
from takeback.model.ids import new_id, short
from takeback.model.plan import UndoResult, on_conflict_named
from takeback.model.record import Draft, Kind, canonical
from takeback.model.run import Checkpoint, Lease, OnDeath, RunInfo, RunState
from takeback.model.settings import Settings
from takeback.runs import checkpoints
from takeback.runs.boxing import Boxing
from takeback.runs.calling import Calling, awaiting
from takeback.runs.commands import Commands
from takeback.runs.heartbeat import Heartbeat
from takeback.runs.held import dropped, refuse_unkept
from takeback.runs.names import name_of
from takeback.runs.querying import Querying
from takeback.runs.signals import Interruptions, shared
from takeback.runs.spent import Past
from takeback.runs.verbs import Options, Verbs
from takeback.runs.watch import Watching
from takeback.storage.process import myself
from takeback.storage.protocols import Blobs, Query

if TYPE_CHECKING:
    from takeback.runs.sql import Hand, Sql
    from takeback.sandbox.sandbox import Sandbox

TURN_SECONDS = 10


class Run(Verbs, Boxing, Calling, Commands, Watching, Querying):
    """Use it as a context manager: an exception takes back everything not kept, a normal end keeps it."""

    def __init__(
        self,
        parts: Parts,
        info: RunInfo,
        lease: Lease,
        settings: Settings,
        now: Callable[[], int],
        keep_up: Callable[[str], None] = lambda run: None,
    ) -> None:
        self._parts = parts
        self._info = info
        self._lease = lease
        self._settings = settings
        self._lock = threading.RLock()
        self._position = info.effects - awaiting(parts, info)
        self._since_checkpoint = 0
        self._signals: Interruptions | None = None
        self._heartbeat = Heartbeat(parts.leases, lease, now, settings.lease_seconds * 1_000_000)
        self._now = now
        self._keep_up = keep_up
        self._ended = False
        self._rooms: Sandbox | None = None
        self._databases: list[Sql] = []
        self._past = None if info.effects else Past()

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def name(self) -> str:
        return self._info.name

    @property
    def agent(self) -> str:
        return self._info.agent

    @property
    def lease(self) -> Lease:
        return self._lease

    # Changes.

    @property
    def _blobs(self) -> Blobs:
        return self._parts.blobs

    def _change(self, build: Callable[[], Change], options: Options) -> Effect | None:
        with self._lock:
            self._refuse_ended()
            change = build()
            if options.allow_inexact:
                change = change._replace(args={**change.args, "allow_inexact": True})
            if earlier := self._answered(change):
                return earlier
            key = options.key or self._next_key(change)
            terms = Terms(
                key,
                options.needs,
                options.checks,
                options.expects,
                agent=self.agent,
                asked_after=self._asked_after(),
                held_back=self.uninterrupted,
            )
            effect = self._do_in_turn(change, terms)
            if effect:
                # Only an effect takes a position: whoever resumes the run counts its effects and must not come to the
                # same number, or the same change asked for again would pass for the one that was made then.
                self._position += 1
                self._count()
            return effect

    def _asked_after(self) -> int:
        patience = self._settings.approval_seconds
        return self._now() - patience * 1_000_000 if patience else 0

    def _outlast(self, seconds: float) -> None:
        self._heartbeat.outlast(seconds)

    def _hold(self, change: Change, options: Options) -> Effect | None:
        """Ready and not made: it waits for a person to keep or drop it."""
        from takeback.engine.held import hold

        with self._lock:
            self._refuse_ended()
            key = options.key or self._next_key(change)
            effect = hold(self._parts, self._lease, change, Terms(key, options.needs, agent=self.agent))
            if effect:
                self._position += 1
            return effect

    def _hand(self) -> "Hand":
        from takeback.runs.sql import Hand

        self._refuse_ended()
        return Hand(
            self._parts,
            self._lease,
            self.agent,
            self._next_key,
            self._took_hold,
            self.uninterrupted,
            self._lock,
            self._refuse_ended,
            self._settings.max_rows,
        )

    def _took_hold(self, effect: Effect) -> None:
        with self._lock:
            self._position += 1
            self._count()

    def _do_in_turn(self, change: Change, terms: Terms) -> Effect | None:
        """While another process is changing the same thing we wait for it; what a dead one left is settled."""
        until = time.monotonic() + TURN_SECONDS
        while True:
            try:
                return do(self._parts, self._lease, change, terms)
            except (StoreBusy, Drifted) as error:
                # Setting a key means the same whatever else is in the file; other content may rest on what was read.
                # With checks in between there was time for a person to set that very key: then it is refused.
                again = isinstance(error, StoreBusy) or (change.kind == EDIT and not terms.checks)
                if not again or time.monotonic() > until:
                    raise
            if not self._settle_own() and not self._settle_the_dead():
                time.sleep(0.01)

    def _settle_own(self) -> bool:
        """What was left in doubt here, and is asked for again."""
        from takeback.engine.recover import settle_open

        found = settle_open(self._parts, self._lease, (State.INTENDED,))
        return any(one.outcome != "left" for one in found)

    def _settle_the_dead(self) -> bool:
        from takeback.engine.recover import recover

        lasts = self._settings.lease_seconds * 1_000_000
        return bool(recover(self._parts, self._lease.owner, self._now(), lasts))

    def _next_key(self, change: Change) -> str:
        """From run, position and intent: asked again at the same place, the same change has the same key."""
        if any(database.in_transaction for database in self._databases):
            return (
                new_id()
            )  # which of the two takes hold first is not known, so there is no place to be asked at again
        told = canonical(intent(change))
        return hashlib.sha256(f"{self.id} {self._position + 1} ".encode() + told).hexdigest()[:16]

    def _count(self) -> None:
        self._since_checkpoint += 1
        if self._settings.checkpoint_every and self._since_checkpoint >= self._settings.checkpoint_every:
            self._append(checkpoints.draft(self.id, f"after {self._position} effects", automatic=True))
            self._since_checkpoint = 0

    # Points, undo, keeping.

    def checkpoint(
        self,
        label: str,
        state: Any = None,
        *,
        environment: Sequence[str] = (),
        path: Sequence[str] = (),
        summary: str = "",
    ) -> Checkpoint:
        """A point to come back to, with the agent's own state (JSON)."""
        with self._lock:
            self._refuse_ended()
            record = self._append(
                checkpoints.draft(self.id, label, state, environment=environment, path=path, summary=summary)
            )
            self._since_checkpoint = 0
            return checkpoints.from_record(record)

    def undo(
        self,
        effect: "Effect | str | None" = None,
        *,
        to: "str | Checkpoint | None" = None,
        dry_run: bool = False,
        cascade: bool = False,
        with_needs: bool = False,
        on_conflict: str = "refuse",
    ) -> UndoResult:
        """Take back one effect of this run, everything after a checkpoint, or everything not kept."""
        wishes = Wishes(cascade, with_needs, on_conflict_named(on_conflict))
        with self._lock:
            self._refuse_ended()
            point = checkpoints.find(self._parts.journal, to, self.id) if to is not None else None
            wanted = self._wanted(effect, point)
            self.refuse_in_transaction(one for one in wanted if not one.waits_for)
            if wanted and all(one.waits_for for one in wanted):
                return dropped(self._parts, self._lease, wanted, dry_run)
            state = json.loads(point.state) if point and point.state else None
            return self._undo_all(wanted, wishes, dry_run, point)._replace(state=state)

    def _undo_all(
        self, wanted: Sequence[Effect], wishes: Wishes, dry_run: bool, point: Checkpoint | None = None
    ) -> UndoResult:
        with self._lock:
            self._refuse_ended()
            plan = plan_undo(self._parts, wanted, wishes)
            refuse_blocked(plan)
            refuse_conflicts(plan, wishes)
            if dry_run:
                return UndoResult("planned", plan.effects, plan.targets)
            if point:
                self._going_back(point.seq)
            with self.uninterrupted():
                taker = Taker(myself(), self._now(), self._settings.lease_seconds * 1_000_000)
                result = carry_out(self._parts, self._lease, plan, wishes, self.agent, taker)
            return refuse_untouched(result, to_a_point=point is not None)

    def _wanted(self, effect: "Effect | str | None", point: Checkpoint | None) -> tuple[Effect, ...]:
        if effect is None:
            after = point.seq if point else 0
            return tuple(one for one in not_kept(self._parts, self.id) if one.order > after)
        id = name_of(effect)
        found = tuple(self._parts.journal.effects(Query(ids=(id,))))
        if not found:
            raise Misuse(f"There is no effect {id!r}.", hint="`run.effects()` lists those of this run.")
        return found

    def keep(self, effect: "Effect | str") -> None:
        """This one stays even if the run fails later. If it is held, it is made."""
        from takeback.engine.held import keep_held

        with self._lock:
            self._refuse_ended()
            (found,) = self._wanted(effect, None)
            if found.waits_for:
                terms = Terms(found.key, agent=self.agent, held_back=self.uninterrupted)
                keep_held(self._parts, self._lease, found, found.change, terms)
            else:
                refuse_unkept(found)
            self._append(Draft(Kind.KEEP, self.id, found.id))

    @contextmanager
    def lent(self) -> Generator[Lease | None, None, None]:
        """To whoever decides on what it holds; None once it has ended."""
        with self._lock:
            yield None if self._ended else self._lease

    def effects(self) -> tuple[Effect, ...]:
        return tuple(self._parts.journal.effects(Query(run=self.id)))

    # Beginning and end.

    def __enter__(self) -> "Run":
        self._signals = shared()
        self._signals.watch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._ended or self._is_a_childs_copy():
                return
            if self._info.on_death is OnDeath.LEAVE:
                self.leave()
            elif error is None or self._info.on_death is OnDeath.KEEP:
                with self.uninterrupted():
                    self.close()
            elif self._info.on_death is OnDeath.FINISH:
                self._end_undo()
            elif isinstance(error, AwaitingApproval):
                self.suspend(str(error))
            elif isinstance(error, KeyboardInterrupt) or (self._signals and self._signals.arrived):
                self.suspend(f"interrupted: {type(error).__name__}")
            else:
                self._fail(error)
        finally:
            if not self._ended:
                self.leave()  # it could not be ended: whoever opens the store next settles it
            if self._signals:
                self._signals.release()

    def close(self) -> None:
        """A normal end: what was done stays, and can still be undone on purpose until it is forgotten."""
        self._end(RunState.KEPT)
        self._keep_up(self.id)

    def suspend(self, label: str) -> None:
        """Stop here, at a checkpoint, with nothing taken back; `tb.resume` goes on from there."""
        with self._lock:
            self._refuse_ended()
            self._append(checkpoints.draft(self.id, label, automatic=True))
            self._end(RunState.SUSPENDED)

    def leave(self) -> None:
        """Let go of the lease and leave the run open for whoever joins it next."""
        with self._lock:
            self._ended = True
            self._close_rooms()
            if self._is_a_childs_copy():
                return
            self._stop_watching()
            self._close_databases()
            self._heartbeat.stop()
            self._parts.leases.release(self._lease)

    def take_back(self) -> UndoResult:
        """End the run by taking back everything that is not kept."""
        return self._taken_back()[0]

    def _taken_back(self) -> tuple[UndoResult, int]:
        """Also how many changes that were held were dropped."""
        from takeback.engine.recover import close_rolled_back, settle_open

        with self._lock, self.uninterrupted():
            self._refuse_ended()
            settle_open(self._parts, self._lease)
            dropped = self._drop_reviewed()
            self._close_databases()  # a file that goes back must not be open in a session of ours
            result = roll_back(self._parts, self._lease, not_kept(self._parts, self.id), self.agent)
            close_rolled_back(self._parts, self._lease, result, RunState.UNDONE.value)
            self.leave()
            return result, dropped

    def _end_undo(self) -> None:
        from takeback.engine.recover import end_undo

        with self._lock, self.uninterrupted():
            end_undo(self._parts, self._lease, self._info)
            self.leave()

    def _fail(self, error: BaseException) -> None:
        result, dropped = self._taken_back()
        if result.targets or dropped:
            from takeback.runs.failing import note

            error.add_note(note(self.name, result, dropped))

    def _end(self, state: RunState) -> None:
        with self._lock:
            self._refuse_ended()
            from takeback.engine.recover import settle_open

            try:
                # Something is still in flight only if the store failed between a change and its record.
                settle_open(self._parts, self._lease)
                end = Draft(Kind.CLOSE, self.id, "", {"outcome": state.value})
                try:
                    self._append(end)
                except ResourceUnreachable:
                    self._append(end)  # on a full disk the store has made room for this much
            finally:
                # A run that could not be ended is not held either: whoever opens the store next settles it.
                self.leave()

    def _append(self, draft: Draft) -> Any:
        return self._parts.journal.append(self._lease, [draft])[0]

    def uninterrupted(self) -> Any:
        """A signal that arrives in the block is raised when it is left."""
        return (self._signals or Interruptions()).held_back()

    def _is_a_childs_copy(self) -> bool:
        """After a fork: the run is the parent's, and goes on there."""
        return os.getpid() != self._lease.owner.pid

    def _refuse_ended(self) -> None:
        if self._ended:
            raise Misuse(f"Run {short(self.id)} has ended.", hint="Start another one with tb.run(…).")
