"""The whole write: assess, stage, validate, capture, record the intent, apply, verify, record the outcome."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import NamedTuple

from takeback.adapters.protocol import Adapter, Assessment
from takeback.engine.parts import Parts, adapter_of, as_draft, assessed, draft, stage_of
from takeback.engine.settle import abort, finish, stick, take_back, way_out, withdraw
from takeback.errors import (
    ApplyFailed,
    ByHand,
    Corrupt,
    DidNotHappen,
    Drifted,
    InDoubt,
    KeyReused,
    LeaseLost,
    NoRemedy,
    PreconditionFailed,
    Refused,
    RowsHeld,
    StoreBusy,
    Stuck,
    Superseded,
    TakebackError,
    Unavailable,
    UndoFailed,
    VerifyFailed,
)
from takeback.model.change import Change, Staged, intent
from takeback.model.database import file_of
from takeback.model.effect import Effect, State, waits_for_approval
from takeback.model.ids import new_id, short
from takeback.model.plan import ONLY, Outcome, Standing
from takeback.model.record import Draft, Kind
from takeback.model.remedy import Offer, Remedy, is_gated, ordered, reason
from takeback.model.resource import display, overlaps
from takeback.model.run import Lease
from takeback.policy.checks import AFTER, Check, needs_name, run_checks
from takeback.storage.protocols import Query

_DECISIONS = 50  # attempts, while others record something each time


class Terms(NamedTuple):
    """What comes along with a change: its key, what it needs, what is checked, what must hold."""

    key: str = ""
    needs: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    expects: Callable[[], bool] | None = None
    undoes: Effect | None = None
    assessed: Assessment | None = None  # by whoever asks, just now
    agent: str = ""
    asked_at: int = 0  # microseconds since 1970
    patience: int = 0  # how long a proposal waits for a person, in microseconds; 0: for ever
    # Of an undo: what an earlier one, stuck and given up, has taken back. It is part of this one, so that redo brings
    # it back too.
    taken: Remedy | None = None
    # From the intent to the outcome a signal waits; before that it may stop the whole thing.
    held_back: Callable[[], AbstractContextManager[None]] = nullcontext
    give_way: Callable[[], None] = lambda: None  # raises one that waits, as long as nothing was begun
    step: int = 0  # of a workflow
    asked: str = ""  # what that step asked for, as a digest
    decide: Callable[[Change], Change] | None = None  # right before the intent, by what the journal says then
    fresh: bool = False  # whoever made the key knows that nothing in the journal has it


def do(parts: Parts, lease: Lease, change: Change, terms: Terms) -> Effect | None:
    """The effect, done and verified; None if the change would change nothing."""
    parts.refuse_if_suspect()
    earlier = None if terms.fresh else recorded(parts, change, terms.key)
    if earlier and earlier.state is State.DONE:
        return earlier
    adapter = adapter_of(parts, change.adapter)
    assessment = terms.assessed or assessed(parts, adapter, change, terms.undoes)
    if assessment.changes_nothing and not terms.taken:
        return None
    refuse_own_store(parts, assessment)
    refuse_loss(change, assessment)
    if terms.undoes is None:  # what is held in reserve is there for undo
        parts.refuse_without_room(max(offer.cost for offer in assessment.offers))
    if terms.undoes is None and (earlier or is_gated(assessment.offers)):
        from takeback.engine.gate import passed, waiting

        if earlier is None:
            raise waiting(_proposed_to_a_person(parts, lease, adapter, change, terms, assessment))
        effect, staged = passed(parts, lease, adapter, earlier, change, terms), ()
    else:
        effect, staged = _prepare(parts, lease, adapter, proposed(lease, change, terms), assessment, terms)
    if terms.expects:
        _meet(parts, lease, adapter, effect, terms)
    with terms.held_back():
        try:
            effect = _announce(parts, lease, adapter, effect, terms)
        except KeyReused:
            # Someone else was faster, since it was looked for: what they did is the answer, or that they are at it.
            if earlier := recorded(parts, change, terms.key):
                return earlier
            raise
        _give_way(parts, lease, adapter, effect, terms)
        return carry_out(parts, lease, adapter, effect, staged, terms.checks)


def recorded(parts: Parts, change: Change, key: str) -> Effect | None:
    """The effect that already has this key, if it is the same change: done, or waiting for an approval."""
    earlier = next(parts.journal.effects(Query(key=key)), None) if key else None
    if earlier is None:
        return None
    if intent(earlier.change) != intent(change):
        raise KeyReused(
            f"The key {key!r} was used for another change: {earlier.change.summary}.",
            hint="Give every change its own key.",
            effect=earlier.id,
        )
    if earlier.state is State.DONE or waits_for_approval(earlier):
        return earlier
    if earlier.state is State.UNDONE:
        raise KeyReused(
            f"The change with key {key!r} was made and then taken back.",
            hint="Use a new key, or say that it is meant anew: run.fork(why)."
            if earlier.change.adapter == "call"
            else f"Bring it back with `takeback redo {short(earlier.undone_by)}`, or use a new key.",
            effect=earlier.id,
        )
    if earlier.state is State.STUCK:
        raise Stuck(
            f"The change with key {key!r} is stuck: {earlier.note}", hint=way_out(earlier), effect=earlier.id
        )
    raise StoreBusy(
        f"The change with key {key!r} is still {earlier.state.value}.",
        hint="Run `takeback recover` first.",
        effect=earlier.id,
    )


def refuse_own_store(parts: Parts, assessment: Assessment) -> None:
    refuse_own(parts, *assessment.resources)


def refuse_own(parts: Parts, *resources: str) -> None:
    """The store may have a second name: a bind mount, a filesystem that is mounted twice."""
    names = dict.fromkeys((parts.off_limits, *parts.names())) if parts.off_limits else ()
    for resource in resources:
        file = file_of(resource)
        for name in names:
            if overlaps(name, file):
                raise Refused(
                    f"{display(resource)} is, holds or lies in takeback's own store.",
                    hint="Nothing was changed. takeback does not change its own store as part of an effect."
                    if name == parts.off_limits
                    else f"Nothing was changed. {display(name)} is another name of {display(parts.off_limits)}.",
                )


def refuse_loss(change: Change, assessment: Assessment) -> None:
    if assessment.lost and not change.args.get("allow_inexact"):
        raise NoRemedy(
            f"This could not be taken back: {'; '.join(assessment.lost)}.",
            hint="Nothing was changed. Allow it with allow_inexact=True (--allow-inexact) if that loss is acceptable.",
            allowable=True,
        )
    if not assessment.offers:
        raise NoRemedy(
            f"There is no way back from: {change.summary}.",
            hint="Nothing was changed. A change that cannot be undone must say so itself.",
        )


def proposed(lease: Lease, change: Change, terms: Terms) -> Effect:
    return Effect(
        id=new_id(),
        run=lease.run,
        agent=terms.agent,
        seq=0,
        state=State.PROPOSED,
        change=change,
        key=terms.key,
        needs=terms.needs,
        undoes=terms.undoes.id if terms.undoes else "",
        of=terms.undoes,
        step=terms.step,
        asked=terms.asked,
    )


def _proposed_to_a_person(
    parts: Parts, lease: Lease, adapter: Adapter, change: Change, terms: Terms, assessment: Assessment
) -> Effect:
    from takeback.engine.gate import gated

    effect = prepared(parts, adapter, proposed(lease, gated(change, assessment, terms), terms), assessment)
    (record,) = parts.journal.append(lease, [draft(parts, Kind.PROPOSE, effect)])
    return effect._replace(seq=record.seq, told=record.seq, at=record.at)


def _prepare(
    parts: Parts, lease: Lease, adapter: Adapter, effect: Effect, assessment: Assessment, terms: Terms
) -> tuple[Effect, tuple[Staged, ...]]:
    """Everything that comes before the intent; whatever fails here leaves nothing behind.

    What is there is captured before the checks run: they may take long, and an edit that someone makes meanwhile is
    then found to be one.
    """
    # A scratch file with a name outlives a kill, so the journal must know of it first; one without a name does not.
    named = needs_name(terms.checks)
    proposed = False
    try:
        if named:
            (record,) = parts.journal.append(lease, [draft(parts, Kind.PROPOSE, effect)])
            effect = effect._replace(seq=record.seq)
            proposed = True
        staged = adapter.stage(effect, named) if adapter.traits.stages else ()
        remedy, why = _capture(parts, adapter, effect, assessment.offers)
        if not adapter.traits.marks:  # one that marks looks again while it holds the locks
            _refuse_other_targets(effect, assessment, remedy)
        effect = effect._replace(remedy=remedy, reason=why)
        for one in staged:
            run_checks(terms.checks, one)
        return effect, staged
    except BaseException as error:
        _give_up(parts, lease, adapter, effect, proposed, error)
        raise


def _refuse_other_targets(effect: Effect, assessment: Assessment, remedy: Remedy) -> None:
    """An undo was planned by looking; if a target was changed since, what was captured is another undo: one that
    leaves something out without saying so."""
    if not effect.is_undo:
        return
    planned = {one.resource for one in assessment.outcomes if one.outcome is Outcome.UNDONE}
    partial = any(one.outcome not in (Outcome.UNDONE, Outcome.ALREADY) for one in assessment.outcomes)
    captured = {target.resource for target in remedy.targets}
    args = effect.change.args
    if planned != captured or (partial != bool(args.get("partial")) and ONLY not in args):
        other = sorted(planned ^ captured) or [effect.change.resource]
        raise Drifted(
            f"{display(other[0])} was changed while its undo was being prepared.",
            hint="Nothing was changed. Look at it, then try again.",
            effect=effect.undoes,
        )


def _meet(parts: Parts, lease: Lease, adapter: Adapter, effect: Effect, terms: Terms) -> None:
    """The last look. It is somebody's code and may take long: a signal ends it."""
    try:
        _refuse_unmet(terms)
    except BaseException as error:
        _give_up(parts, lease, adapter, effect, needs_name(terms.checks), error)
        raise


def _announce(parts: Parts, lease: Lease, adapter: Adapter, effect: Effect, terms: Terms) -> Effect:
    """The intent, durable."""
    try:
        # Only told: there is nothing left to do for it, nor to be taken back should this one fail.
        told = _with_taken(effect, terms.taken)
        return _decided(parts, lease, told, terms)._replace(remedy=effect.remedy)
    except BaseException as error:
        _give_up(parts, lease, adapter, effect, needs_name(terms.checks), error)
        raise


def _decided(parts: Parts, lease: Lease, effect: Effect, terms: Terms) -> Effect:
    """Decided by what the journal says, and announced before it says anything else."""
    if terms.decide is None:
        return announce(parts, lease, effect)
    for _ in range(_DECISIONS - 1):
        with suppress(Superseded):
            return announce(parts, lease, effect._replace(change=terms.decide(effect.change)))
    return announce(parts, lease, effect._replace(change=terms.decide(effect.change)))


def _give_way(parts: Parts, lease: Lease, adapter: Adapter, effect: Effect, terms: Terms) -> None:
    """The intent may have taken long: a signal that came meanwhile comes before anything was begun."""
    try:
        terms.give_way()
    except BaseException as error:
        with suppress(Unavailable, InDoubt):  # then whoever settles it sees that it was not begun
            abort(parts, lease, adapter, effect, _sentence(error))
        raise


def _with_taken(effect: Effect, taken: Remedy | None) -> Effect:
    if taken is None or effect.remedy is None:
        return effect
    known = {target.resource for target in effect.targets}
    targets = (*effect.targets, *(target for target in taken.targets if target.resource not in known))
    blobs = tuple(dict.fromkeys((*effect.remedy.blobs, *taken.blobs)))
    return effect._replace(remedy=effect.remedy._replace(targets=targets, blobs=blobs))


def announce(parts: Parts, lease: Lease, effect: Effect) -> Effect:
    effect = parts.belonging(effect)
    (record,) = parts.journal.append(lease, [as_draft(Kind.INTENT, effect)])
    return effect._replace(state=State.INTENDED, seq=effect.seq or record.seq, told=record.seq, at=record.at)


def _give_up(
    parts: Parts, lease: Lease, adapter: Adapter, effect: Effect, proposed: bool, error: BaseException
) -> None:
    adapter.tidy(effect)
    if proposed:
        parts.journal.append(lease, [Draft(Kind.ABORT, effect.run, effect.id, {"why": _sentence(error)})])


def prepared(parts: Parts, adapter: Adapter, effect: Effect, assessment: Assessment) -> Effect:
    """With its remedy, and the reason for the strategy; whatever fails leaves nothing behind."""
    try:
        remedy, why = _capture(parts, adapter, effect, assessment.offers)
    except BaseException:
        adapter.tidy(effect)
        raise
    return effect._replace(remedy=remedy, reason=why)


def _capture(parts: Parts, adapter: Adapter, effect: Effect, offers: tuple[Offer, ...]) -> tuple[Remedy, str]:
    """By the best offer that can be prepared; when none can, the change is refused."""
    refused: list[tuple[Offer, str]] = []
    *others, last = ordered(offers)
    with stage_of(parts, adapter, "Saving"):
        for offer in others:
            try:
                return adapter.capture(effect, offer), reason(offer, tuple(refused))
            except NoRemedy as error:
                refused.append((offer, str(error)))
        return adapter.capture(effect, last), reason(last, tuple(refused))


def _holds(expects: Callable[[], bool]) -> bool:
    """What cannot be told does not hold."""
    try:
        return bool(expects())
    except TakebackError:
        raise
    except Exception as error:
        raise PreconditionFailed(
            f"Whether the change's precondition holds could not be told: {type(error).__name__}: {error}.",
            hint="Nothing was changed.",
        ) from error


def _refuse_unmet(terms: Terms) -> None:
    if terms.expects and not _holds(terms.expects):
        name = getattr(terms.expects, "__name__", "the precondition")
        raise PreconditionFailed(
            f"What the change expects does not hold: {name}.",
            hint="Nothing was changed. Look again, then decide.",
        )


def carry_out(
    parts: Parts,
    lease: Lease,
    adapter: Adapter,
    effect: Effect,
    staged: tuple[Staged, ...] = (),
    checks: tuple[Check, ...] = (),
) -> Effect:
    """From the intent to the outcome."""
    receipt = None
    try:
        with stage_of(parts, adapter, "Restoring" if effect.is_undo else "Changing"):
            receipt = adapter.apply(effect)
        effect = effect._replace(receipt=receipt.data)
        with stage_of(parts, adapter, "Checking"):
            sighting = adapter.verify(effect)
        if sighting.standing is not Standing.AFTER:
            seen = (sighting.detail or sighting.standing).removesuffix(".")
            raise VerifyFailed(
                f"{display(effect.change.resource)} is not what was written: {seen}.",
                effect=effect.id,
            )
        for one in staged:
            run_checks(checks, one, AFTER)
    except LeaseLost:
        raise  # whoever has the run now settles it
    except InDoubt as error:
        return found_out(parts, lease, adapter, effect, error)
    except ByHand as error:
        raise stick(parts, lease, effect, str(error), error.hint) from error
    except Drifted as error:
        withdraw(parts, lease, adapter, effect, _sentence(error))
        raise
    except BaseException as error:
        if receipt is None and isinstance(error, (RowsHeld, DidNotHappen)):
            # Known without asking; and whoever has the rows could keep us from asking, too.
            abort(parts, lease, adapter, effect, _sentence(error))
            raise
        take_back(parts, lease, adapter, effect, _sentence(error))
        if isinstance(error, OSError):
            kind = UndoFailed if effect.is_undo else ApplyFailed
            raise kind(
                f"{effect.change.summary}: {error.strerror or error}.",
                hint="It was taken back; nothing has changed.",
                effect=effect.id,
            ) from error
        raise
    try:
        return finish(parts, lease, adapter, effect, receipt.data)
    except Corrupt:
        # The journal is damaged just where the outcome belongs, and nothing of it was written: what cannot be
        # recorded must not stand. Other errors leave open whether it was written; recovery finds out.
        adapter.undo(effect)
        adapter.tidy(effect)
        raise


def found_out(parts: Parts, lease: Lease, adapter: Adapter, effect: Effect, error: InDoubt) -> Effect:
    """The answer was lost, so the world is asked. If it cannot be asked either, the effect stays open, and
    recovery asks again."""
    sighting = adapter.verify(effect)
    if sighting.standing is Standing.AFTER:
        return finish(parts, lease, adapter, effect, sighting.receipt)
    if sighting.standing is Standing.UNKNOWN:
        raise stick(parts, lease, effect, f"{_sentence(error)} {_capital(sighting.detail)}.") from error
    if sighting.standing is Standing.BETWEEN:
        take_back(parts, lease, adapter, effect, f"{_sentence(error)} {_capital(sighting.detail)}.")
        raise VerifyFailed(
            f"{effect.change.summary}: {sighting.detail}.", hint="It was taken back.", effect=effect.id
        ) from error
    abort(parts, lease, adapter, effect, f"{_sentence(error)} It did not happen.")
    raise ApplyFailed(
        _about(effect, _sentence(error)),
        hint="It did not happen, as was found by asking; trying again is safe.",
        effect=effect.id,
    ) from error


def _about(effect: Effect, sentence: str) -> str:
    """Many say it already."""
    about = effect.change.summary
    return sentence if sentence.startswith(about) else f"{about}: {sentence}"


def _capital(detail: str) -> str:
    return detail[:1].upper() + detail[1:]


def _sentence(error: BaseException) -> str:
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        return "It was interrupted."
    return str(error) if isinstance(error, TakebackError) else f"{type(error).__name__}: {error}"
