"""The word of a person on what cannot be taken back, or only by hand: who decides, on exactly what, and once."""

import hashlib
from typing import Any, NamedTuple, Protocol

from takeback.adapters.protocol import traits_of
from takeback.engine.parts import Parts
from takeback.errors import ApprovalExpired, Denied, RecordInvalid, Refused
from takeback.model.change import Change, intent
from takeback.model.effect import Effect, State, waits_for_approval
from takeback.model.functions import as_json
from takeback.model.ids import short
from takeback.model.person import Person, person_recorded, recorded
from takeback.model.record import Draft, Kind, canonical
from takeback.model.remedy import Strategy
from takeback.model.run import UNFINISHED, Lease, OnDeath, RunState
from takeback.storage.protocols import Journal, Leases, Query

ACCEPTED = "A person decided to leave it so."


def refuse_unsettleable(effect: Effect) -> None:
    name = short(effect.id)
    if effect.state not in (State.STUCK, State.INTENDED):
        raise Refused(
            f"Effect {name} is {effect.state.value}, so there is nothing in doubt about it.",
            hint=f"`takeback show {name}` shows its state.",
            effect=effect.id,
        )
    if not traits_of(effect.change).calls:
        raise Refused(
            f"takeback can see whether effect {name} happened, so it need not be settled by hand.",
            hint=f"`takeback recover` looks again; `takeback undo {name}` takes back what happened of it.",
            effect=effect.id,
        )


def settle(parts: Parts, lease: Lease, effect: Effect, happened: bool, receipt: Any, person: Person) -> None:
    """Recorded with the person who said it. Looked at again under the lease: it may have been settled in between."""
    (effect,) = parts.journal.effects(Query(ids=(effect.id,)))
    refuse_unsettleable(effect)
    kind, what = (Kind.DONE, "it happened") if happened else (Kind.ABORT, "it did not happen")
    body: dict[str, Any] = {"why": f"{person.in_words()} says that {what}.", **recorded(person)}
    if happened and receipt is not None:
        body["receipt"] = {"result": as_json(receipt, "The receipt")}
    parts.journal.append(lease, [Draft(kind, effect.run, effect.id, body)])
    if effect.is_undo and not happened:
        # It stays as it is: an undo of the run must not try again and again.
        (of,) = parts.journal.effects(Query(ids=(effect.undoes,)))
        if of.state is State.DONE and not of.accepted:
            parts.journal.append(None, [Draft(Kind.ACCEPT, of.run, of.id, {"why": ACCEPTED})])


class Books(Protocol):
    """What a proposal is looked up in. Code that only reports has nothing more."""

    @property
    def journal(self) -> Journal: ...

    @property
    def leases(self) -> Leases: ...


class Decision(NamedTuple):
    approved: bool
    by: Person
    at: int
    digest: str
    why: str = ""
    seq: int = 0  # of its record


def digest_of(change: Change) -> str:
    """What an approval is for: exactly this, and the way back that was shown with it."""
    plan = change.phase.gate.plan if change.phase.gate else ""
    return hashlib.sha256(canonical([intent(change), plan])).hexdigest()


def has_ended(books: Books, run: str) -> bool:
    return all(info.state not in UNFINISHED for info in books.journal.runs((run,)))


def waits_until(effect: Effect, patience: int = 0) -> int:
    """When silence means no, microseconds since 1970; 0: never. `patience` is for proposals that do not say it."""
    gate = effect.phase.gate
    return (gate and gate.until) or (effect.at + patience if patience else 0)


def why_never(books: Books, effect: Effect, now: int) -> str:
    """Why it can no longer be decided on, or is never asked for again; "" while it can."""
    info = next(iter(books.journal.runs((effect.run,))), None)
    if info is None or info.state not in UNFINISHED:
        return f"its run {short(effect.run)} has ended"
    if (until := waits_until(effect)) and now > until and not decision_on(books, effect):
        return "it was not approved in time"
    goes_on = info.state is RunState.SUSPENDED or info.on_death in (OnDeath.LEAVE, OnDeath.RESUME)
    if goes_on or not books.leases.free(info.id, now):
        return ""
    return f"the process of its run {short(effect.run)} is gone"


def challenge(effect: Effect) -> str:
    """What has to be typed: the way back that there is not."""
    if effect.remedy and effect.remedy.strategy is Strategy.IRREVERSIBLE:
        return "cannot be undone"
    return "by hand"


def refuse_undecidable(books: Books, effect: Effect, now: int) -> None:
    if not waits_for_approval(effect):
        why = f": {effect.note}" if effect.state is State.ABORTED and effect.note else "."
        raise Refused(
            f"Effect {short(effect.id)} is {effect.state.value} and does not wait for an approval{why}",
            hint="`takeback pending` lists what does.",
            effect=effect.id,
        )
    if decision := decision_on(books, effect):
        raise _decided(effect, decision)
    if (until := waits_until(effect)) and now > until:
        raise ApprovalExpired(
            f"Effect {short(effect.id)} was not approved in time, and silence means no.",
            hint="Nothing was called, and nothing will be: its run learns it when it asks again.",
            effect=effect.id,
        )
    if never := why_never(books, effect, now):
        name = short(effect.id)
        ended = has_ended(books, effect.run)
        drop = f"undo {name}` drops it" if ended else "recover` gives it up with its run"
        raise Refused(
            f"Effect {name} cannot be decided on: {never}, so it will not be asked for again.",
            hint=f"Nothing was called, and nothing will be. `takeback {drop}.",
            effect=effect.id,
        )


def _decided(effect: Effect, decision: Decision) -> Refused:
    return Refused(
        f"Effect {short(effect.id)} was decided on already: {in_words(decision)}",
        hint="A proposal is decided on once. After a no it can be asked for again, as another proposal.",
        effect=effect.id,
    )


def decide(
    books: Books, effect: Effect, approved: bool, by: Person, answer: str, why: str = "", *, now: int
) -> None:
    """Recorded with the exact proposal. No lease is needed: the run that asked may be waiting."""
    refuse_undecidable(books, effect, now)
    if effect.agent and effect.agent in (by.remark, by.name):
        raise Denied(
            f"{effect.agent} asked for it and cannot approve it.",
            hint="Someone else has to.",
            effect=effect.id,
        )
    if approved and answer.strip().lower() != challenge(effect):
        raise Refused(
            f"{effect.change.summary}: {effect.plan}. The answer does not say that.",
            hint=f'Say that you know: --answer "{challenge(effect)}".',
            effect=effect.id,
        )
    body: dict[str, Any] = {"approved": approved, **recorded(by), "digest": digest_of(effect.change)}
    if why:
        body["reason"] = why
    try:
        (record,) = books.journal.append(None, [Draft(Kind.DECIDE, effect.run, effect.id, body)])
    except RecordInvalid:
        # Its run has ended in this very moment, or someone dropped it.
        (fresh,) = books.journal.effects(Query(ids=(effect.id,)))
        refuse_undecidable(books, fresh, now)
        raise
    # Of two who decide at once the first has decided.
    if (decision := decision_on(books, effect)) and decision.seq != record.seq:
        raise _decided(effect, decision)


def decision_on(books: Books, effect: Effect) -> Decision | None:
    for record in books.journal.records(kinds=(Kind.DECIDE,), effect=effect.id):
        body, why = record.body, record.body.get("reason", "")
        return Decision(body["approved"], person_recorded(body), record.at, body["digest"], why, record.seq)
    return None


def in_words(decision: Decision) -> str:
    return f"{decision.by.in_words()} said {'yes' if decision.approved else 'no'}. {decision.why}".strip()


class Proposal(NamedTuple):
    """What needs an approval, until its run makes it or ends."""

    effect: Effect
    decision: Decision | None
    never: str  # why its run does not ask for it again

    @property
    def word(self) -> str:
        """How it stands."""
        if self.never:
            return "not called"
        if self.decision is None:
            return "waiting for approval"
        return "approved" if self.decision.approved else "denied"


def proposals(books: Books, now: int) -> tuple[Proposal, ...]:
    found = list(books.journal.effects(Query(states=(State.PROPOSED,))))
    return tuple(as_it_stands(books, one, now) for one in found if waits_for_approval(one))


def as_it_stands(books: Books, effect: Effect, now: int) -> Proposal:
    return Proposal(effect, decision_on(books, effect), why_never(books, effect, now))
