"""The part of a run that makes changes: one after the other, each with a key of its own."""

import hashlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from takeback.adapters.file.paths import path_bytes
from takeback.engine.parts import Parts
from takeback.engine.write import Terms, do
from takeback.errors import (
    Drifted,
    InDoubt,
    LeaseLost,
    Misuse,
    Spent,
    StoreBusy,
    Stuck,
    TakebackError,
    Unavailable,
)
from takeback.model.change import EDIT, Change, intent
from takeback.model.effect import DropReason, Effect, State
from takeback.model.ids import new_id
from takeback.model.record import canonical
from takeback.model.run import Lease, RunState
from takeback.model.settings import Settings
from takeback.runs import checkpoints
from takeback.runs.selection import needed_by
from takeback.runs.verbs import Options
from takeback.runs.workflows.durable import Durable, as_failed, raise_again
from takeback.runs.workflows.function import digest_of
from takeback.runs.workflows.replay import CHANGE, COMMAND, STATEMENT, Replay, WorkflowStep
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.runs.commands.outcome import CommandOutcome
    from takeback.runs.lease import OwnLock
    from takeback.runs.sql import Sql, SqlHand, SqlResult

TURN_SECONDS = 10


class Changing(Durable, ABC):
    _parts: Parts
    _lease: Lease
    _settings: Settings
    _lock: "OwnLock"
    _position: int
    _part_of: tuple[int, str] | None  # the step whose effect is being made: its number, and what it asked for
    _since_checkpoint: int
    _databases: "list[Sql]"
    _now: Callable[[], int]

    @property
    @abstractmethod
    def agent(self) -> str: ...

    @abstractmethod
    def uninterrupted(self) -> Any: ...

    @abstractmethod
    def _give_way(self) -> None: ...

    @property
    def _books(self) -> Parts:
        """The parts of the run; in a thread that makes calls one after the other, with a journal of its own."""
        return self._parts

    def _change(self, build: Callable[[], Change], options: Options) -> Effect | None:
        if options.apart:
            return self._change_now(build, options)
        with self._lock:
            return self._change_now(build, options)

    def _change_now(self, build: Callable[[], Change], options: Options) -> Effect | None:
        self._refuse_ended()
        if self._part_of:
            return self._make(_built(build, options), options, *self._part_of)
        if self._replay is not None:
            return self._make_step(self._replay, self._take_step(self._replay, build, options), options)
        return self._make(_built(build, options), options)

    def _command_once(self, says: str, asked: str, make: "Callable[[], CommandOutcome]") -> "CommandOutcome":
        """In a workflow: what it changed is the effect of the same step."""
        from takeback.runs.commands.outcome import (
            DROPPED,
            kept_outcome,
            outcome_from_effect,
            outcome_from_json,
            outcome_to_json,
        )

        replay = self._replay
        assert replay is not None

        def recorded(id: str) -> Effect | None:
            return next(self._books.journal.effects(Query(ids=(id,))), None) if id else None

        def run_it() -> "CommandOutcome":
            with self._in_step(replay, asked):
                outcome = kept_outcome(make())
            return outcome._replace(dropped=recorded(outcome.dropped.id)) if outcome.dropped else outcome

        def again(step: WorkflowStep) -> "CommandOutcome":
            if "outcome" in step.body:
                dropped = recorded(step.body.get(DROPPED, ""))
                return outcome_from_json(step.body, step.effect, dropped)
            assert step.effect
            outcome = outcome_from_effect(step.effect)
            self._append(replay.draft(COMMAND, says, asked, outcome_to_json(outcome)))
            return outcome

        return self._once(COMMAND, says, asked, run_it, outcome_to_json, again)

    @abstractmethod
    def _answered(self, change: Change) -> Effect | None:
        """What the journal has for it, after the run went back."""

    def _make(
        self, change: Change, options: Options, step: int = 0, asked: str = "", fresh: bool = False
    ) -> Effect | None:
        """Whoever holds the lock holds it until this is over; for what is made apart nobody does."""
        begun = ""  # the key of a call that others wait for
        try:
            with self._lock:
                self._refuse_ended()
                if earlier := self._answered(change):
                    return earlier
                key, own = self._keys(change, options, step)
                if options.apart:
                    self._begin_call(own)
                    begun = own
            self._refuse_ended()
            if key:
                self._settle_its_run(key)
            terms = self._terms(own, options)._replace(step=step, asked=asked, fresh=fresh and not key)
            effect = self._do_in_turn(change, terms, options.apart)
            if effect:
                self._took_hold(effect)
            return effect
        except BaseException:
            if begun and not options.key and not step:
                self._call_failed(change, begun)
            raise
        finally:
            if begun:
                self._call_ended(begun)

    def _keys(self, change: Change, options: Options, step: int) -> tuple[str, str]:
        """The key that was given, and the one that it gets."""
        key = options.key
        if key and self._replay is not None and self._replay.history.turns and change.adapter != "call":
            # What had this key was taken back when the run went back to a checkpoint, and is asked for anew.
            key = f"{key}~{self._replay.history.turns}"
        if key:
            return key, key
        return "", self._call_key(change) if options.apart and not step else self._next_key(change, step)

    def _terms(self, key: str, options: Options) -> Terms:
        return Terms(
            key,
            needed_by(self._books.journal, options.needs),
            options.checks,
            options.expects,
            agent=self.agent,
            asked_at=self._now(),
            patience=self._settings.approval_seconds * 1_000_000,
            held_back=self.uninterrupted,
            give_way=self._give_way,
        )

    @abstractmethod
    def _call_key(self, change: Change) -> str: ...

    @abstractmethod
    def _begin_call(self, key: str) -> None: ...

    @abstractmethod
    def _flush_calls(self) -> None: ...

    @abstractmethod
    def _call_failed(self, change: Change, key: str) -> None: ...

    @abstractmethod
    def _call_ended(self, key: str) -> None: ...

    def _take_step(
        self, replay: Replay, build: Callable[[], Change], options: Options, beside: bool = False
    ) -> "TakenStep":
        """In a workflow: the next step, and what is recorded of it."""
        with self._lock:
            self._refuse_ended()
            replay.refuse_gone()
            change = None if options.asked else _built(build, options)
            asked = options.asked or digest_of(intent(change)) if change else options.asked
            says = change.summary if change else options.says
            recorded = replay.take(CHANGE, says, asked, beside)
            return TakenStep(replay.at, says, asked, recorded, lambda: change or _built(build, options))

    def _make_step(self, replay: Replay, taken: "TakenStep", options: Options) -> Effect | None:
        """The effect that is recorded for this step, or a new one."""
        step, says, asked, recorded, build = taken
        if recorded:
            raise_again(recorded)
            return recorded.effect
        with self._unbroken(replay):
            try:
                change = build()
                with self._lock:
                    effect = replay.made_earlier(change)
                if effect:
                    self._append(replay.draft(CHANGE, says, asked, {"effect": effect.id}, step))
                    return effect
                # Its key is made of the step, and of this one the journal has nothing, or it would have been recorded.
                effect = self._make(change, options, step, asked, step not in replay.history.unmade)
            except (Spent, Stuck, Unavailable, InDoubt):
                raise
            except TakebackError as error:
                self._append(replay.draft(CHANGE, says, asked, as_failed(error), step))
                raise
            if effect is None or effect.step != step:
                # It changed nothing, or another run made it under the same key.
                told = {"effect": effect.id} if effect else {"nothing": True}
                self._append(replay.draft(CHANGE, says, asked, told, step))
            return effect

    def _told(self, options: Options, verb: str, path: Any, *more: Any) -> Options:
        """What a step asks for, before names are resolved: links and directories may be others when it is replayed."""
        if self._replay is None:
            return options
        paths = tuple(cast("Mapping[Any, Any]", path)) if isinstance(path, Mapping) else (path,)
        paths += more[:1] if verb == "move" else ()
        names = [os.fsdecode(path_bytes(one)) for one in paths]
        where = "" if all(os.path.isabs(name) for name in names) else os.getcwd()
        asked = digest_of(verb, options.key, options.allow_inexact, where, names, _plain(path), _plain(more))
        return options._replace(
            asked=asked, says=f"{verb} {', '.join(names[:2])}{', …' if names[2:] else ''}"
        )

    def _hold(self, change: Change, options: Options) -> Effect | None:
        """Ready and not made: it waits for a person to keep or drop it."""
        from takeback.engine.held import hold

        with self._lock:
            self._refuse_ended()
            key = options.key or self._next_key(change)
            step, asked = self._part_of or (0, "")
            needs = needed_by(self._parts.journal, options.needs)
            terms = Terms(key, needs, agent=self.agent, step=step, asked=asked)
            effect = hold(self._parts, self._lease, change, terms)
            if effect:
                self._position += 1
            return effect

    def _drop(self, change: Change, reason: DropReason, size: int | None = None) -> Effect | None:
        """Not made; for a while it can be applied after all."""
        from takeback.engine.drop import drop

        with self._lock:
            self._refuse_ended()
            effect = drop(self._parts, self._lease, change, Terms(agent=self.agent), reason, size)
            if effect:
                self._position += 1
            return effect

    def _hand(self) -> "SqlHand":
        from takeback.runs.sql import SqlHand

        self._refuse_ended()
        return SqlHand(
            self._parts,
            self._lease,
            self.agent,
            self._next_key,
            self._took_hold,
            self.uninterrupted,
            self._lock,
            self._refuse_ended,
            self._settings.max_rows,
            self._statement_once if self._replay is not None else None,
            lambda: self._part_of or (0, ""),
        )

    def _statement_once(self, says: str, asked: str, make: "Callable[[], SqlResult]") -> "SqlResult":
        """In a workflow: what it answered is recorded, too, as JSON has it."""
        from takeback.runs import sql

        replay = self._replay
        assert replay is not None

        def again(step: WorkflowStep) -> "SqlResult":
            if "answer" in step.body:
                return sql.result_from_json(step.body, step.effect)
            # Its worker was killed before it could record the answer.
            lost = sql.lost_result(step.effect)
            self._append(replay.draft(STATEMENT, says, asked, sql.result_to_json(lost)))
            return lost

        def run_it() -> "SqlResult":
            with self._in_step(replay, asked):
                return sql.kept_result(make())

        return self._once(STATEMENT, says, asked, run_it, sql.result_to_json, again)

    @contextmanager
    def _in_step(self, replay: Replay, asked: str) -> "Generator[None, None, None]":
        self._part_of = (replay.at, asked)
        try:
            yield
        finally:
            self._part_of = None

    def _took_hold(self, effect: Effect) -> None:
        with self._lock:
            self._position += 1
            self._count()

    def _do_in_turn(self, change: Change, terms: Terms, apart: bool = False) -> Effect | None:
        """While another process is changing the same thing we wait for it; what a dead one left is settled."""
        until = time.monotonic() + TURN_SECONDS
        while True:
            try:
                return do(self._books, self._lease, change, terms)
            except (StoreBusy, Drifted) as error:
                # Setting a key means the same whatever else is in the file; other content may rest on what was read.
                # With checks in between there was time for a person to set that very key: then it is refused.
                again = isinstance(error, StoreBusy) or (change.kind == EDIT and not terms.checks)
                if not again or time.monotonic() > until:
                    raise
                needed = error.effect
            if apart and self._waited_for(needed, terms.key):
                until = time.monotonic() + TURN_SECONDS
            elif not self._settle_own(terms.key if apart else "") and not self._settle_the_dead(needed):
                time.sleep(0.01)
            terms = terms._replace(fresh=False)  # of what was tried there may be something now

    def _waited_for(self, effect: str | None, key: str) -> bool:
        """For a call of another thread of this run, about the same thing; that takes as long as it may take."""
        found = next(self._books.journal.effects(Query(ids=(effect,))), None) if effect else None
        if found is None or found.key == key or found.key not in self._lock.under_way:
            return False
        self._flush_calls()
        self._lock.wait_for(found.key)
        return True

    def _settle_own(self, key: str) -> bool:
        """What was left in doubt here, and is asked for again: with this key, or whatever no other thread is at."""
        from takeback.engine.recover import open_in, settle_all

        others = self._lock.under_way
        found = open_in(self._books, self.id, (State.INTENDED,))
        mine = [one for one in found if (one.key == key if key else one.key not in others)]
        return any(one.outcome != "left" for one in settle_all(self._books, self._lease, mine))

    def _settle_the_dead(self, needed: str | None) -> bool:
        """What needs no functions; and the run of the effect that is needed, which is said before it calls any."""
        from takeback.engine.recover import recover

        me, lasts = self._lease.owner, self._settings.lease_seconds * 1_000_000
        if recover(self._parts, me, self._now(), lasts, calls=False):
            return True
        effect = next(self._books.journal.effects(Query(ids=(needed,))), None) if needed else None
        if effect is None or effect.run == self.id:
            return False
        tell = self._parts.tell
        return bool(recover(self._parts, me, self._now(), lasts, only=effect.run, tell=tell))

    def _settle_its_run(self, key: str) -> None:
        """The same was made by a run that died, and goes back when that is settled: it is no answer before."""
        earlier = next(self._books.journal.effects(Query(key=key)), None)
        if earlier and earlier.run != self.id and earlier.state is State.DONE and not earlier.accepted:
            (info,) = self._parts.journal.runs((earlier.run,))
            if info.state is RunState.OPEN and self._parts.leases.free(info.id, self._now()):
                self._settle_the_dead(earlier.id)

    def _next_key(self, change: Change, step: int = 0) -> str:
        """From run, position and intent: asked again at the same place, the same change has the same key. In a workflow
        the place is the step; what it asks for after it went back to a checkpoint is something else."""
        if any(database.in_transaction for database in self._databases):
            return (
                new_id()
            )  # which of the two takes hold first is not known, so there is no place to be asked at again
        place = str(self._position + 1)
        if self._replay is not None:
            place = f"step {step or self._replay.at} turn {self._replay.history.turns}"
        told = canonical(intent(change))
        return hashlib.sha256(f"{self.id} {place} ".encode() + told).hexdigest()[:16]

    def _count(self) -> None:
        self._since_checkpoint += 1
        if self._replay and self._replay.beside:
            return  # a point between steps that are made at the same time would be behind some of them
        if self._settings.checkpoint_every and self._since_checkpoint >= self._settings.checkpoint_every:
            try:
                self._append(checkpoints.draft(self.id, f"after {self._position} effects", automatic=True))
            except LeaseLost:
                raise
            except (Unavailable, InDoubt):
                return  # the effect was made and is recorded; after the next one it is tried again
            self._since_checkpoint = 0


class TakenStep(NamedTuple):
    """A step of a workflow that was asked for."""

    step: int
    says: str
    asked: str
    recorded: WorkflowStep | None
    change: Callable[[], Change]


def _built(build: Callable[[], Change], options: Options) -> Change:
    change = build()
    return change._replace(args={**change.args, "allow_inexact": True}) if options.allow_inexact else change


def _plain(asked: Any) -> Any:
    """As JSON: paths as text, contents by their digest."""
    if isinstance(asked, (str, int)) or asked is None:
        return asked
    if isinstance(asked, bytes):
        return hashlib.sha256(asked).hexdigest()
    if isinstance(asked, os.PathLike):
        return os.fsdecode(asked)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(asked, Mapping):
        return [[_plain(name), _plain(value)] for name, value in asked.items()]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(asked, (list, tuple)):
        return [_plain(one) for one in asked]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(asked, float):
        return repr(asked)
    raise Misuse(
        f"In a workflow {type(asked).__name__} cannot be told from what was asked for before.",
        hint="Give text, bytes, numbers, lists or dicts.",
    )
