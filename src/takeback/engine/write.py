"""The one way into the world: assess, guard, ask a person, prepare, announce, *someone carries it out*, settle.

Doors (`engine/guards.py`) differ in who makes the change between the intent and the outcome. The adapter does it for
`do`; `transaction`, `held`, `review` and `watch` leave it to a session, a person, a server or a command."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import NamedTuple

from takeback.adapters.protocol import Adapter, Assessment, traits_of
from takeback.engine.guards import (
    SQL,
    UNDO,
    WRITE,
    Door,
    Safeguard,
    policy_says,
    refuse_assessed,
    refuse_unmet,
    refuse_unstaged,
)
from takeback.engine.parts import Parts, adapter_of, as_draft, assessed, draft, stage_of
from takeback.engine.settle import abort, carry_out, sentence_of, way_out
from takeback.engine.stop import refuse_stopped
from takeback.errors import Drifted, InDoubt, KeyReused, NoRemedy, StoreBusy, Stuck, Superseded, Unavailable
from takeback.model.change import Change, Staged, intent
from takeback.model.effect import PERSON, Effect, State, waits_for_approval
from takeback.model.ids import new_id, short
from takeback.model.plan import Outcome
from takeback.model.record import Draft, Kind
from takeback.model.remedy import Offer, Remedy, is_gated, ordered, reason
from takeback.model.resource import display
from takeback.model.ruling import NO_RULE, NOTHING_KNOWN, Known, PolicyAnswer, Ruling
from takeback.model.run import Lease
from takeback.policy.checks import Check, needs_name, run_checks
from takeback.storage.protocols import Query

_DECISIONS = 50  # attempts, while others record something each time


class Terms(NamedTuple):
    """What comes along with a change: its key, what it needs, what is checked, what must hold."""

    key: str = ""
    needs: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    expects: Callable[[], bool] | None = None
    undoes: Effect | None = None
    assessed: Assessment | None = None  # just now, by the caller
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
    fresh: bool = False  # nothing in the journal has the key
    happened: bool = False  # of what is watched: it is in the world already, and only recorded
    known: Known = NOTHING_KNOWN  # for the policy: what the adapter cannot see
    judged: bool = False  # the policy was asked already, or what it wants was done by the agent's host


class Ready(NamedTuple):
    adapter: Adapter
    effect: Effect
    door: Door
    staged: tuple[Staged, ...] = ()
    earlier: bool = False  # made, or held, before under the same key


def do(parts: Parts, lease: Lease, change: Change, terms: Terms) -> Effect | None:
    """The effect, done and verified; None if the change would change nothing."""
    made = ready(parts, lease, change, terms, UNDO if terms.undoes else WRITE)
    if made is None:
        return None
    with terms.held_back():
        effect = announced(parts, lease, made, terms)
        if effect.state is not State.INTENDED:
            return effect
        return carry_out(parts, lease, made.adapter, effect, made.staged, terms.checks)


def ready(parts: Parts, lease: Lease, change: Change, terms: Terms, door: Door) -> Ready | None:
    """Looked at, guarded, approved and prepared. None if it would change nothing."""
    parts.refuse_if_suspect()
    stoppable = Safeguard.STOP not in door.without
    if stoppable:
        refuse_stopped(parts, terms.agent, lease.run)
    adapter = adapter_of(parts, change.adapter)
    asks = not terms.fresh and Safeguard.KEY not in door.without
    earlier = recorded(parts, change, terms.key, door) if asks else None
    if earlier and not waits_for_approval(earlier):
        return Ready(adapter, earlier, door, earlier=True)
    if terms.checks and not (adapter.traits.stages and Safeguard.CHECKS not in door.without):
        refuse_unstaged(change)
    assessment = terms.assessed or assessed(parts, adapter, change, terms.undoes)
    if assessment.changes_nothing and not terms.taken:
        return None
    refuse_assessed(parts, change, assessment, door)
    ruling = _ruling(parts, lease, change, assessment, terms, door)
    if ruling is not NO_RULE:
        from takeback.engine.ruling import noted

        change = noted(change, ruling)
    if Safeguard.APPROVAL not in door.without and (earlier or _asks(adapter, assessment, ruling)):
        made = _approved(parts, lease, adapter, earlier, change, assessment, terms, door, ruling)
    elif ruling.answer is PolicyAnswer.HOLD and not door.waits:
        from takeback.engine.gate import held_by_rule

        change = change._replace(phase=change.phase._replace(waits=PERSON))
        held = prepared(parts, adapter, proposed(lease, change, terms), assessment)
        raise held_by_rule(propose(parts, lease, held), ruling)
    else:
        made = _prepare(parts, lease, adapter, proposed(lease, change, terms), assessment, terms, door)
    try:
        # The last look. It is somebody's code and may take long: a signal ends it.
        refuse_unmet(terms.expects)
        if stoppable:
            refuse_stopped(parts, terms.agent, lease.run)  # capturing and checking may have taken long
    except BaseException as error:
        _give_up(parts, lease, made, terms, error)
        raise
    return made


def _approved(
    parts: Parts,
    lease: Lease,
    adapter: Adapter,
    earlier: Effect | None,
    change: Change,
    assessment: Assessment,
    terms: Terms,
    door: Door,
    ruling: Ruling,
) -> Ready:
    """Prepared once more, if people have approved exactly this; `AwaitingApproval` until then."""
    from takeback.engine.gate import TermsOfAsking, drift, gated, passed, waiting, with_state

    asked_at = terms.asked_at or parts.drops.now() or time.time_ns() // 1000
    asking, why = TermsOfAsking(asked_at, terms.patience, ruling), ""
    if earlier:
        passed(parts, lease, adapter, earlier, change, asking)
        made = Ready(adapter, earlier, door)
        if not adapter.traits.calls:
            made = _prepare(parts, lease, adapter, earlier, assessment, terms, door)
        why = drift(parts, earlier, made.effect.remedy, assessment, asking)
        if not why:
            return made
        abort(parts, lease, adapter, earlier, f"It was approved, but {why}.")
    asked = proposed(lease, gated(parts, change, assessment, asking), terms)
    if door.waits:
        made = _prepare(parts, lease, adapter, asked, assessment, terms, door)
        return made._replace(effect=with_state(made.effect))
    effect = propose(parts, lease, with_state(prepared(parts, adapter, asked, assessment)))
    parts.proposed(effect)
    raise waiting(parts, effect, why)


def _ruling(
    parts: Parts, lease: Lease, change: Change, assessment: Assessment, terms: Terms, door: Door
) -> Ruling:
    """Of the policy. Raises where it says no, and where nothing can wait at this door."""
    if Safeguard.POLICY in door.without or terms.judged:
        return NO_RULE
    ruling = policy_says(parts, lease.run, terms.agent, change, assessment, terms.known)
    if ruling is not NO_RULE:
        from takeback.engine.ruling import refuse_denied, refuse_unheld

        refuse_denied(change, ruling)
        if door is SQL or (traits_of(change).boxes and not door.waits):
            refuse_unheld(change, ruling, door.name)
    return ruling


def _asks(adapter: Adapter, assessment: Assessment, ruling: Ruling) -> bool:
    """Whether a person must approve it first. A call cannot be held: the run that asked for it has to make it."""
    if ruling.answer is PolicyAnswer.ASK or (ruling.answer is PolicyAnswer.HOLD and adapter.traits.calls):
        return True
    allowed = ruling.answer is PolicyAnswer.ALLOW and bool(ruling.rule)  # it names what cannot be undone
    return is_gated(assessment.offers) and not allowed


def recorded(parts: Parts, change: Change, key: str, door: Door) -> Effect | None:
    """The effect that already has this key, if it is the same change: done, held, or waiting for an approval."""
    earlier = next(parts.journal.effects(Query(key=key)), None) if key else None
    if earlier is None:
        return None
    if intent(earlier.change) != intent(change):
        raise KeyReused(
            f"The key {key!r} was used for another change: {earlier.change.summary}.",
            hint="Give every change its own key.",
            effect=earlier.id,
        )
    held = earlier.waits_for == PERSON
    if earlier.state is State.DONE or waits_for_approval(earlier) or (held and door.waits):
        return earlier
    if held:
        raise KeyReused(
            f"The change with key {key!r} is held: {earlier.change.summary}.",
            hint=f"Make it with `takeback apply {short(earlier.id)}`, or use another key.",
            effect=earlier.id,
        )
    if earlier.state is State.UNDONE:
        raise KeyReused(
            f"The change with key {key!r} was made and then taken back.",
            hint="Use a new key, or a fork of the run that says why it is meant once more."
            if traits_of(earlier.change).calls
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


def propose(parts: Parts, lease: Lease, effect: Effect) -> Effect:
    """Durable, and not announced: it waits for a person, or for the one who makes it to end."""
    parts.in_force()
    (record,) = parts.journal.append(lease, [draft(parts, Kind.PROPOSE, effect)])
    return effect._replace(seq=record.seq, told=record.seq, at=record.at)


def _prepare(
    parts: Parts,
    lease: Lease,
    adapter: Adapter,
    effect: Effect,
    assessment: Assessment,
    terms: Terms,
    door: Door,
) -> Ready:
    """Everything that comes before the intent; whatever fails here leaves nothing behind.

    The present content is captured before the checks run: they may take long, and an edit that someone makes in
    between is then found to be one.
    """
    # A scratch file with a name outlives a kill, so the journal must know of it first; one without a name does not.
    named = needs_name(terms.checks)
    try:
        if named and not effect.seq:
            effect = propose(parts, lease, effect)
        staged = adapter.stage(effect, named) if adapter.traits.stages else ()
        remedy, why = _capture(parts, adapter, effect, assessment.offers)
        if not adapter.traits.marks:  # one that marks looks again while it holds the locks
            _refuse_other_targets(effect, assessment, remedy)
        effect = effect._replace(remedy=remedy, reason=why)
        for one in staged:
            run_checks(terms.checks, one)
        return Ready(adapter, effect, door, staged)
    except BaseException as error:
        _give_up(parts, lease, Ready(adapter, effect, door), terms, error)
        raise


def _refuse_other_targets(effect: Effect, assessment: Assessment, remedy: Remedy) -> None:
    """An undo was planned by looking; if a target was changed since, what was captured is another undo: one that
    leaves something out without saying so."""
    if not effect.is_undo:
        return
    planned = {one.resource for one in assessment.outcomes if one.outcome is Outcome.UNDONE}
    partial = any(one.outcome not in (Outcome.UNDONE, Outcome.ALREADY) for one in assessment.outcomes)
    captured = {target.resource for target in remedy.targets}
    terms = effect.change.undo
    if planned != captured or (partial != terms.partial and terms.only is None):
        other = sorted(planned ^ captured) or [effect.change.resource]
        raise Drifted(
            f"{display(other[0])} was changed while its undo was being prepared.",
            hint="Nothing was changed. Look at it, then try again.",
            effect=effect.undoes,
        )


def announced(parts: Parts, lease: Lease, made: Ready, terms: Terms) -> Effect:
    """The intent, durable, while nothing was begun; or what was done under the same key since it was looked for."""
    if made.earlier:
        return made.effect
    effect = made.effect
    try:
        # Only told: there is nothing left to do for it, nor to be taken back should this one fail.
        told = _decided(parts, lease, _with_taken(effect, terms.taken), terms)._replace(remedy=effect.remedy)
    except BaseException as error:
        _give_up(parts, lease, made, terms, error)
        # Someone else was faster: what they did is the answer, or that they are at it.
        if isinstance(error, KeyReused) and (earlier := recorded(parts, effect.change, terms.key, made.door)):
            return earlier
        raise
    try:
        if Safeguard.GIVE_WAY not in made.door.without:
            terms.give_way()  # the intent may have taken long
    except BaseException as error:
        with suppress(Unavailable, InDoubt):  # then recovery sees that it was not begun
            abort(parts, lease, made.adapter, told, sentence_of(error))
        raise
    return told


def _decided(parts: Parts, lease: Lease, effect: Effect, terms: Terms) -> Effect:
    """Decided by what the journal says, and announced before it says anything else."""
    if terms.decide is None:
        return announce(parts, lease, effect)
    for _ in range(_DECISIONS - 1):
        with suppress(Superseded):
            return announce(parts, lease, effect._replace(change=terms.decide(effect.change)))
    return announce(parts, lease, effect._replace(change=terms.decide(effect.change)))


def _with_taken(effect: Effect, taken: Remedy | None) -> Effect:
    if taken is None or effect.remedy is None:
        return effect
    known = {target.resource for target in effect.targets}
    targets = (*effect.targets, *(target for target in taken.targets if target.resource not in known))
    blobs = tuple(dict.fromkeys((*effect.remedy.blobs, *taken.blobs)))
    return effect._replace(remedy=effect.remedy._replace(targets=targets, blobs=blobs))


def announce(parts: Parts, lease: Lease, effect: Effect) -> Effect:
    parts.in_force()
    effect = parts.belonging(effect)
    (record,) = parts.journal.append(lease, [as_draft(Kind.INTENT, effect)])
    return effect._replace(state=State.INTENDED, seq=effect.seq or record.seq, told=record.seq, at=record.at)


def _give_up(parts: Parts, lease: Lease, made: Ready, terms: Terms, error: BaseException) -> None:
    effect, named = made.effect, needs_name(terms.checks)
    if effect.seq and not named:
        return  # it was held, and waits on as it was
    made.adapter.tidy(effect)
    if effect.seq:
        why = {"why": sentence_of(error)}
        parts.journal.append(lease, [Draft(Kind.ABORT, effect.run, effect.id, why)])


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
