"""Which effects an undo takes back, in what order, and what stands in the way. Changes nothing."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from takeback.adapters.protocol import Adapter, Assessment, Doubting, Relating, traits_of
from takeback.engine.dependents import LaterEffects, barring_merge, dependents, needing, neighbours, related
from takeback.engine.parts import Parts, adapter_of, assessed, holders_named, whole
from takeback.engine.portion import already_undone, being_undone, meant, standing, undone_before
from takeback.engine.redacted import redacted_by
from takeback.engine.settle import way_out
from takeback.engine.trail import assess_undo, explained, undo_change
from takeback.errors import (
    Blocked,
    Conflict,
    Forgotten,
    LeaseLost,
    RecordInvalid,
    Refused,
    StoreBusy,
    Stuck,
    TakebackError,
)
from takeback.model.change import OnConflict
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.lifecycle import overtaken
from takeback.model.plan import Obstacle, Outcome, Plan, TargetOutcome, in_turn, went_over
from takeback.model.remedy import BY_MEANING, Target
from takeback.model.resource import Ground, ancestors
from takeback.storage.protocols import Journal, Query


class Wishes(NamedTuple):
    """How far an undo may go."""

    cascade: bool = False
    with_needs: bool = False
    on_conflict: OnConflict = OnConflict.REFUSE
    only: frozenset[str] | None = None  # resources; nothing else of the effect is taken back
    why: str = ""  # for people: it is recorded with the undo


def plan_undo(parts: Parts, wanted: Sequence[Effect], wishes: Wishes) -> Plan:
    with holders_named(parts, wanted):
        return _planned(parts, wanted, wishes)


def _planned(parts: Parts, wanted: Sequence[Effect], wishes: Wishes) -> Plan:
    for effect in wanted:
        refuse_impossible(parts.journal, effect)
    stuck: tuple[Effect, ...] = ()
    blockers: Sequence[Effect] = ()
    if _nothing_since(parts, wanted, wishes):
        chosen = {effect.id: effect for effect in wanted}
    else:
        stuck = _refuse_being_undone(parts, wanted)
        chosen = {effect.id: meant(parts, effect, wishes.only) for effect in wanted}
        _leave_out_undone(chosen, wanted, wishes.only)
        if wishes.with_needs:
            _add_needs(parts, chosen)
        blockers = _add_dependents(parts, chosen, wishes)
    newest_first = in_turn([whole(parts, effect) for effect in chosen.values()])
    named = {effect.id for effect in wanted}
    before = _Before()
    if len(newest_first) == 1:  # of several, what one finds depends on the others; then the journal is asked
        targets = tuple(_outcomes(parts, newest_first, wishes.on_conflict, {}, before))
        _refuse_overtaken(parts, newest_first[0], [one.outcome for one in targets])
    else:
        left: dict[str, TakebackError] = {}
        targets = tuple(_outcomes(parts, newest_first, wishes.on_conflict, left, before))
        newest_first = [effect for effect in newest_first if effect.id not in left]
        if left and not newest_first:
            raise next(iter(left.values()))
    return Plan(
        effects=tuple(newest_first),
        targets=targets,
        blockers=tuple(blockers),
        pulled_in=tuple(effect.id for effect in newest_first if effect.id not in named),
        stuck=stuck,
        seen=before.seen,
    )


def _nothing_since(parts: Parts, wanted: Sequence[Effect], wishes: Wishes) -> bool:
    """Whether no other effect has begun since the only one did. Then no undo of it is there, and nothing that stands
    on it."""
    alone = len(wanted) == 1 and not (wishes.cascade or wishes.with_needs or wishes.only)
    return alone and not parts.journal.any_since(wanted[0])


def _leave_out_undone(
    chosen: dict[str, Effect], wanted: Sequence[Effect], only: Collection[str] | None
) -> None:
    """Effects of which every path was taken back, some by one undo and some by another."""
    gone = [one.id for one in chosen.values() if one.narrowed and not one.targets]
    for id in gone:
        del chosen[id]
    if gone and not chosen:
        if only is not None:  # since they were chosen
            touched = {one.resource for effect in wanted for one in effect.targets}
            raise already_undone(
                wanted[0], min(touched.intersection(only), default=wanted[0].change.resource)
            )
        raise Refused(
            f"Every path of effect {short(gone[0])} is already undone.",
            hint="`takeback log --all` lists the undos; `takeback redo ID` brings back what one took.",
            effect=gone[0],
        )


def refuse_impossible(journal: Journal, effect: Effect) -> None:
    """Undo needs an effect that happened, still holds, and whose way back is still there."""
    name = short(effect.id)
    if effect.change.kind == "damaged":
        raise RecordInvalid(
            f"The journal record of effect {name} is damaged, so it cannot be undone.",
            hint="`takeback verify` shows the extent.",
        )
    if effect.redacted:
        raise Forgotten(
            f"Effect {name} cannot be undone: it was redacted{redacted_by(journal, effect)}.",
            hint="Its content and its way back were erased for good. Its records stay.",
            effect=effect.id,
        )
    if effect.forgotten:
        raise Forgotten(
            f"Effect {name} cannot be undone: its undo data was deleted.",
            hint=f"`takeback show {name}` still shows what it did.",
            effect=effect.id,
        )
    if effect.state is State.UNDONE:
        raise undone_before(journal, effect)
    if effect.state is State.DROPPED:
        raise Refused(
            f"Effect {name} was dropped, so there is nothing to undo.",
            hint=f"`takeback apply {name}` makes it after all.",
            effect=effect.id,
        )
    if effect.state is State.ABORTED:
        raise Refused(
            f"Effect {name} never happened: {effect.note or 'it was aborted.'}",
            hint="There is nothing to undo.",
        )
    if effect.state is State.STUCK and traits_of(effect.change).calls:
        raise _in_doubt(effect)
    if effect.state not in (State.DONE, State.STUCK):
        raise StoreBusy(
            f"Effect {name} is {effect.state.value}.",
            hint="Run `takeback recover` first, or wait until it is done.",
        )


def _in_doubt(effect: Effect) -> Stuck:
    """Refuse a call in doubt: it is unknown whether there is anything to take back."""
    return Stuck(
        f"Effect {short(effect.id)} is in doubt: {effect.note}", hint=way_out(effect), effect=effect.id
    )


def _refuse_being_undone(parts: Parts, wanted: Sequence[Effect]) -> tuple[Effect, ...]:
    """By someone who was quicker, and has not ended yet. Returns the undos that are stuck."""
    ids = {effect.id for effect in wanted}
    going = tuple(parts.journal.effects(Query(states=(State.INTENDED, State.STUCK), undos=True)))
    for undo in going:
        if undo.undoes in ids and undo.state is State.STUCK:
            of = next(effect for effect in wanted if effect.id == undo.undoes)
            adapter = adapter_of(parts, undo.change.adapter)
            if isinstance(adapter, Doubting) and adapter.must_be_settled(undo, of):
                raise _in_doubt(undo)  # it is unknown whether it was compensated already
            continue
        if undo.undoes in ids:
            raise being_undone(undo)
    return tuple(undo for undo in going if undo.state is State.STUCK)


def _refuse_overtaken(parts: Parts, effect: Effect, outcomes: Sequence[Outcome]) -> None:
    """The journal would refuse it, however much of it could be taken back; a dry run is refused too."""
    if set(outcomes) == {Outcome.ALREADY} or _stands(parts, effect):
        return
    error = overtaken(effect.id)
    of = _brought_back_by(parts, effect)
    if of is not None and of.state is State.UNDONE:
        error.args = (f"What redo {short(effect.id)} brought back was taken back in another way since.",)
        error.hint = (
            f"Nothing was changed. Run `takeback redo {short(of.id)}`, then "
            f"`takeback undo {short(effect.id)}`."
        )
    raise error


def _brought_back_by(parts: Parts, redo: Effect) -> Effect | None:
    if not redo.undoes:
        return None
    (undo,) = parts.journal.effects(Query(ids=(redo.undoes,)))
    return next(parts.journal.effects(Query(ids=(undo.undoes,)))) if undo.undoes else None


def _stands(parts: Parts, effect: Effect) -> bool:
    """Whether it is done and, if it is an undo or a redo, what it took back or brought back still is."""
    if effect.state is State.STUCK:
        return True  # it is settled first; until then nothing may build on it
    if effect.state is not State.DONE:
        return False
    if not effect.undoes or effect.change.undo.partial:
        return True
    (original,) = parts.journal.effects(Query(ids=(effect.undoes,)))
    if original.state is not State.UNDONE:
        return False
    if not original.undoes or original.change.undo.partial:
        return True
    (brought_back,) = parts.journal.effects(Query(ids=(original.undoes,)))
    return _stands(parts, brought_back)


def _add_needs(parts: Parts, chosen: dict[str, Effect]) -> None:
    """The effects that the chosen ones need, and those that these need in turn."""
    seen = set(chosen)
    missing = {need for effect in chosen.values() for need in effect.needs} - seen
    while missing:
        seen |= missing
        found = [one for one in parts.journal.effects(Query(ids=tuple(missing))) if one.state is State.DONE]
        for effect in found:
            refuse_impossible(parts.journal, effect)
            chosen[effect.id] = standing(parts, effect)
        missing = {need for effect in found for need in effect.needs} - seen


def _add_dependents(parts: Parts, chosen: dict[str, Effect], wishes: Wishes) -> list[Effect]:
    """Later effects that stand on the chosen ones: added when cascading, returned as blockers otherwise."""
    cascade = wishes.cascade
    blockers: dict[str, Effect] = {}
    asked = LaterEffects(parts, chosen)
    unseen = sorted(chosen.values(), key=lambda one: -one.order)  # the oldest is taken first
    while unseen:
        effect = unseen.pop()
        over = tuple(went_over(effect)) if cascade else ()
        later = parts.journal.effects(Query(ids=over, states=(State.DONE,))) if over else ()
        rows = related(parts, effect, wishes.on_conflict) if cascade else ()
        merges = wishes.on_conflict.merges and not cascade and _merges(parts, effect)
        # Whether a later edit of the same file is in the way of a merge is found by merging.
        same = barring_merge(parts, effect) if merges else dependents(parts, effect, asked)
        for dependent in (*same, *later, *rows):
            if dependent.id in chosen or dependent.id in blockers:
                continue
            if wishes.only is not None and dependent.change.facts.merged == effect.id:
                continue  # the other half of a commit: the box stays where it is
            if not cascade:
                blockers[dependent.id] = dependent
                continue
            refuse_impossible(parts.journal, dependent)
            chosen[dependent.id] = standing(parts, dependent)
            unseen.append(chosen[dependent.id])
    return sorted(blockers.values(), key=lambda blocker: -blocker.order)


def _merges(parts: Parts, effect: Effect) -> bool:
    adapter = parts.adapters.get(effect.change.adapter)
    return adapter is not None and adapter.traits.merges


def _outcomes(
    parts: Parts,
    newest_first: Sequence[Effect],
    on_conflict: OnConflict,
    left: dict[str, TakebackError],
    before: "_Before",
) -> Iterable[TargetOutcome]:
    """What would happen to each target. Where a later change stays, because it is a conflict, so do those before."""
    stays: set[str] = set()
    for one in _foreseen(parts, newest_first, on_conflict, left, before):
        if one.outcome is Outcome.UNDONE and one.resource in stays and not on_conflict.merges:
            one = one._replace(outcome=Outcome.CONFLICT, detail="stays, because a later change of it stays")
        if one.outcome is Outcome.CONFLICT:
            stays.add(one.resource)
        yield one


def _foreseen(
    parts: Parts,
    newest_first: Sequence[Effect],
    on_conflict: OnConflict,
    left: dict[str, TakebackError],
    before: "_Before",
) -> Iterable[TargetOutcome]:
    """Where a later effect of the plan is undone first, what that one puts back is what this one will find; the rest
    is asked of the world. An effect that cannot be looked at now is refused by name;
    where conflicts are skipped it is `left`, with what it stands on, and the others go back."""
    for effect in newest_first:
        try:
            if left:
                refuse_needed(parts, effect, left)
            found = tuple(_outcomes_of(parts, effect, on_conflict, before))
        except LeaseLost:
            raise
        except TakebackError as error:
            if len(newest_first) == 1:
                raise
            if not on_conflict.skips:
                raise _about(effect, error) from error
            left[effect.id] = error
            yield from the_same_for_each(effect, error)
            continue
        yield from found
        before.effects.add(effect.id)


class _Before:
    """What effects of the plan put back before the one that is looked at."""

    def __init__(self) -> None:
        self.effects: set[str] = set()
        self.targets = _Latest()
        self.ground = Ground()
        self.seen: dict[str, Assessment] = {}


class _Latest:
    """By resource: the target on it, in it or around it that was added last; and the order of its effect."""

    def __init__(self) -> None:
        self._at: dict[str, tuple[int, Target, int]] = {}
        self._inside: dict[str, tuple[int, Target, int]] = {}
        self._count = 0

    def add(self, effect: Effect) -> None:
        for target in effect.targets:
            self._count += 1
            found = (self._count, target, effect.order)
            self._at[target.resource] = found
            for outer in ancestors(target.resource):
                self._inside[outer] = found

    def overlapping(self, resource: str) -> tuple[Target, int]:
        around = (self._at[one] for one in ancestors(resource) if one in self._at)
        own = (known[resource] for known in (self._at, self._inside) if resource in known)
        _, target, order = max((*own, *around), key=lambda one: one[0])
        return target, order


def _about(effect: Effect, error: TakebackError) -> TakebackError:
    """The same error, by the name of the effect."""
    error.args = (f"Effect {short(effect.id)} ({effect.change.summary}) cannot be taken back now: {error}",)
    error.effect = error.effect or effect.id
    rest = "Nothing was taken back; --skip-conflicts takes back the rest."
    error.hint = f"{error.hint} {rest}".strip()
    return error


def refuse_needed(parts: Parts, effect: Effect, left: Collection[str]) -> None:
    """Conflicts with a later effect that stays and that needs this one, or may be about the same thing. Effects on the
    same paths or rows are found by comparison."""
    for later in (*needing(parts, effect), *neighbours(parts, effect)):
        if later.id in left:
            raise Blocked(
                f"Effect {short(later.id)} ({later.change.summary}) stays and stands on it.",
                hint=f"Undo {short(later.id)} first.",
                effect=effect.id,
                blockers=(later.id,),
            )


def the_same_for_each(effect: Effect, error: TakebackError) -> list[TargetOutcome]:
    """For every target; one whose record is damaged has none that we know of, and still counts."""
    resources = [target.resource for target in effect.targets] or [effect.change.resource]
    outcome = Outcome.CONFLICT if isinstance(error, Refused) else Outcome.FAILED
    known = error.obstacles if isinstance(error, Conflict) else {}
    return [
        TargetOutcome(
            resource,
            outcome,
            str(error),
            effect.id,
            obstacle=Obstacle(known.get(resource, Obstacle.OTHER)),
        )
        for resource in resources
    ]


def _outcomes_of(
    parts: Parts, effect: Effect, on_conflict: OnConflict, before: _Before
) -> Iterable[TargetOutcome]:
    adapter = adapter_of(parts, effect.change.adapter)
    if isinstance(adapter, Relating):
        over = before.effects.intersection(adapter.standing_on(effect)) if before.effects else set[str]()
        yield from _of_rows(parts, adapter, effect, on_conflict, over)
        return
    assessment: Assessment | None = None
    found: dict[str, TargetOutcome] = {}
    touched_later = bool(before.ground.touched_by(target.resource for target in effect.targets))
    for target in effect.targets:
        if touched_later and before.ground.overlapping(target.resource):
            yield _after_later(
                parts, target, effect, before.targets.overlapping(target.resource), on_conflict
            )
            continue
        if assessment is None:
            _, assessment = assess_undo(parts, undo_change(effect, on_conflict), effect)
            found = {one.resource: one for one in assessment.outcomes}
            if adapter.traits.glances and not touched_later:
                before.seen[effect.id] = assessment
        if assessment.together and touched_later:
            yield TargetOutcome(target.resource, Outcome.UNDONE, "after what came later", effect.id)
            continue
        if target.resource in found:
            yield found[target.resource]._replace(effect=effect.id)
    # An undo may change paths that the effect itself did not touch, such as git's list of packed refs.
    ours = {target.resource for target in effect.targets}
    yield from (one._replace(effect=effect.id) for one in found.values() if one.resource not in ours)
    before.targets.add(effect)
    before.ground.add((target.resource for target in effect.targets), effect.id)


def _of_rows(
    parts: Parts, adapter: Adapter, effect: Effect, on_conflict: OnConflict, undone_before: set[str]
) -> Iterable[TargetOutcome]:
    """Every conflict is a target of its own, that the effect does not list."""
    if undone_before:
        for target in effect.targets:
            yield TargetOutcome(target.resource, Outcome.UNDONE, "after what came later", effect.id)
        return
    for one in assessed(parts, adapter, undo_change(effect, on_conflict), effect).outcomes:
        yield one._replace(effect=effect.id)


def _after_later(
    parts: Parts,
    target: Target,
    effect: Effect,
    before: tuple[Target, int],
    on_conflict: OnConflict,
) -> TargetOutcome:
    """What the later effect found is what this one left, or someone came between. For targets that are compared by
    meaning, the adapter decides when their turn comes."""
    later, order = before
    left = target.after.get("then") or target.before.get("then") or target.after
    told = TargetOutcome(target.resource, Outcome.UNDONE, "after what came later", effect.id)
    if BY_MEANING in target.after:
        return told
    if later.resource != target.resource or not _plainly_differ(later.before, left):
        return told
    known = explained(parts, effect, (target.resource,), until=order).get(target.resource)
    if known is not None and not _plainly_differ(later.before, known):
        return told._replace(exact=False)
    if not _plainly_differ(later.before, target.before):
        return told._replace(outcome=Outcome.ALREADY, detail="what it did was taken back before")
    if on_conflict.merges and _merges(parts, effect):
        return told._replace(detail="to be merged after what came later", exact=False)
    detail = "was changed by someone else before the later effect"
    return told._replace(outcome=Outcome.CONFLICT, detail=detail)


def _plainly_differ(one: dict[str, Any], other: dict[str, Any]) -> bool:
    names = ("type", "digest", "target", "value", "present")
    return any(name in one and name in other and one[name] != other[name] for name in names)
