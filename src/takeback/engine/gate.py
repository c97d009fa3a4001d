"""Before something that cannot be taken back, or only by hand: a person says yes to exactly that."""

from typing import Protocol

from takeback.adapters.protocol import Adapter, Assessment
from takeback.engine.approval import decision_on, digest_of, has_ended, in_words, waits_until
from takeback.engine.parts import Parts
from takeback.engine.settle import abort
from takeback.errors import ApprovalExpired, AwaitingApproval, Denied, Refused
from takeback.model.change import Approvable, Change, intent
from takeback.model.effect import PERSON, Effect
from takeback.model.ids import short
from takeback.model.remedy import reason
from takeback.model.ruling import NO_RULE, PolicyAnswer, Ruling
from takeback.model.run import Lease


class AskedAt(Protocol):
    """When a change is asked for, and how long it waits for an answer; in microseconds."""

    @property
    def asked_at(self) -> int: ...

    @property
    def patience(self) -> int: ...


def passed(
    parts: Parts, lease: Lease, adapter: Adapter, earlier: Effect, change: Change, terms: AskedAt
) -> Effect:
    """The proposal, when a person has approved it; `AwaitingApproval` until then."""
    if earlier.run != lease.run:
        raise _asked_first(parts, earlier)
    decision = decision_on(parts, earlier)
    until = waits_until(earlier, terms.patience)
    if until and (decision.at if decision else terms.asked_at) > until:
        abort(parts, lease, adapter, earlier, "It was not approved in time, and silence means no.")
        raise ApprovalExpired(
            f"{earlier.change.summary}: it was not approved in time, and silence means no.",
            hint="Nothing was called. Ask again if it is still wanted.",
            effect=earlier.id,
        )
    if decision is None:
        raise waiting(earlier)
    if not decision.approved:
        abort(parts, lease, adapter, earlier, in_words(decision))
        raise Denied(f"{earlier.change.summary}: {in_words(decision)}", effect=earlier.id)
    if decision.digest != digest_of(earlier.change) or intent(earlier.change) != intent(change):
        raise Denied(
            f"{earlier.change.summary}: the call changed after it was approved.",
            hint="Nothing was called. An approval is for exactly what was shown.",
            effect=earlier.id,
        )
    return earlier


def gated(change: Change, assessment: Assessment, terms: AskedAt, ruling: Ruling = NO_RULE) -> Change:
    """What waits for an approval. What it asks for beyond a yes is in `phase.ruling`, if a rule wants it."""
    patience = ruling.asks.seconds * 1_000_000 or terms.patience
    until = terms.asked_at + patience if patience and terms.asked_at else 0
    best = assessment.offers[0]
    gate = Approvable(best.residue or reason(best, ()), until)
    return change._replace(phase=change.phase._replace(waits=PERSON, gate=gate))


def _asked_first(parts: Parts, effect: Effect) -> Refused:
    run = short(effect.run)
    told = f"{effect.change.summary}: run {run} asked for it first"
    if has_ended(parts, effect.run):
        hint = f"`takeback undo {short(effect.id)}` withdraws that request; then ask again."
        return Refused(f"{told}, and has ended.", hint=hint, effect=effect.id)
    hint = f"The program of run {run} has to continue it. If its process is gone, `takeback recover` ends it."
    return Refused(f"{told}.", hint=hint, effect=effect.id)


def waiting(effect: Effect) -> AwaitingApproval:
    plan = effect.plan
    return AwaitingApproval(
        f"{effect.change.summary} waits for a person: {plan}.",
        hint=f"Nothing was called yet. `takeback approve {short(effect.id)}` or `takeback deny {short(effect.id)}`; "
        f"then the program of run {short(effect.run)} asks for it again.",
        effect=effect.id,
        until=waits_until(effect),
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


def asked_by_rule(change: Change, ruling: Ruling) -> Change:
    """What is held already, with what a rule wants before it is applied."""
    from takeback.engine.ruling import noted

    change = noted(change, ruling)
    if ruling.answer is not PolicyAnswer.ASK or change.phase.gate:
        return change
    return change._replace(phase=change.phase._replace(gate=Approvable("it can be taken back afterwards")))
