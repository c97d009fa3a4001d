"""Undo: plan, refuse, then take back each effect by an effect of its own, newest first."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial as partial_of
from typing import NamedTuple, cast

from takeback.adapters.protocol import Assessment, Glancing
from takeback.engine.parts import Parts, adapter_of, holders_named, whole
from takeback.engine.plan import Wishes, plan_undo, refuse_needed, the_same_for_each
from takeback.engine.portion import decided, may_be_shared, part_taken, refuse_already, takes
from takeback.engine.stuck import Taker, settled_first, to_settle, told
from takeback.engine.trail import assess_undo, undo_change
from takeback.engine.write import Terms, do
from takeback.errors import (
    Blocked,
    Conflict,
    Drifted,
    InDoubt,
    LeaseLost,
    Refused,
    Stuck,
    TakebackError,
    Unavailable,
)
from takeback.model.change import OnConflict
from takeback.model.database import is_of_database
from takeback.model.effect import Effect, State
from takeback.model.ids import new_id, short
from takeback.model.plan import (
    FORCE_MOVES,
    Obstacle,
    Outcome,
    Plan,
    TargetOutcome,
    UndoResult,
    each_of,
    in_turn,
    nothing_to_do,
    only_forced,
    out_of_the_way,
    refused,
    way_to_both,
)
from takeback.model.record import Draft, Kind
from takeback.model.remedy import Remedy
from takeback.model.resource import display
from takeback.model.run import Lease
from takeback.storage.protocols import Journal, Query

# In an undo's run: it could not be done whole, so what was taken back is brought back.
BRINGING_BACK = "bringing_back"
_LEFT = (Outcome.CONFLICT, Outcome.FAILED)
_NAMED = 5
_MANY = 5_000  # paths; trying a merge takes longer than a hint is worth


class Undoer(NamedTuple):
    lease: Lease
    agent: str
    taker: Taker
    journal: Journal | None = None  # for what it takes back, unless something is settled first


def undo(
    parts: Parts,
    wanted: Sequence[Effect],
    wishes: Wishes,
    begin: Callable[[Plan], AbstractContextManager[Undoer]],
    *,
    dry_run: bool = False,
    to_a_point: bool = False,
    always_begins: bool = False,
) -> UndoResult:
    """Plan, refuse what is blocked or in conflict, and carry the rest out, unless it is a dry run. `begin` is entered
    when nothing refuses the plan; if everything was taken back before, only with `always_begins`."""
    elsewhere = tuple(one for one in wanted if one.is_elsewhere)
    if elsewhere and not (wanted := [one for one in wanted if not one.is_elsewhere]):
        if not to_a_point:
            raise _nothing_here(elsewhere)
        return UndoResult("done", (), (), elsewhere=elsewhere)
    result = _undone(parts, wanted, wishes, begin, dry_run, to_a_point, always_begins)
    return result._replace(elsewhere=elsewhere) if elsewhere else result


def _nothing_here(elsewhere: Sequence[Effect]) -> Refused:
    """Of effects that changed only what was not watched."""
    first, paths = elsewhere[0], list(dict.fromkeys(path for one in elsewhere for path in one.outside))
    names = ", ".join(paths[:_NAMED]) + (f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else "")
    return Refused(
        f"Effect {short(first.id)} ({first.change.summary}) changed nothing that takeback watched, so there is nothing "
        f"to take back. It changed {names}.",
        hint="takeback has no earlier content of these files.",
        effect=first.id,
    )


def _undone(
    parts: Parts,
    wanted: Sequence[Effect],
    wishes: Wishes,
    begin: Callable[[Plan], AbstractContextManager[Undoer]],
    dry_run: bool,
    to_a_point: bool,
    always_begins: bool,
) -> UndoResult:
    plan = plan_undo(parts, wanted, wishes)
    refuse_blocked(plan, lambda: _merge_hint(parts, wanted, wishes), wishes.only is None)
    refuse_conflicts(plan, wishes)
    if dry_run:
        return UndoResult("planned", plan.effects, plan.targets)
    stuck = to_settle(plan)
    if nothing_to_do(plan.targets) and not stuck and not always_begins:
        return UndoResult("done", plan.effects, plan.targets)
    with (
        begin(plan) as undoer,
        settled_first(parts, plan, stuck, undoer.lease, undoer.taker) as (left, taken),
    ):
        journal = parts.journal if stuck or undoer.journal is None else undoer.journal
        result = carry_out(parts._replace(journal=journal), undoer.lease, left, wishes, undoer.agent, taken)
    return _refuse_untouched(told(parts, plan, stuck, result) if stuck else result, to_a_point)


def refuse_blocked(plan: Plan, merge_hint: Callable[[], str] = str, cascades: bool = True) -> None:
    """`merge_hint` tells whether a merge would be clean; it is asked only when something is in the way. `cascades`:
    later effects could be taken back with it."""
    if not plan.blockers:
        return
    names = ", ".join(f"{short(one.id)} ({one.change.summary})" for one in plan.blockers[:5])
    more = f" and {len(plan.blockers) - 5} more" if len(plan.blockers) > 5 else ""
    redo = bool(plan.effects) and plan.effects[0].is_undo
    hint = "Undo them first." if redo or not cascades else "--cascade undoes them too."
    if forgotten := next((one for one in plan.blockers if one.forgotten), None):
        hint = (
            f"Effect {short(forgotten.id)} was forgotten, so it cannot be undone first; "
            f"`takeback show {short(forgotten.id)}` shows what it did."
        )
    raise Blocked(
        f"Later effects depend on this one: {names}{more}.",
        hint=" ".join(filter(None, (merge_hint(), hint))),
        effect=plan.effects[0].id if plan.effects else None,
        blockers=tuple(one.id for one in plan.blockers),
    )


def _merge_hint(parts: Parts, wanted: Sequence[Effect], wishes: Wishes) -> str:
    """Whether a merge would take these out from under later effects; found by trying. Empty where nothing merges."""
    if wishes.on_conflict.merges or sum(len(one.targets) for one in wanted) > _MANY:
        return ""
    try:
        plan = plan_undo(parts, wanted, wishes._replace(cascade=False, on_conflict=OnConflict.MERGE))
    except TakebackError:
        return ""
    bad = [one for one in plan.targets if one.outcome not in (Outcome.UNDONE, Outcome.ALREADY)]
    if plan.blockers or all(one.outcome is Outcome.ALREADY for one in plan.targets):
        return ""
    if not bad:
        one = "them" if len(wanted) > 1 else "it"
        return f"--merge takes {one} out alone and keeps the later changes: the merge is clean."
    return f"--merge does not work: {display(bad[0].resource)} {bad[0].detail.removeprefix('it ')}."


def refuse_conflicts(plan: Plan, wishes: Wishes) -> None:
    """All or nothing: one target that someone else changed since is enough."""
    if not wishes.on_conflict.skips and any(target.outcome is Outcome.CONFLICT for target in plan.targets):
        raise _conflict(plan.effects, plan.targets, wishes)


def _conflict(effects: Sequence[Effect], targets: Sequence[TargetOutcome], wishes: Wishes) -> Conflict:
    conflicts = [target for target in targets if target.outcome is Outcome.CONFLICT]
    verb = "redo" if any(one.id == conflicts[0].effect and one.is_undo for one in effects) else "undo"
    of_rows = all(is_of_database(one.resource) for one in conflicts)
    hint = _way_out_of_rows(wishes.on_conflict) if of_rows else _way_out(wishes.on_conflict)
    if {one.obstacle for one in conflicts} == {Obstacle.REPLACED, Obstacle.COMPANION}:
        hint = f"Nothing was touched. Force {FORCE_MOVES}."
    return refused(conflicts, verb, hint=hint, effect=conflicts[0].effect)


def _refuse_untouched(result: UndoResult, to_a_point: bool) -> UndoResult:
    """An undo that changed nothing is an error; any other is a result. A return to a point leaves out effects that
    cannot be undone, and has still succeeded."""
    if to_a_point and all(one.outcome is Outcome.EXCLUDED for one in result.targets):
        return result._replace(outcome="partial" if result.targets else result.outcome, because=None)
    if result.because is not None:
        raise result.because
    return result


def _way_out(tried: OnConflict) -> str:
    if tried is OnConflict.FORCE:
        return (
            "Nothing was touched. Force does not help here: create the missing directory, or move away the file in "
            "the way, then undo again."
        )
    if tried.skips:
        return "Nothing was touched: there is nothing else to undo. Force saves the present content and overwrites it."
    return (
        "Nothing was touched. Merge keeps both edits where the text allows, skip leaves these files and undoes the "
        "rest, force saves the present content and overwrites it. Restore missing files yourself."
    )


def _way_out_of_rows(tried: OnConflict) -> str:
    if tried is OnConflict.FORCE:
        return "Nothing was touched. Force does not help here: fix what is named, then undo again."
    if tried.skips:
        return "Nothing was touched: there is nothing else to undo. Force saves the present rows and overwrites them."
    return (
        "Nothing was touched. Cascade undoes the later effects too, skip leaves these rows and undoes the rest, force "
        "saves the present rows and overwrites them; redo restores them."
    )


def carry_out(
    parts: Parts,
    lease: Lease,
    plan: Plan,
    wishes: Wishes,
    agent: str = "",
    taken: Mapping[str, Remedy] | None = None,
) -> UndoResult:
    """Take back each effect of a plan that nothing refuses. One that fails does not stop independent ones, unless
    all-or-nothing was asked for: then what was taken back is brought back. `taken`: by effect, see `Terms`."""
    with parts.progress.stage("Taking back", "effect"):
        parts.progress.expect(len(plan.effects))
        return _carried_out(parts, lease, plan, wishes, agent, taken or {})


def _carried_out(
    parts: Parts, lease: Lease, plan: Plan, wishes: Wishes, agent: str, taken: Mapping[str, Remedy]
) -> UndoResult:
    made: list[Effect] = []
    errors: list[TakebackError] = []
    planned = {effect.id for effect in plan.effects}
    # What could not even be looked at.
    outcomes = [one for one in plan.targets if one.effect not in planned and one.outcome in _LEFT]
    postponed = any(one.outcome is Outcome.FAILED for one in outcomes)
    stuck = False
    left = {one.effect for one in outcomes}
    together = new_id() if len(plan.effects) > 1 else ""
    # An effect that cannot be brought back stays undone; the others continue, and the failure is reported.
    whole_or_nothing = wishes.on_conflict in (OnConflict.REFUSE, OnConflict.MERGE) and all(
        adapter_of(parts, one.change.adapter).traits.redoes for one in plan.effects
    )
    for effect in plan.effects:
        parts.progress.moved(items=1)
        try:
            if left:
                refuse_needed(parts, effect, left)
            terms = Terms(undoes=effect, agent=agent, taken=taken.get(effect.id))
            with holders_named(parts, (effect,)):
                undo, found = _take_back(parts, lease, terms, wishes, together, plan.seen.get(effect.id))
        except Stuck as error:
            stuck = True
            left.add(effect.id)
            outcomes += the_same_for_each(effect, error)
            continue
        except TakebackError as error:
            if whole_or_nothing and not isinstance(error, LeaseLost):
                bring_back(parts, lease, made, agent)
            if whole_or_nothing or isinstance(error, LeaseLost):
                raise
            errors.append(error)
            left.add(effect.id)
            postponed = postponed or isinstance(error, (Unavailable, InDoubt))
            outcomes += the_same_for_each(effect, error)
            continue
        outcomes += found
        if undo:
            made.append(undo)
    overall = _overall(outcomes, stuck)
    return UndoResult(
        outcome=overall,
        because=_why_untouched(plan.effects, outcomes, errors, wishes) if overall == "refused" else None,
        effects=_taken(plan.effects, made) or _as_they_stand(parts, plan.effects),
        targets=tuple(outcomes),
        undo=tuple(made),
        postponed=postponed,
    )


def _why_untouched(
    effects: Sequence[Effect],
    outcomes: Sequence[TargetOutcome],
    errors: Sequence[TakebackError],
    wishes: Wishes,
) -> TakebackError:
    if errors:
        return errors[0]
    if any(one.outcome is Outcome.CONFLICT for one in outcomes):
        return _conflict(effects, outcomes, wishes)
    left = outcomes[0]
    of = next((one for one in effects if one.id == left.effect), None)
    alike = list(dict.fromkeys(one.resource for one in outcomes if one.detail == left.detail))
    hint = way_to_both(of, alike) if of else ""
    forced = of is not None and any(only_forced(one) for one in of.targets if one.resource == left.resource)
    again = (
        f"`takeback undo {short(left.effect)} --force` goes back to how it was before"
        if forced
        else "try again"
    )
    hint = out_of_the_way({left.resource: left.obstacle}, again) or hint
    return Refused(
        f"Nothing of it can be taken back: {each_of(alike)} {left.detail.removeprefix('it ')}.",
        hint=hint or f"`takeback show {short(left.effect)}` shows more.",
        effect=left.effect,
    )


def _take_back(
    parts: Parts,
    lease: Lease,
    terms: Terms,
    wishes: Wishes,
    together: str,
    seen: Assessment | None,
) -> tuple[Effect | None, list[TargetOutcome]]:
    """One effect. Its targets are looked at again right before, unless they are still what the plan has `seen`; what
    happens to each is returned only if it did happen."""
    effect = terms.undoes
    assert effect
    change = undo_change(effect, wishes.on_conflict)
    change = change._replace(undo=change.undo._replace(why=wishes.why))
    if seen and cast("Glancing", adapter_of(parts, effect.change.adapter)).unchanged(effect, seen):
        assessment = seen
    else:
        change, assessment = assess_undo(parts, change, effect)
    outcomes = assessment.outcomes
    left_out = [one.resource for one in outcomes if one.outcome not in (Outcome.UNDONE, Outcome.ALREADY)]
    if left_out and wishes.on_conflict in (OnConflict.REFUSE, OnConflict.MERGE):
        refuse_conflicts(Plan((effect,), tuple(outcomes)), wishes)
    # Some targets stay as they are: then the effect is not undone as a whole, and the record must not say so.
    earlier = [one.resource for one in terms.taken.targets] if terms.taken else []
    partial, only = part_taken(parts, effect, left_out, earlier)
    change = change._replace(undo=change.undo._replace(partial=partial, only=only, together=together))
    undo = None
    if terms.taken or any(one.outcome is Outcome.UNDONE for one in outcomes) or not left_out:
        shared = may_be_shared(parts, effect)
        decide = partial_of(decided, parts, effect, left_out, earlier) if shared else None
        try:
            undo = do(parts, lease, change, terms._replace(assessed=assessment, decide=decide))
        except Drifted:
            if shared:
                refuse_already(parts, effect)
            raise
    return undo, [one._replace(effect=effect.id) for one in outcomes]


def bring_back(parts: Parts, lease: Lease, made: Sequence[Effect], agent: str) -> None:
    """All or nothing, and not all could be undone. Recorded first, so that recovery goes back, not forward."""
    parts.journal.append(lease, [Draft(Kind.OPEN, lease.run, "", {BRINGING_BACK: True})])
    for undo in reversed(made):
        (fresh,) = parts.journal.effects(Query(ids=(undo.id,)))
        if fresh.state is State.DONE:
            fresh = whole(parts, fresh)
            do(parts, lease, undo_change(fresh, OnConflict.REFUSE), Terms(undoes=fresh, agent=agent))


def _overall(outcomes: list[TargetOutcome], stuck: bool) -> str:
    if stuck:
        return "stuck"
    good = [one for one in outcomes if one.outcome in (Outcome.UNDONE, Outcome.ALREADY)]
    if len(good) == len(outcomes):
        return "done"
    return "partial" if good else "refused"


def _taken(effects: Sequence[Effect], made: Sequence[Effect]) -> tuple[Effect, ...]:
    """Where each was taken back whole, what the journal says of them now is known; else nothing."""
    by = {undo.undoes: undo.id for undo in made if takes(undo) is None}
    if any(one.id not in by or one.narrowed or one.state is not State.DONE for one in effects):
        return ()
    ordered = sorted(effects, key=lambda one: -one.seq)
    return tuple(one._replace(state=State.UNDONE, undone_by=by[one.id], of=None) for one in ordered)


def _as_they_stand(parts: Parts, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
    if not effects:
        return ()
    ids = tuple(effect.id for effect in effects)
    return tuple(parts.journal.effects(Query(ids=ids, newest=True, damaged_too=True)))


def roll_back(parts: Parts, lease: Lease, effects: tuple[Effect, ...], agent: str = "") -> UndoResult:
    """Undo all effects of a failed run that were not accepted, newest first; targets that others changed since stay and
    are reported."""
    outcomes: list[TargetOutcome] = []
    made: list[Effect] = []
    stuck = postponed = False
    wishes = Wishes(on_conflict=OnConflict.SKIP)
    with parts.progress.stage("Taking back", "effect"):
        parts.progress.expect(len(effects))
        for effect in in_turn(effects):
            parts.progress.moved(items=1)
            try:
                plan = plan_undo(parts, [effect], wishes)
                refuse_blocked(plan)
                result = carry_out(parts, lease, plan, wishes, agent)
            except LeaseLost:
                raise
            except TakebackError as error:
                stuck = stuck or isinstance(error, Stuck)
                postponed = postponed or isinstance(error, (Unavailable, InDoubt))
                outcomes += the_same_for_each(effect, error)
                continue
            outcomes += result.targets
            made += result.undo
            stuck = stuck or result.outcome == "stuck"
            postponed = postponed or result.postponed
    return UndoResult(
        outcome=_overall(outcomes, stuck),
        effects=_as_they_stand(parts, effects),
        targets=tuple(outcomes),
        undo=tuple(made),
        postponed=postponed,
    )


def not_accepted(parts: Parts, run: str) -> tuple[Effect, ...]:
    """The effects that a failing run takes back: done, not accepted, and no undos."""
    done = parts.journal.effects(Query(run=run, states=(State.DONE,), newest=True))
    return tuple(effect for effect in done if not effect.accepted and not effect.is_undo)
