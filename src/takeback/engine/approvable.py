"""What a person is asked to approve: exactly which change, on which state, with which way back, until when."""

import hashlib
from typing import Any

from takeback.adapters.protocol import Assessment
from takeback.model.boot_clock import boot_id, since_boot
from takeback.model.change import Approvable, intent
from takeback.model.effect import Effect
from takeback.model.ids import new_id
from takeback.model.person import Account
from takeback.model.record import canonical
from takeback.model.remedy import Offer, Remedy, Strategy, is_gated, ordered, reason
from takeback.model.ruling import PolicyAnswer, Ruling

# Of a state: by what it is recognised quickly. A file with the same content, mode and owner is the same to a person.
_EVIDENCE = ("ctime", "mtime", "dev", "ino", "nlink")
_CODE = 4  # characters of the digest in the words that are typed


def asks_a_person(assessment: Assessment, ruling: Ruling) -> bool:
    return ruling.answer is PolicyAnswer.ASK or is_gated(assessment.offers)


def approvable(
    assessment: Assessment, ruling: Ruling, account: Account, at: int, patience: int
) -> Approvable:
    """All that is asked but the state, which is known once it is captured. In microseconds."""
    plan, final = plan_of(assessment.offers), is_gated(assessment.offers)
    return asked_for(plan, final, ruling, account, at, patience)


def asked_for(
    plan: str, is_final: bool, ruling: Ruling, account: Account, at: int, patience: int
) -> Approvable:
    """`is_final`: it cannot be undone, or only by hand."""
    asks = ruling.asks
    waits = asks.seconds * 1_000_000 or patience
    return Approvable(
        plan=plan,
        until=at + waits if waits else 0,
        nonce=new_id(),
        people=max(1, asks.people),
        of=tuple(asks.of),
        words=asks.challenge or is_final,
        rule=ruling.rule,
        machine=account.machine,
        uid=account.uid,
        role=account.role,
        boot=boot_id(),
        since=since_boot(),
    )


def plan_of(offers: tuple[Offer, ...]) -> str:
    """The way back in words; where there is none, or none that we could go, why."""
    if is_gated(offers):
        return offers[0].residue
    best = ordered(offers)[0]
    return reason(best, ()) + (f"; it leaves: {best.residue}" if best.residue else "")


def state_of(effect: Effect, remedy: Remedy | None) -> str:
    """The state of the targets before the change, as a digest. What a call of a function changes is not seen."""
    targets = remedy.targets if remedy else ()
    found = [
        [one.resource.replace(effect.id, ""), {k: v for k, v in one.before.items() if k not in _EVIDENCE}]
        for one in targets
    ]
    return hashlib.sha256(canonical(found)).hexdigest()


def request(effect: Effect) -> dict[str, Any]:
    """All that an approval is for. It is the same each time it is asked for, and different for anything else."""
    gate = effect.phase.gate or Approvable("")
    return {
        "takeback": "approval 1",
        "id": effect.id,
        "run": effect.run,
        "agent": effect.agent,
        "summary": effect.change.summary,
        "change": intent(effect.change),
        "plan": gate.plan,
        "state": gate.state,
        "people": gate.people,
        "of": list(gate.of),
        "rule": gate.rule,
        "until": gate.until,
        "nonce": gate.nonce,
    }


def digest_of(effect: Effect) -> str:
    return hashlib.sha256(canonical(request(effect))).hexdigest()


def challenge(effect: Effect) -> str:
    """The words that have to be typed, made of what is shown; "" where none are asked for."""
    gate = effect.phase.gate
    if gate is None or not (gate.words or not gate.nonce):  # an older proposal always asks for them
        return ""
    strategy = effect.remedy.strategy if effect.remedy else None
    means = {Strategy.IRREVERSIBLE: "cannot be undone", Strategy.MANUAL: "by hand"}.get(
        strategy or Strategy.SNAPSHOT, "yes"
    )
    named = effect.change.args.get("action", "") or effect.change.kind
    name = str(named).rpartition(":")[2]
    return f"{name} {means} {digest_of(effect)[:_CODE]}"


def says_the_words(effect: Effect, answer: str) -> bool:
    return answer.lower().split() == challenge(effect).lower().split()


def waits_until(effect: Effect, patience: int = 0) -> int:
    """When silence means no, microseconds since 1970; 0: never. `patience` is for proposals that do not say it."""
    gate = effect.phase.gate
    return (gate and gate.until) or (effect.at + patience if patience else 0)


def is_over(effect: Effect, now: int, newest: int = 0, patience: int = 0) -> bool:
    """Whether its time is over. The clock may be set back: then the newest record, and the clock since the machine
    started, still say so. Set forward it is over early, and silence means no."""
    until, gate = waits_until(effect, patience), effect.phase.gate
    if not until:
        return False
    if max(now, newest) > until:
        return True
    if gate is None or not gate.since or gate.boot != boot_id():
        return False
    return since_boot() - gate.since > until - effect.at
