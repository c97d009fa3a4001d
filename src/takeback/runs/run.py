"""A run: one agent's stretch of work, held under a lease; accepted or taken back as a whole."""

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from takeback.engine.parts import Parts
from takeback.engine.plan import Wishes
from takeback.engine.stuck import Taker
from takeback.engine.undo import Undoer, not_accepted, roll_back, undo
from takeback.engine.write import Terms
from takeback.errors import (
    AwaitingApproval,
    Failed,
    InDoubt,
    Misuse,
    Refused,
    Renamed,
    ResourceUnreachable,
    StoreFull,
    TakebackError,
    Unavailable,
)
from takeback.model.effect import PERSON, DropReason, Effect, State
from takeback.model.ids import short
from takeback.model.plan import Plan, UndoResult, on_conflict_named
from takeback.model.record import Draft, Kind
from takeback.model.run import Checkpoint, Lease, OnDeath, RunInfo, RunState
from takeback.model.settings import Settings
from takeback.runs import checkpoints
from takeback.runs.boxes.open import Boxing
from takeback.runs.call import Calling, awaiting
from takeback.runs.commands.execute import Commands
from takeback.runs.held import discarded, held_error, refuse_unmade
from takeback.runs.lease import Heartbeat, Interruptions, OwnLock, shared
from takeback.runs.selection import name_of, standing_again
from takeback.runs.verbs import Options, Path, Querying, Verbs
from takeback.runs.watch import Watching
from takeback.runs.workflows.replay import Leaving, Replay
from takeback.runs.workflows.rewind import Past
from takeback.storage.owners import myself
from takeback.storage.protocols import Blobs, Query

if TYPE_CHECKING:
    from takeback.engine.drop import Final
    from takeback.runs.sql import Sql
    from takeback.sandbox.sandbox import Sandbox


_RETURN = "Return a result, or raise what went wrong; run.undo() takes back."


class Run(Calling, Verbs, Boxing, Commands, Watching, Querying):
    """Use it as a context manager: an exception takes back everything not accepted, a normal end accepts it."""

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
        self._parts = parts
        self._info = info
        self._lease = lease
        self._settings = settings
        self._lock = OwnLock(info.id)
        self._others = 0  # parts of this process that joined it too, and have not left it
        self._position = info.effects - awaiting(parts, info)
        self._since_checkpoint = 0
        self._signals: Interruptions | None = None
        self._heartbeat = Heartbeat(parts.leases, lease, now, settings.lease_seconds * 1_000_000, begun=begun)
        self._now = now
        self._keep_up = keep_up
        self._ended = False
        self._let_go = False  # of the lease
        self._rooms: Sandbox | None = None
        self._databases: list[Sql] = []
        self._past = None if info.effects else Past()
        self._calls = 0
        self._again = None if info.effects else {}
        self._joined = {}
        self._replay: Replay | None = None  # in a workflow
        self._part_of: tuple[int, str] | None = None
        self._heard: dict[str, int] = {}
        self.state: Any = None  # the agent's own, when it was resumed from a checkpoint

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

    def outlast(self, seconds: float) -> None:
        """The lease is held for that long from now, or `LeaseLost`."""
        self._heartbeat.outlast(seconds, self._lock.others)

    # Points, undo, accepting.

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
        if not isinstance(label, str) or not label.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse("A checkpoint needs a name.", hint='For example run.checkpoint("before-migrate").')
        with self._lock:
            self._refuse_ended()
            step, told = self._step_of_checkpoint(label)
            if step and step.record:
                return checkpoints.with_state(self._blobs, checkpoints.from_record(step.record))
            said = checkpoints.kept_state(self._blobs, self.id, state)
            draft = checkpoints.draft(
                self.id, label, said, environment=environment, path=path, summary=summary
            )
            record = self._append(draft._replace(body=draft.body | told))
            self._since_checkpoint = 0
            return checkpoints.with_state(self._blobs, checkpoints.from_record(record))

    def undo(
        self,
        effect: "Effect | str | None" = None,
        *,
        to: "str | Checkpoint | None" = None,
        dry_run: bool = False,
        cascade: bool = False,
        with_needs: bool = False,
        on_conflict: str = "refuse",
        paths: "Sequence[Path] | None" = None,
    ) -> UndoResult:
        """Take back one effect of this run, everything after a checkpoint, or everything not accepted. With `paths`,
        only these paths of the effect, with all that is in them."""
        wishes = Wishes(cascade, with_needs, on_conflict_named(on_conflict))
        if paths is not None:
            if effect is None:
                raise Misuse(
                    "Paths are chosen of one effect.", hint="Give the effect: run.undo(effect, paths=[…])."
                )
            return self._undo_paths(effect, paths, wishes, dry_run)
        if dry_run or self._replay is None:
            return self._undo_now(effect, to, wishes, dry_run)
        what = (
            name_of(effect) if effect is not None else name_of(to, "checkpoint") if to is not None else "all"
        )
        return self._undo_once(what, wishes, lambda: self._undo_now(effect, to, wishes, False))

    def _undo_paths(
        self, effect: "Effect | str", paths: "Sequence[Path]", wishes: Wishes, dry_run: bool
    ) -> UndoResult:
        from takeback.runs.scope import effects_with_paths, resources_named

        def now() -> UndoResult:
            with self._lock:
                self._refuse_ended()
                more = wishes.cascade or wishes.with_needs
                chosen = effects_with_paths(self._parts, effect, paths, None, more)
                self.refuse_in_transaction(chosen.effects)
                result = self._undo_all(chosen.effects, wishes._replace(only=chosen.only), dry_run)
                return result._replace(along=chosen.along)

        if dry_run or self._replay is None:
            return now()
        named = " ".join(sorted(names[0] for names in resources_named(paths)))
        return self._undo_once(f"{name_of(effect)} {named}", wishes, now)

    def _undo_now(
        self, effect: "Effect | str | None", to: "str | Checkpoint | None", wishes: Wishes, dry_run: bool
    ) -> UndoResult:
        with self._lock:
            self._quiet()
            self._refuse_ended()
            point = checkpoints.find(self._parts.journal, to, self.id) if to is not None else None
            found = self._wanted(effect, point)
            wanted = tuple(each for one in found for each in standing_again(self._parts.journal, one))
            self.refuse_in_transaction(one for one in wanted if not one.waits_for)
            if wanted and wanted[0].waits_for == PERSON:
                raise held_error(wanted[0], "undone")
            state = checkpoints.state_of(self._blobs, point)
            return self._undo_all(wanted, wishes, dry_run, point)._replace(state=state)

    def _undo_all(
        self, wanted: Sequence[Effect], wishes: Wishes, dry_run: bool, point: Checkpoint | None = None
    ) -> UndoResult:
        with self._lock:
            self._refuse_ended()
            begin = partial(self._undoing, point)
            to_a_point = point is not None
            return undo(
                self._parts,
                wanted,
                wishes,
                begin,
                dry_run=dry_run,
                to_a_point=to_a_point,
                always_begins=True,
            )

    @contextmanager
    def _undoing(self, point: Checkpoint | None, plan: Plan) -> Generator[Undoer, None, None]:
        if point:
            self._going_back(point.seq)
        with self.uninterrupted():
            taker = Taker(myself(), self._now(), self._settings.lease_seconds * 1_000_000)
            yield Undoer(self._lease, self.agent, taker)

    def _wanted(self, effect: "Effect | str | None", point: Checkpoint | None) -> tuple[Effect, ...]:
        if effect is None:
            after = point.seq if point else 0
            return tuple(one for one in not_accepted(self._parts, self.id) if one.order > after)
        id = name_of(effect)
        found = tuple(self._parts.journal.effects(Query(ids=(id,))))
        if not found:
            raise Misuse(
                f"There is no effect {id!r}.", hint=f"`takeback log --run {short(self.id)}` lists them."
            )
        return found

    def accept(self, effect: "Effect | str") -> None:
        """This one stays even if the run fails later."""
        with self._lock:
            self._refuse_ended()
            (found,) = self._wanted(effect, None)
            refuse_unmade(found, "accepted")
            if self._replay is not None and found.accepted_by == "person":
                return  # when it was called before
            self._append(Draft(Kind.ACCEPT, self.id, found.id))

    def apply(self, effect: "Effect | str") -> None:
        """Make a change that is held. It stays even if the run fails later."""
        from takeback.engine.held import apply_held

        with self._lock:
            self._refuse_ended()
            (found,) = self._wanted(effect, None)
            if self._replay is not None and found.accepted_by == "person":
                return  # when it was called before
            terms = Terms(found.key, agent=self.agent, held_back=self.uninterrupted)
            if apply_held(self._parts, self._lease, found, found.change, terms).state is State.DONE:
                self._append(Draft(Kind.ACCEPT, self.id, found.id))

    def discard(self, effect: "Effect | str") -> UndoResult:
        """Drop a change that is held; for a day `apply` can make it after all."""
        with self._lock:
            self._refuse_ended()
            (found,) = self._wanted(effect, None)
            if self._replay is not None and found.state in (State.ABORTED, State.DROPPED):
                return UndoResult("done", (found,), ())  # when it was called before
            return discarded(self._parts, self._lease, (found,), dry_run=False)

    def drop_undone(
        self,
        effect: Effect,
        result: UndoResult,
        hold: bool = False,
        reason: DropReason = DropReason.FAILED,
    ) -> "tuple[Effect | None, Final | None]":
        """A command that was watched failed, and an undo took back what it had changed: for a while that can be
        applied after all, or until someone decides (`hold`). What comes of it, or why the store cannot hold it."""
        from takeback.engine.drop import Final, refusal
        from takeback.runs.held import made_again

        undo = next((one for one in result.undo if one.undoes == effect.id), None)
        if undo is None:
            return None, None
        size = sum(target.before.get("size", 0) for target in undo.targets)
        if not hold and (final := refusal(self._parts.drops, size)):
            return None, final
        try:
            if hold:
                return self._hold(made_again(self._parts, effect, undo), Options()), None
            return self._drop(made_again(self._parts, effect, undo), reason), None
        except (Refused, Failed, ResourceUnreachable):
            self._blobs.disown()
            return None, Final.UNREADABLE

    def keep(self, *what: object) -> NoReturn:
        """Renamed: says which word is meant, and does nothing."""
        raise Renamed(
            "run.keep was renamed.", hint="run.accept accepts what was made, run.apply makes what is held."
        )

    @contextmanager
    def lent(self) -> Generator[Lease | None, None, None]:
        """To whoever decides on what it holds; None once it has ended."""
        with self._lock:
            self._quiet()
            yield None if self._ended else self._lease

    def effects(self) -> tuple[Effect, ...]:
        return tuple(self._parts.journal.effects(Query(run=self.id)))

    # Beginning and end.

    def __enter__(self) -> "Run":
        self._refuse_in_workflow(
            "`with run:`", "Its worker ends it: return a result, or raise what went wrong."
        )
        self._signals = shared()
        self._signals.watch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._ended and not self._is_a_childs_copy():
                self._left(error)
        except (Unavailable, InDoubt) as trouble:
            # That something is in doubt says more about the world than that this cannot be recorded, either.
            if not isinstance(error, InDoubt):
                raise
            error.add_note(f"Run {short(self.id)} could not be ended: {trouble}")
        finally:
            if self._signals:
                self._signals.release()

    def _left(self, error: BaseException | None) -> None:
        try:
            if self._info.on_death is OnDeath.LEAVE:
                self.leave()
                return
            if error is None:
                with self.uninterrupted():
                    self.close()
            elif isinstance(error, AwaitingApproval) and self._info.on_death is not OnDeath.FINISH:
                self.suspend(str(error))
            elif self._info.on_death is OnDeath.ACCEPT:
                # That something of it is in doubt keeps it from ending, and the error tells more.
                with self.uninterrupted(), suppress(InDoubt):
                    self.close()
            elif self._info.on_death is OnDeath.FINISH:
                self._end_undo()
            elif isinstance(error, KeyboardInterrupt) or (self._signals and self._signals.arrived):
                self.suspend(f"interrupted: {type(error).__name__}")
            else:
                self._fail(error)
        finally:
            if not self._ended and self._info.on_death is not OnDeath.LEAVE:
                self.let_go()  # it could not be ended: recovery settles it

    def close(self, failed: str = "") -> None:
        """A normal end: what was done stays, and can still be undone on purpose until it is forgotten. `failed` is told
        by `takeback runs`: how what the run was for failed, though nothing is left to take back."""
        self._refuse_in_workflow("Ending the run", _RETURN)
        self._end(RunState.ACCEPTED, {"error": failed} if failed else None)
        self._keep_up(self.id)

    def end_workflow(self, told: dict[str, str]) -> None:
        """By its worker: what was done stays; `told` is the result, or the error."""
        with self._lock:
            self._end(RunState.ACCEPTED, told)
        with suppress(TakebackError):  # the next run that ends tries again to bring the store under its caps
            self._keep_up(self.id)

    def play(self, replay: Replay) -> None:
        """By its worker: from now on each change is a step."""
        self._replay = replay

    def progress(self, seconds: float) -> None:
        """By its worker: what it is at now is over by then, or whoever waits for it may take the run."""
        self._heartbeat.progress(seconds)

    def close_databases(self) -> None:
        self._close_databases()

    def suspend_workflow(self, leaving: Leaving) -> None:
        """By its worker: let go of it until it is due. An effect that is in doubt stays so."""
        with self._lock:
            self._quiet()
            self._refuse_ended()
            drafts = [checkpoints.draft(self.id, leaving.label, automatic=True)] if leaving.label else []
            try:
                self._parts.journal.append(
                    self._lease, [*drafts, Draft(Kind.CLOSE, self.id, "", leaving.body)]
                )
            finally:
                self.let_go()

    def suspend(self, label: str) -> None:
        """Stop here, at a checkpoint, with nothing taken back; `tb.resume` goes on from there."""
        self._refuse_in_workflow("Suspending the run", "Use run.sleep or run.wait.")
        with self._lock:
            self._quiet()
            self._refuse_ended()
            self._append(checkpoints.draft(self.id, label, automatic=True))
            self._end(RunState.SUSPENDED)

    def join_again(self) -> bool:
        """Another part of this process works on it too; False if it is over here. Each of them leaves it."""
        with self._lock:
            if self._ended or self._is_a_childs_copy():
                return False
            self._others += 1
            return True

    def leave(self) -> None:
        """Let go of the lease and leave the run open for the next process that joins it. A run that was joined several
        times in one process is let go of when the last of them leaves."""
        self._refuse_in_workflow("Leaving the run", _RETURN)
        with self._lock:
            if self._others:
                self._others -= 1
                return
            self._quiet()
            self.let_go()

    def let_go(self) -> None:
        """Whatever becomes of the run, this process has no part in it any more."""
        with self._lock:
            if self._let_go:
                return
            self._ended = True
            self._close_rooms()
            if self._is_a_childs_copy():
                return
            self._stop_watching()
            self._close_databases()
            self._heartbeat.stop()
            with suppress(ResourceUnreachable):  # then it expires, or ends with this process
                self._parts.leases.release(self._lease)
            self._let_go = True

    def take_back(self) -> UndoResult:
        """End the run by taking back everything that is not accepted."""
        self._refuse_in_workflow("Ending the run", _RETURN)
        return self._taken_back()[0]

    def _taken_back(self) -> tuple[UndoResult, int]:
        """Also how many changes that were held were dropped."""
        from takeback.engine.close_run import close_rolled_back
        from takeback.engine.recover import settle_open

        with self._lock, self.uninterrupted():
            self._quiet()
            self._refuse_ended()
            settle_open(self._parts, self._lease)
            dropped = self._drop_reviewed()
            self._close_databases()  # a file that goes back must not be open in a session of ours
            result = roll_back(self._parts, self._lease, not_accepted(self._parts, self.id), self.agent)
            close_rolled_back(self._parts, self._lease, result, RunState.UNDONE.value)
            self.let_go()
            return result, dropped

    def _end_undo(self) -> None:
        from takeback.engine.recover import end_undo

        with self._lock, self.uninterrupted():
            end_undo(self._parts, self._lease, self._info)
            self.let_go()

    def _fail(self, error: BaseException) -> None:
        result, dropped = self._taken_back()
        if result.targets or dropped:
            from takeback.runs.failure import note

            error.add_note(note(self.name, result, dropped))

    def _end(self, state: RunState, told: dict[str, str] | None = None) -> None:
        with self._lock:
            self._quiet()
            self._refuse_ended()
            from takeback.engine.close_run import closing
            from takeback.engine.recover import open_in, settle_all
            from takeback.engine.settled import stands

            try:
                # Something is still in flight only if the store failed between a change and its record, or if the world
                # could not be asked whether a call has happened, or what a command changed could not be recorded.
                not_settled = open_in(self._parts, self.id)
                found = settle_all(self._parts, self._lease, not_settled)
                left = [one for one in found if one.outcome == "left"]
                if left and state is RunState.ACCEPTED:
                    raise InDoubt(
                        f"Run {short(self.id)} cannot end: {left[0].summary} {stands(left[0])}",
                        hint="It stays open. `takeback recover` asks again, and then ends it as if it had been killed: "
                        f"on_death is {self._info.on_death.value!r}.",
                        effect=left[0].effect,
                    )
                end = closing(self._parts, self.id, {"outcome": state.value, **(told or {})}, not_settled)
                try:
                    self._parts.journal.append(self._lease, end)
                except StoreFull:
                    self._parts.journal.append(self._lease, end)  # on a full disk there is room for this
            finally:
                # A run that could not be ended is not held either: recovery settles it.
                self.let_go()

    def _append(self, draft: Draft) -> Any:
        return self._books.journal.append(self._lease, [draft])[0]

    def uninterrupted(self) -> Any:
        """A signal that arrives in the block is raised when it is left."""
        return (self._signals or Interruptions()).held_back()

    def _give_way(self) -> None:
        """In such a block, before anything was begun: a signal that has arrived is raised."""
        if self._signals:
            self._signals.give_way()

    def _is_a_childs_copy(self) -> bool:
        """After a fork: the run is the parent's, and goes on there."""
        return os.getpid() != self._lease.owner.pid

    def _refuse_ended(self) -> None:
        if self._ended:
            raise Misuse(f"Run {short(self.id)} has ended.", hint="Start another one with tb.run(…).")
