"""Before something that cannot be taken back, or only by hand: a person says yes to exactly that."""

import hashlib
from typing import Any, NamedTuple

from takeback.adapters.protocol import Adapter, Assessment
from takeback.engine.do import Terms, draft, prepared, proposed
from takeback.engine.parts import Parts
from takeback.engine.settle import abort
from takeback.errors import ApprovalExpired, AwaitingApproval, Denied, Misuse, Refused
from takeback.model.change import Change, intent
from takeback.model.effect import GATE, PERSON, Effect, waits_for_approval
from takeback.model.ids import short
from takeback.model.record import Draft, Kind, canonical
from takeback.model.remedy import Strategy
from takeback.model.run import Lease


class Decision(NamedTuple):
    approved: bool
    by: str
    at: int
    digest: str
    why: str = ""


def digest_of(change: Change) -> str:
    """What an approval is for: exactly this, and the way back that was shown with it."""
    gate: dict[str, Any] = change.args.get(GATE, {})
    return hashlib.sha256(canonical([intent(change), gate.get("plan", "")])).hexdigest()


def passed(
    parts: Parts, lease: Lease, adapter: Adapter, change: Change, terms: Terms, assessment: Assessment,
    earlier: Effect | None,
) -> Effect:  # fmt: skip
    """The proposal, when a person has approved it; `AwaitingApproval` until then."""
    if earlier is None:
        raise _waiting(_proposal(parts, lease, adapter, change, terms, assessment))
    if earlier.run != lease.run:
        raise Refused(
            f"{earlier.change.summary}: run {short(earlier.run)} asked for it first.",
            hint=f"Go on with that run: tb.resume({short(earlier.run)!r}).",
            effect=earlier.id,
        )
    decision = decision_on(parts, earlier)
    if decision is None:
        if earlier.at < terms.asked_after:
            abort(parts, lease, adapter, earlier, "Nobody approved it in time, and silence means no.")
            raise ApprovalExpired(
                f"{earlier.change.summary}: nobody approved it in time, and silence means no.",
                hint="Nothing was called. Ask again if it is still wanted.",
                effect=earlier.id,
            )
        raise _waiting(earlier)
    if not decision.approved:
        why = f" {decision.why}" if decision.why else ""
        abort(parts, lease, adapter, earlier, f"{decision.by} said no.{why}")
        raise Denied(f"{earlier.change.summary}: {decision.by} said no.{why}", effect=earlier.id)
    if decision.digest != digest_of(earlier.change) or intent(earlier.change) != intent(change):
        raise Denied(
            f"{earlier.change.summary}: what was approved is not what is asked for now.",
            hint="Nothing was called. An approval is for exactly what was shown.",
            effect=earlier.id,
        )
    return earlier


def _proposal(
    parts: Parts, lease: Lease, adapter: Adapter, change: Change, terms: Terms, assessment: Assessment
) -> Effect:
    gate = {"plan": assessment.offers[0].residue}
    gated = change._replace(args={**change.args, "waits": PERSON, GATE: gate})
    effect = prepared(adapter, proposed(lease, gated, terms), assessment)
    (record,) = parts.journal.append(lease, [draft(Kind.PROPOSE, effect)])
    return effect._replace(seq=record.seq, told=record.seq, at=record.at)


def _waiting(effect: Effect) -> AwaitingApproval:
    plan = effect.change.args[GATE]["plan"]
    return AwaitingApproval(
        f"{effect.change.summary} waits for a person: {plan}.",
        hint=f"Nothing was called yet. `takeback approve {short(effect.id)}` or `takeback deny {short(effect.id)}`; "
        f"then the run asks for it again: tb.resume({short(effect.run)!r}) if it has let go.",
        effect=effect.id,
    )


def challenge(effect: Effect) -> str:
    """What has to be typed: the way back that there is not."""
    if effect.remedy and effect.remedy.strategy is Strategy.IRREVERSIBLE:
        return "cannot be undone"
    return "by hand"


def refuse_undecidable(parts: Parts, effect: Effect) -> None:
    if not waits_for_approval(effect):
        raise Refused(
            f"Effect {short(effect.id)} is {effect.state.value} and does not wait for an approval.",
            hint="`takeback pending` lists what does.",
            effect=effect.id,
        )
    if decision_on(parts, effect):
        raise Refused(
            f"Effect {short(effect.id)} was decided on already.",
            hint="A decision is made once.",
            effect=effect.id,
        )


def decide(parts: Parts, effect: Effect, approved: bool, by: str, answer: str, why: str = "") -> None:
    """Recorded, with what exactly it is for. Nobody's lease is needed: the run that asked may be waiting."""
    refuse_undecidable(parts, effect)
    if not by.strip():
        raise Misuse("An approval needs the name of who gives it.", hint='For example by="bea" (--by bea).')
    if effect.agent and by == effect.agent:
        raise Denied(
            f"{by} asked for it and cannot approve it.", hint="Someone else has to.", effect=effect.id
        )
    if approved and answer.strip().lower() != challenge(effect):
        raise Refused(
            f"{effect.change.summary}: {effect.change.args[GATE]['plan']}. The answer does not say that.",
            hint=f'Say that you know: answer="{challenge(effect)}" (--answer "{challenge(effect)}").',
            effect=effect.id,
        )
    body: dict[str, Any] = {"approved": approved, "by": by, "digest": digest_of(effect.change)}
    if why:
        body["reason"] = why
    parts.journal.append(None, [Draft(Kind.DECIDE, effect.run, effect.id, body)])


def decision_on(parts: Parts, effect: Effect) -> Decision | None:
    for record in parts.journal.records(kinds=(Kind.DECIDE,), effect=effect.id):
        body = record.body
        return Decision(body["approved"], body["by"], record.at, body["digest"], body.get("reason", ""))
    return None
