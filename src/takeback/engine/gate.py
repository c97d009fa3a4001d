"""Before something that needs an approval is made: people said yes to exactly that."""

from typing import NamedTuple

from takeback.adapters.protocol import Adapter, Assessment
from takeback.engine.approvable import approvable, asked_for, digest_of, is_over, state_of, waits_until
from takeback.engine.approval import (
    Decision,
    asked_in_words,
    challenge,
    decision_on,
    decisions,
    has_ended,
    in_words,
    last_known,
)
from takeback.engine.parts import Parts
from takeback.engine.settle import abort
from takeback.engine.signature import is_signed
from takeback.errors import ApprovalExpired, AwaitingApproval, Denied, Refused
from takeback.model.change import Approvable, Change, intent
from takeback.model.effect import PERSON, Effect, applied_once_approved, waits_for_approval
from takeback.model.ids import short
from takeback.model.person import KnownBy
from takeback.model.remedy import Remedy
from takeback.model.resource import function_in
from takeback.model.ruling import PolicyAnswer, Ruling
from takeback.model.run import Lease

NOT_IN_TIME = "It was not approved in time, and silence means no."
NOT_USED = "Its approval was not used in time."


class TermsOfAsking(NamedTuple):
    """When a change is asked for, how long it waits for an answer, and what the policy says; in microseconds."""

    at: int
    patience: int
    ruling: Ruling


def passed(
    parts: Parts, lease: Lease, adapter: Adapter, earlier: Effect, change: Change, asking: TermsOfAsking
) -> None:
    """Returns when people have approved this proposal; `AwaitingApproval` until then."""
    if earlier.run != lease.run:
        raise _asked_first(parts, earlier)
    decision = decision_on(parts, earlier)
    if decision is None:
        if is_over(earlier, asking.at, last_known(parts), asking.patience):
            abort(parts, lease, adapter, earlier, NOT_IN_TIME)
            raise _expired(earlier, "it was not approved in time, and silence means no")
        raise waiting(parts, earlier)
    if not decision.approved:
        abort(parts, lease, adapter, earlier, in_words(decision))
        raise Denied(f"{earlier.change.summary}: {in_words(decision)}", effect=earlier.id)
    until = waits_until(earlier, asking.patience)
    if until and decision.at > until:
        abort(parts, lease, adapter, earlier, NOT_IN_TIME)
        raise _expired(earlier, "it was not approved in time, and silence means no")
    if until and max(asking.at, last_known(parts)) > decision.at + (until - earlier.at):
        abort(parts, lease, adapter, earlier, NOT_USED)
        raise _expired(earlier, "its approval was not used in time")
    why = _forged(parts, earlier)
    if not why and intent(earlier.change) != intent(change):
        why = "the call changed after it was approved"
    if why:
        abort(parts, lease, adapter, earlier, f"Not made: {why}.")
        raise Denied(
            f"{earlier.change.summary}: {why}.",
            hint="Nothing was called. An approval is for exactly what was shown.",
            effect=earlier.id,
        )


def _forged(parts: Parts, effect: Effect) -> str:
    """Why the approvals that are recorded are not enough after all; "" if they are. Each is looked at again: another
    process has written them."""
    people, counted = parts.people(), set[str]()
    gate = effect.phase.gate or Approvable("")
    strict = gate.people > 1 or people.proven
    digest = digest_of(effect)
    for one in decisions(parts, effect):
        if one.digest != digest:
            return "what was approved is something else than what would be made"
        if one.by.known_by is KnownBy.KEY and not _is_signed(parts, effect, one):
            return f"the signature of {one.by.name} does not fit"
        if strict and not one.by.is_proven:
            return f"{one.by.in_words()} is not proven"
        if gate.of and one.by.name not in gate.of:
            return f"{one.by.name} was not asked"
        counted.add(one.by.name)
    return "" if len(counted) >= gate.people else "too few people have approved it"


def refuse_unapproved(parts: Parts, effect: Effect) -> None:
    """Before someone applies what a rule wants approved; a call is made by the run that asked for it."""
    if not waits_for_approval(effect):
        return
    name, decision = short(effect.id), decision_on(parts, effect)
    if decision is None or not decision.approved or not applied_once_approved(effect):
        raise Refused(
            f"Effect {name} waits for an approval: {effect.plan}.",
            hint=f"`takeback approve {name}` or `takeback deny {name}`.",
            effect=effect.id,
        )
    if why := _forged(parts, effect):
        raise Denied(
            f"{effect.change.summary}: {why}.",
            hint="Nothing was changed. An approval is for exactly what was shown.",
            effect=effect.id,
        )


def refuse_drifted(adapter: Adapter, effect: Effect) -> None:
    """It was captured again: an approval is for the state that was shown."""
    gate = effect.phase.gate
    if gate and gate.state and state_of(effect, effect.remedy) != gate.state:
        adapter.tidy(effect)
        raise Denied(
            f"{effect.change.summary}: what it changes was modified after it was shown.",
            hint="Nothing was changed. An approval is for exactly what was shown; drop it and ask again.",
            effect=effect.id,
        )


def _is_signed(parts: Parts, effect: Effect, decision: Decision) -> bool:
    keys = {one.key for one in parts.people().approvers} | {one.key for one in parts.people().webhooks}
    return decision.key in keys and is_signed(effect, decision)


def gated(parts: Parts, change: Change, assessment: Assessment, asking: TermsOfAsking) -> Change:
    gate = approvable(assessment, asking.ruling, parts.account(), asking.at, asking.patience)
    return change._replace(phase=change.phase._replace(waits=PERSON, gate=gate))


def with_state(effect: Effect) -> Effect:
    """With the state on which it is proposed, as it was captured."""
    gate = effect.phase.gate
    assert gate
    phase = effect.phase._replace(gate=gate._replace(state=state_of(effect, effect.remedy)))
    return effect._replace(change=effect.change._replace(phase=phase))


def drift(
    parts: Parts, earlier: Effect, remedy: Remedy | None, assessment: Assessment, asking: TermsOfAsking
) -> str:
    """Why the approval does not fit what would be made now; "" if it does."""
    asked = earlier.phase.gate
    assert asked
    now = approvable(assessment, asking.ruling, parts.account(), asking.at, asking.patience)
    if now.plan != asked.plan:
        return "the way back changed after it was shown"
    if asked.nonce and (now.people, now.of, now.words) != (asked.people, asked.of, asked.words):
        return "the policy asks for other people now"
    if asked.state and state_of(earlier, remedy) != asked.state:
        return "what it changes was modified after it was shown"
    return ""


def _expired(effect: Effect, why: str) -> ApprovalExpired:
    return ApprovalExpired(
        f"{effect.change.summary}: {why}.",
        hint="Nothing was called. Ask again if it is still wanted.",
        effect=effect.id,
    )


def _asked_first(parts: Parts, effect: Effect) -> Refused:
    run = short(effect.run)
    told = f"{effect.change.summary}: run {run} asked for it first"
    if has_ended(parts, effect.run):
        hint = f"`takeback undo {short(effect.id)}` withdraws that request; then ask again."
        return Refused(f"{told}, and has ended.", hint=hint, effect=effect.id)
    hint = f"The program of run {run} has to continue it. If its process is gone, `takeback recover` ends it."
    return Refused(f"{told}.", hint=hint, effect=effect.id)


def waiting(parts: Parts, effect: Effect, why: str = "") -> AwaitingApproval:
    """`why`: why an earlier approval does not count."""
    gate = effect.phase.gate or Approvable("")
    said = [one.by.name for one in decisions(parts, effect)] if gate.people > 1 else []
    so_far = f" ({', '.join(said)} said yes)" if said else ""
    told = f"{effect.change.summary} waits for {asked_in_words(effect)}{so_far}: {effect.plan}."
    name, run = short(effect.id), short(effect.run)
    done = "called" if function_in(effect.change.resource) else "changed"
    then = f"then the program of run {run} asks for it again"
    if applied_once_approved(effect):
        then = f"then `takeback apply {name}` makes it, or the program of run {run} asks for it again"
    return AwaitingApproval(
        f"{told} It was approved before, but {why}." if why else told,
        hint=f"Nothing was {done} yet. `takeback approve {name}` or `takeback deny {name}`; {then}.",
        effect=effect.id,
        until=waits_until(effect),
        asked=gate.of,
        people=gate.people,
        challenge=challenge(effect),
    )


def held_by_rule(effect: Effect, ruling: Ruling) -> AwaitingApproval:
    from takeback.engine.ruling import in_words

    name = short(effect.id)
    return AwaitingApproval(
        f"{effect.change.summary}: {in_words(ruling)}",
        hint=f"Nothing was changed yet; it is held. A person makes it with `takeback apply {name}`, or drops it with "
        f"`takeback discard {name}`.",
        effect=effect.id,
    )


def asked_by_rule(parts: Parts, effect: Effect, asking: TermsOfAsking) -> Effect:
    """One that is held already, with the approval that a rule wants before it is applied."""
    from takeback.engine.ruling import noted

    change = noted(effect.change, asking.ruling)
    if asking.ruling.answer is not PolicyAnswer.ASK or change.phase.gate:
        return effect._replace(change=change)
    plan = effect.reason or "it can be taken back afterwards"
    gate = asked_for(plan, False, asking.ruling, parts.account(), asking.at, asking.patience)
    return with_state(effect._replace(change=change._replace(phase=change.phase._replace(gate=gate))))
