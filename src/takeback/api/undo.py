"""Undo and redo: what is meant, planned and carried out."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from takeback.api.store import OpenStore, now
from takeback.api.undo_session import carry_out, undo_session
from takeback.api.upkeep import before_change
from takeback.api.workflows import end_by_undo, is_being_taken_back, unfinished_workflow, wake_settled
from takeback.errors import Misuse, Refused, StoreBusy, TakebackError
from takeback.model.effect import Effect
from takeback.model.ids import LENGTH, short
from takeback.model.run import Checkpoint, RunInfo
from takeback.runs.scope import scope_of, scope_of_run
from takeback.runs.selection import effects_of, id_of, last_undone, made, standing_again, stuck_in, undos_of
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.engine.portion import Chosen
    from takeback.model.plan import UndoResult
    from takeback.runs.prompt_span import SessionPart
    from takeback.runs.scope import Span
    from takeback.runs.verbs import Path


def undo(
    opened: OpenStore,
    what: "Effect | RunInfo | str | Sequence[Effect | str] | SessionPart",
    *,
    dry_run: bool = False,
    cascade: bool = False,
    with_needs: bool = False,
    on_conflict: str = "refuse",
    agent: str = "",
    project: "Path | None" = None,
    paths: "Sequence[Path] | None" = None,
) -> "UndoResult":
    """Take back an effect, several, or a whole run; or what an agent did in a session (`takeback.sessions`), or in it
    since before a prompt. Raises from the `Refused` family when it changed nothing. The run of a workflow that has not
    ended ends with it. With `project`, `@` counts the effects of that project. With `paths`, only these paths of one
    effect, or of what the agent did, are taken back, with all that is in them."""
    from takeback.model.change import on_conflict_named

    if part := _part_of_session(what):
        on_conflict_named(on_conflict)
        return undo_session(opened, part, dry_run, cascade, with_needs, on_conflict, agent, paths)
    if project is not None:
        what = _placed(opened, what, project)
    on_conflict_named(on_conflict)
    one = None if opened.settles or paths is not None else _effect_with_id(opened, what)
    if not dry_run:
        what = _with_ids(opened, what) if one is None else one.id
        if paths is not None:  # judged before anything is settled, and again after that
            _chosen(opened, what, paths, cascade or with_needs)
        opened.store.use_spare()
        before_change(opened)
    if paths is not None:
        chosen = _chosen(opened, what, paths, cascade or with_needs)
        result = carry_out(
            opened, chosen.effects, dry_run, on_conflict=on_conflict, agent=agent, only=chosen.only
        )
        if result.settled:
            wake_settled(opened)
        return result._replace(along=chosen.along)

    def take_back(dry_run: bool) -> "UndoResult":
        return _undo_named(opened, what, dry_run, cascade, with_needs, on_conflict, agent, one)

    if not dry_run and one is None and (info := unfinished_workflow(opened, what)):
        return end_by_undo(opened, info, take_back)
    return take_back(dry_run)


def _part_of_session(what: object) -> "SessionPart | None":
    if not isinstance(what, tuple) or isinstance(what, (Effect, RunInfo)):
        return None
    from takeback.runs.prompts import AgentSession, Prompt

    return what if isinstance(what, (AgentSession, Prompt)) else None


def _effect_with_id(opened: OpenStore, what: object) -> Effect | None:
    """The effect that is named by its whole id."""
    if not isinstance(what, str) or len(what) != LENGTH or not what.isascii():
        return None
    return next(opened.store.journal.effects(Query(ids=(what.lower(),))), None)


def _chosen(opened: OpenStore, what: Any, paths: "Sequence[Path]", more: bool) -> "Chosen":
    from takeback.runs.scope import effects_with_paths

    return effects_with_paths(opened.parts, what, paths, opened.scope_for(what), more)


def _undo_named(
    opened: OpenStore,
    what: Any,
    dry_run: bool,
    cascade: bool,
    with_needs: bool,
    on_conflict: str,
    agent: str,
    one: Effect | None = None,
) -> "UndoResult":
    """`one`: the effect that is meant, if it was read already."""
    from takeback.model.plan import UndoResult

    found = (made(one),) if one else effects_of(opened.store.journal, what, opened.scope_for(what))
    wanted = tuple(each for one in found for each in standing_again(opened.store.journal, one))
    held = tuple(one for one in wanted if one.waits_for)
    done = tuple(one for one in wanted if not one.waits_for)
    result = UndoResult("done", (), ())
    if done:
        result = carry_out(opened, done, dry_run, cascade, with_needs, on_conflict, agent)
        if result.settled:
            wake_settled(opened)
    if held:
        from takeback.runs.held import discard_all

        dropped = discard_all(opened.parts, held, dry_run, opened.leased)
        if not done:
            return dropped
        result = result._replace(
            effects=result.effects + dropped.effects, targets=result.targets + dropped.targets
        )
    of_runs = not dry_run and getattr(what, "id", what) not in [one.id for one in found]
    stuck = stuck_in(opened.store.journal, what, opened.scope_for(what)) if of_runs else ()
    if not stuck:
        return result
    # What it asked for did not all happen: part of the run waits for a person.
    return result._replace(outcome="stuck", effects=result.effects + stuck)


def _with_ids(opened: OpenStore, what: Any) -> Any:
    """With whole ids. Names are judged before anything is settled."""
    if isinstance(what, (list, tuple)) and not isinstance(what, (Effect, RunInfo)):
        return [_with_ids(opened, one) for one in cast("Sequence[object]", what)]
    return id_of(opened.store.journal, what, scope=opened.scope_for(what)) if isinstance(what, str) else what


def _placed(opened: OpenStore, what: Any, project: "Path") -> Any:
    """With the ids of those that `@` means in this project."""
    if isinstance(what, (list, tuple)) and not isinstance(what, (Effect, RunInfo)):
        return [_placed(opened, one, project) for one in cast("Sequence[object]", what)]
    if isinstance(what, str) and what.startswith("@"):
        return opened.effect(what, project=project).id
    return what


def undo_to(
    opened: OpenStore,
    checkpoint: "Checkpoint | str",
    *,
    run: "str | RunInfo | None" = None,
    project: "Path | None" = None,
    **wishes: Any,
) -> "UndoResult":
    """Undo everything in the checkpoint's project (or in `project`) that took effect after it, by anyone, newest first;
    with `run` only the effects of that run. The agent's own state comes with the result."""
    from takeback.runs.checkpoints import find, state_of
    from takeback.runs.scope import Span

    point = find(opened.store.journal, checkpoint)
    own = scope_of_run(opened.store.journal, point.run)
    scope = scope_of(opened.store.journal, project) if project is not None else own
    narrowed = opened.find_run(run).id if isinstance(run, str) else run.id if run else ""
    if scope is None and not narrowed:
        raise Misuse(
            f"Checkpoint {short(point.id)} was made in no project.",
            hint="Say which with project=, or a run with run=.",
        )
    span = Span(None if narrowed else scope, narrowed, seq=point.seq, began=point.at)
    return undo_span(opened, span, **wishes)._replace(state=state_of(opened.store.blobs, point))


def undo_span(
    opened: OpenStore, span: "Span", expected: "Sequence[str] | None" = None, **wishes: Any
) -> "UndoResult":
    """Undo everything in a stretch of the journal. Refuses while a run in it is at work, and if its effects are not the
    `expected` ones."""
    from takeback.model.plan import UndoResult
    from takeback.runs.scope import planned, refuse_unfinished, stuck_since

    if not wishes.get("dry_run"):
        opened.store.use_spare()
        before_change(opened)
    refuse_unfinished(opened.store.journal, opened.store.leases, span, now())
    plan = planned(opened.parts, span)
    if expected is not None and any(one.id not in expected for one in plan.wanted):
        raise StoreBusy("Something else happened in the meantime.", hint="Nothing was changed. Try again.")
    result = UndoResult("done", (), ())
    if plan.wanted:
        result = carry_out(opened, plan.wanted, to_a_point=True, **wishes)
    if plan.stays:
        outcome = "partial" if result.outcome == "done" else result.outcome
        result = result._replace(outcome=outcome, targets=(*result.targets, *plan.stays))
    stuck = () if wishes.get("dry_run") else stuck_since(opened.store.journal, span)
    return result._replace(outcome="stuck", effects=result.effects + stuck) if stuck else result


def redo(
    opened: OpenStore,
    what: "Effect | UndoResult | str | None" = None,
    *,
    dry_run: bool = False,
    on_conflict: str = "refuse",
    agent: str = "",
    project: "Path | None" = None,
) -> "UndoResult":
    """Redo the last undo; or all effects of one undo, named by its result; or one effect, named by itself or by its
    undo. With `project`, the last undo in that project."""
    from takeback.model.change import on_conflict_named

    on_conflict_named(on_conflict)
    if not dry_run:
        if isinstance(what, str):
            what = _with_ids(opened, what)
        what = _redo_settled(opened, what, project)
    wanted = to_redo(opened, what, project=project)
    return carry_out(opened, wanted, dry_run, False, False, on_conflict, agent)


def _redo_settled(
    opened: OpenStore, what: "Effect | UndoResult | str | None", project: "Path | None"
) -> "Effect | UndoResult | str | None":
    """What is meant, after a crash is settled. Where nothing is named, that is what was undone before: not what
    settling takes back, unless it finishes an undo."""
    from takeback.engine.settled import Cause
    from takeback.model.plan import UndoResult

    meant, nothing = what, None
    if what is None and opened.settles:
        try:
            meant = UndoResult("done", (), (), undo=to_redo(opened, None, project=project))
        except Refused as error:
            nothing = error
    before_change(opened)
    if any(one.cause is Cause.UNDO_FINISHED for one in opened.recovered):
        return what
    if nothing:
        raise nothing
    return meant


def to_redo(
    opened: OpenStore, what: "Effect | UndoResult | str | None" = None, *, project: "Path | None" = None
) -> tuple[Effect, ...]:
    """The undos that `redo` would reverse."""
    if what is None:
        scope = scope_of(opened.store.journal, project) if project is not None else opened.here()
        return last_undone(opened.store.journal, scope)
    return undos_of(opened.store.journal, what, opened.scope_for(what))


def go_on_undoing(opened: OpenStore, run: str) -> None:
    """What kept a run from being taken back is known now."""
    from takeback.runs.selection import stuck_in

    for info in opened.store.journal.runs((run,)):
        going = unfinished_workflow(opened, info) and is_being_taken_back(opened, info)
        if going and not stuck_in(opened.store.journal, info):
            with suppress(TakebackError):  # it waits as before, and status tells
                undo(opened, info)
