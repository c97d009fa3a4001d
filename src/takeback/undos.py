"""Undo and redo: what is meant, planned and carried out."""

from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from takeback.errors import Misuse, Refused, StoreBusy
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.resource import Scope
from takeback.model.run import Checkpoint, Lease, OnDeath, RunInfo
from takeback.runs.scope import as_those_of, scope_of, scope_of_run
from takeback.runs.selection import effects_of, id_of, last_undone, standing_again, stuck_in, undos_of
from takeback.storage.owners import myself
from takeback.upkeep import now
from takeback.workflows import Workflows

if TYPE_CHECKING:
    from weakref import WeakValueDictionary

    from takeback.engine.plan import Wishes
    from takeback.engine.portion import Chosen
    from takeback.engine.undo import Undoer
    from takeback.model.plan import Plan, UndoResult
    from takeback.runs.run import Run
    from takeback.runs.span import Span
    from takeback.runs.verbs import Path


class Undos(Workflows):
    """The part of a store opened that takes back and brings back."""

    here: Callable[[], Scope | None]

    @cached_property
    def _open_here(self) -> "WeakValueDictionary[str, Run]":
        """Runs of this process by id, while anyone holds them."""
        from weakref import WeakValueDictionary  # looking needs none of it

        return WeakValueDictionary()

    @abstractmethod
    def _open(
        self,
        name: str,
        agent: str,
        on_death: OnDeath,
        belongs: dict[str, Any],
        undoing: Sequence[str] = (),
        on_conflict: str = "",
        only: frozenset[str] | None = None,
    ) -> "Run": ...

    @abstractmethod
    def _leased(self, run: str) -> AbstractContextManager[Lease]: ...

    @abstractmethod
    def effect(self, id: str, *, project: "Path | None" = None) -> Effect: ...

    @abstractmethod
    def find_run(self, name: str) -> RunInfo: ...

    def undo(
        self,
        what: "Effect | RunInfo | str | Sequence[Effect | str]",
        *,
        dry_run: bool = False,
        cascade: bool = False,
        with_needs: bool = False,
        on_conflict: str = "refuse",
        agent: str = "",
        project: "Path | None" = None,
        paths: "Sequence[Path] | None" = None,
    ) -> "UndoResult":
        """Take back an effect, several, or a whole run. Raises from the `Refused` family when it changed nothing. The
        run of a workflow that has not ended ends with it. With `project`, `@` counts the effects of that project.
        With `paths`, only these paths of one effect are taken back, with all that is in them."""
        from takeback.model.plan import on_conflict_named

        if project is not None:
            what = self._placed(what, project)
        on_conflict_named(on_conflict)
        if not dry_run:
            what = self._with_ids(what)
            if paths is not None:  # judged before anything is settled, and again after that
                self._chosen(what, paths, cascade or with_needs)
            self.store.use_spare()
            self._before_change()
        if paths is not None:
            return self._undo_paths(what, paths, dry_run, cascade or with_needs, on_conflict, agent)
        if not dry_run and (info := self._unfinished_workflow(what)):
            return self._end_by_undo(
                info,
                lambda dry_run: self._undo_named(what, dry_run, cascade, with_needs, on_conflict, agent),
            )
        return self._undo_named(what, dry_run, cascade, with_needs, on_conflict, agent)

    def _undo_paths(
        self,
        what: "Effect | RunInfo | str | Sequence[Effect | str]",
        paths: "Sequence[Path]",
        dry_run: bool,
        more: bool,
        on_conflict: str,
        agent: str,
    ) -> "UndoResult":
        chosen = self._chosen(what, paths, more)
        result = self._undo(chosen.effects, dry_run, on_conflict=on_conflict, agent=agent, only=chosen.only)
        self._woken(result)
        return result._replace(along=chosen.along)

    def _chosen(self, what: Any, paths: "Sequence[Path]", more: bool) -> "Chosen":
        from takeback.runs.scope import effects_with_paths

        return effects_with_paths(self.parts, what, paths, self._scope_for(what), more)

    def _undo_named(
        self,
        what: "Effect | RunInfo | str | Sequence[Effect | str]",
        dry_run: bool,
        cascade: bool,
        with_needs: bool,
        on_conflict: str,
        agent: str,
    ) -> "UndoResult":
        from takeback.model.plan import UndoResult

        found = effects_of(self.store.journal, what, self._scope_for(what))
        wanted = tuple(each for one in found for each in standing_again(self.store.journal, one))
        held = tuple(one for one in wanted if one.waits_for)
        made = tuple(one for one in wanted if not one.waits_for)
        result = UndoResult("done", (), ())
        if made:
            result = self._undo(made, dry_run, cascade, with_needs, on_conflict, agent)
            self._woken(result)
        if held:
            from takeback.runs.held import discard_all

            dropped = discard_all(self.parts, held, dry_run, self._leased)
            if not made:
                return dropped
            result = result._replace(
                effects=result.effects + dropped.effects, targets=result.targets + dropped.targets
            )
        of_runs = not dry_run and getattr(what, "id", what) not in [one.id for one in found]
        stuck = stuck_in(self.store.journal, what, self._scope_for(what)) if of_runs else ()
        if not stuck:
            return result
        # What it asked for did not all happen: part of the run waits for a person.
        return result._replace(outcome="stuck", effects=result.effects + stuck)

    def _with_ids(self, what: Any) -> Any:
        """With whole ids. Names are judged before anything is settled."""
        if isinstance(what, (list, tuple)) and not isinstance(what, (Effect, RunInfo)):
            return [self._with_ids(one) for one in cast("Sequence[object]", what)]
        return id_of(self.store.journal, what, scope=self._scope_for(what)) if isinstance(what, str) else what

    def _woken(self, result: "UndoResult") -> None:
        if result.settled:
            self._wake_settled()

    def _placed(self, what: Any, project: "Path") -> Any:
        """With the ids of those that `@` means in this project."""
        if isinstance(what, (list, tuple)) and not isinstance(what, (Effect, RunInfo)):
            return [self._placed(one, project) for one in cast("Sequence[object]", what)]
        if isinstance(what, str) and what.startswith("@"):
            return self.effect(what, project=project).id
        return what

    def undo_to(
        self,
        checkpoint: "Checkpoint | str",
        *,
        run: "str | RunInfo | None" = None,
        project: "Path | None" = None,
        **wishes: Any,
    ) -> "UndoResult":
        """Take back everything of the checkpoint's project (or of `project`) that took hold after it, whoever did it,
        newest first; with `run` only what that run did. The agent's own state comes with it."""
        from takeback.runs.checkpoints import find, state_of
        from takeback.runs.span import Span

        point = find(self.store.journal, checkpoint)
        own = scope_of_run(self.store.journal, point.run)
        scope = scope_of(self.store.journal, project) if project is not None else own
        narrowed = self.find_run(run).id if isinstance(run, str) else run.id if run else ""
        if scope is None and not narrowed:
            raise Misuse(
                f"Checkpoint {short(point.id)} was made in no project.",
                hint="Say which with project=, or a run with run=.",
            )
        span = Span(None if narrowed else scope, narrowed, seq=point.seq, began=point.at)
        return self.undo_span(span, **wishes)._replace(state=state_of(self.store.blobs, point))

    def undo_span(self, span: "Span", expected: "Sequence[str] | None" = None, **wishes: Any) -> "UndoResult":
        """Take back everything in a stretch of the journal. Refused while a run in it is at work, and if it is no
        longer what was `expected`."""
        from takeback.model.plan import UndoResult
        from takeback.runs.span import planned, refuse_unfinished, stuck_since

        if not wishes.get("dry_run"):
            self.store.use_spare()
            self._before_change()
        refuse_unfinished(self.store.journal, self.store.leases, span, now())
        plan = planned(self.parts, span)
        if expected is not None and any(one.id not in expected for one in plan.wanted):
            raise StoreBusy(
                "Something else happened in the meantime.", hint="Nothing was changed. Try again."
            )
        result = UndoResult("done", (), ())
        if plan.wanted:
            result = self._undo(plan.wanted, to_a_point=True, **wishes)
        if plan.stays:
            outcome = "partial" if result.outcome == "done" else result.outcome
            result = result._replace(outcome=outcome, targets=(*result.targets, *plan.stays))
        stuck = () if wishes.get("dry_run") else stuck_since(self.store.journal, span)
        return result._replace(outcome="stuck", effects=result.effects + stuck) if stuck else result

    def redo(
        self,
        what: "Effect | UndoResult | str | None" = None,
        *,
        dry_run: bool = False,
        on_conflict: str = "refuse",
        agent: str = "",
        project: "Path | None" = None,
    ) -> "UndoResult":
        """Bring back what was undone last, as a whole; all that one undo took back, by its result; or the effect named
        (itself, or the undo that took it back). With `project` what was undone last in that project."""
        from takeback.model.plan import on_conflict_named

        on_conflict_named(on_conflict)
        if not dry_run:
            if isinstance(what, str):
                what = self._with_ids(what)
            what = self._redo_settled(what, project)
        wanted = self.to_redo(what, project=project)
        return self._undo(wanted, dry_run, False, False, on_conflict, agent)

    def _redo_settled(
        self, what: "Effect | UndoResult | str | None", project: "Path | None"
    ) -> "Effect | UndoResult | str | None":
        """What is meant, after a crash is settled. Where nothing is named, that is what was undone before: not what
        settling takes back, unless it finishes an undo."""
        from takeback.engine.settled import Cause
        from takeback.model.plan import UndoResult

        meant, nothing = what, None
        if what is None and self._settles:
            try:
                meant = UndoResult("done", (), (), undo=self.to_redo(None, project=project))
            except Refused as error:
                nothing = error
        self._before_change()
        if any(one.cause is Cause.UNDO_FINISHED for one in self.recovered):
            return what
        if nothing:
            raise nothing
        return meant

    def to_redo(
        self, what: "Effect | UndoResult | str | None" = None, *, project: "Path | None" = None
    ) -> tuple[Effect, ...]:
        """The undos that `redo` would take back."""
        if what is None:
            scope = scope_of(self.store.journal, project) if project is not None else self.here()
            return last_undone(self.store.journal, scope)
        return undos_of(self.store.journal, what, self._scope_for(what))

    def _undo(
        self,
        wanted: Sequence[Effect],
        dry_run: bool = False,
        cascade: bool = False,
        with_needs: bool = False,
        on_conflict: str = "refuse",
        agent: str = "",
        to_a_point: bool = False,
        only: frozenset[str] | None = None,
    ) -> "UndoResult":
        from takeback.engine.plan import Wishes
        from takeback.engine.undo import undo
        from takeback.model.plan import on_conflict_named

        wishes = Wishes(cascade, with_needs, on_conflict_named(on_conflict), only)
        for run in tuple(self._open_here.values()):
            run.refuse_in_transaction(wanted)
        begin = partial(self._run_of_undo, wishes, agent)
        return undo(self.parts, wanted, wishes, begin, dry_run=dry_run, to_a_point=to_a_point)

    @contextmanager
    def _run_of_undo(self, wishes: "Wishes", agent: str, plan: "Plan") -> "Generator[Undoer, None, None]":
        """A run of its own, that a crash finishes."""
        from takeback.engine.stuck import Taker
        from takeback.engine.undo import Undoer
        from takeback.runs.lease import held_back

        first, *others = plan.effects
        name = f"undo {short(first.id)}" + (f" and {len(others)} more" if others else "")
        # Held back before the run is opened: its first record says what is to be undone, and that is carried out.
        with (
            held_back(),
            self._open(
                name,
                agent,
                OnDeath.FINISH,
                as_those_of(self.store.journal, plan.effects),
                [one.id for one in plan.effects],
                wishes.on_conflict.value,
                wishes.only,
            ) as run,
        ):
            yield Undoer(run.lease, agent, Taker(myself(), now(), self._lease_lasts))
