"""The word of people on what needs an approval: who decides, on exactly what, and once."""

from typing import Any, NamedTuple, Protocol

from takeback.adapters.protocol import traits_of
from takeback.engine.approvable import challenge, digest_of, is_over, request, says_the_words, waits_until
from takeback.engine.parts import Parts
from takeback.errors import ApprovalExpired, Denied, RecordInvalid, Refused
from takeback.model.approver import NOBODY, People
from takeback.model.change import Approvable
from takeback.model.effect import Effect, State, applied_once_approved, waits_for_approval
from takeback.model.functions import as_json
from takeback.model.ids import short
from takeback.model.person import KnownBy, Person, person_recorded, recorded
from takeback.model.record import Draft, Kind
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
    """What one person said."""

    approved: bool
    by: Person
    at: int
    digest: str
    why: str = ""
    seq: int = 0  # of its record
    signature: str = ""  # over the request, where a key was used
    key: str = ""


def decisions(books: Books, effect: Effect) -> tuple[Decision, ...]:
    """What people said on it, oldest first."""
    found: list[Decision] = []
    for record in books.journal.records(kinds=(Kind.DECIDE,), effect=effect.id):
        body = record.body
        found.append(
            Decision(
                body["approved"], person_recorded(body), record.at, body["digest"], body.get("reason", ""),
                record.seq, body.get("signature", ""), body.get("key", ""),
            )
        )  # fmt: skip
    return tuple(found)


def decision_on(books: Books, effect: Effect) -> Decision | None:
    """How it was decided: a no of anyone, or the yes that was the last one needed. None while people are missing."""
    people = (effect.phase.gate or Approvable("")).people
    said_yes = dict[str, Decision]()
    for one in decisions(books, effect):
        if not one.approved:
            return one
        if one.by.name not in said_yes:
            said_yes[one.by.name] = one
            if len(said_yes) >= people:
                return one._replace(by=one.by._replace(name=" and ".join(said_yes)))
    return None


def in_words(decision: Decision) -> str:
    return f"{decision.by.in_words()} said {'yes' if decision.approved else 'no'}. {decision.why}".strip()


def has_ended(books: Books, run: str) -> bool:
    return all(info.state not in UNFINISHED for info in books.journal.runs((run,)))


def last_known(books: Books) -> int:
    """When the newest record was written: time cannot have been later then than it is now."""
    newest = books.journal.newest()
    return max((one.at for one in books.journal.records(after=newest - 1)), default=0)


def why_never(books: Books, effect: Effect, now: int) -> str:
    """Why it can no longer be decided on, or is never asked for again; "" while it can."""
    info = next(iter(books.journal.runs((effect.run,))), None)
    if applied_once_approved(effect):
        late = is_over(effect, now, last_known(books)) and not decision_on(books, effect)
        return "it was not approved in time" if late else ""
    if info is None or info.state not in UNFINISHED:
        return f"its run {short(effect.run)} has ended"
    if is_over(effect, now, last_known(books)) and not decision_on(books, effect):
        return "it was not approved in time"
    goes_on = info.state is RunState.SUSPENDED or info.on_death in (OnDeath.LEAVE, OnDeath.RESUME)
    if goes_on or not books.leases.free(info.id, now):
        return ""
    return f"the process of its run {short(effect.run)} is gone"


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
    if is_over(effect, now, last_known(books)):
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


class Signed(NamedTuple):
    """What a key holder signed, as it is recorded."""

    signature: str
    key: str


def decide(
    books: Books,
    effect: Effect,
    approved: bool,
    by: Person,
    answer: str,
    why: str = "",
    *,
    now: int,
    people: People = NOBODY,
    signed: Signed | None = None,
) -> None:
    """Recorded with the exact proposal. No lease is needed: the run that asked may be waiting."""
    refuse_undecidable(books, effect, now)
    by = people.named(by)
    if effect.agent and effect.agent in (by.remark, by.name):
        raise Denied(
            f"{effect.agent} asked for it and cannot approve it.",
            hint="Someone else has to.",
            effect=effect.id,
        )
    if approved:
        _refuse_person(effect, by, people)
        for one in decisions(books, effect):
            if one.by.name == by.name:
                raise Refused(
                    f"{by.name} has approved effect {short(effect.id)} already, and counts once.",
                    hint=f"{_people(effect)} people have to.",
                    effect=effect.id,
                )
        if challenge(effect) and not says_the_words(effect, answer):
            raise Refused(
                f"{effect.change.summary}: {effect.plan}. The answer does not say that.",
                hint=f'Say that you know: --answer "{challenge(effect)}".',
                effect=effect.id,
            )
    body: dict[str, Any] = {"approved": approved, **recorded(by), "digest": digest_of(effect)}
    if why:
        body["reason"] = why
    if signed:
        body |= {"signature": signed.signature, "key": signed.key}
    try:
        (record,) = books.journal.append(None, [Draft(Kind.DECIDE, effect.run, effect.id, body)])
    except RecordInvalid:
        # Its run has ended in this very moment, or someone dropped it.
        (fresh,) = books.journal.effects(Query(ids=(effect.id,)))
        refuse_undecidable(books, fresh, now)
        raise
    # Of two who decide at once the first has decided.
    if (decision := decision_on(books, effect)) and decision.seq < record.seq:
        raise _decided(effect, decision)


def _people(effect: Effect) -> int:
    return effect.phase.gate.people if effect.phase.gate else 1


def _refuse_person(effect: Effect, by: Person, people: People) -> None:
    """People who may not approve this."""
    gate = effect.phase.gate or Approvable("")
    several = gate.people > 1
    if gate.of and by.name not in gate.of:
        raise Denied(
            f"{by.in_words()} is not asked: effect {short(effect.id)} needs {_listed(gate)}.",
            hint="Names are those of [approvers] in the configuration, or of accounts.",
            effect=effect.id,
        )
    if by.known_by is KnownBy.HOST and (several or gate.words or people.proven):
        raise Denied(
            f"Effect {short(effect.id)} needs a person that takeback knows, not the word of the agent's host.",
            hint=f"`takeback approve {short(effect.id)}` in a terminal that no agent started.",
            effect=effect.id,
        )
    if by.is_proven:
        return
    if several or people.proven:
        wanted = f"{gate.people} people" if several else "every approval"
        raise Denied(
            f"{by.name or 'This process'} is not proven to be another user than the agent ({by.detail}), and "
            f"{wanted} must be.",
            hint="Approve with a key (--key), as another user, or at the console. `takeback approver --help` "
            "shows how a key is made.",
            effect=effect.id,
        )


def _listed(gate: Approvable) -> str:
    return f"{gate.people} of {', '.join(gate.of)}" if gate.people > 1 else " or ".join(gate.of)


def asked_in_words(effect: Effect) -> str:
    """Who is asked, for the agent that waits."""
    gate = effect.phase.gate or Approvable("")
    if gate.of:
        return _listed(gate)
    return f"{gate.people} people" if gate.people > 1 else "a person"


class Proposal(NamedTuple):
    """What needs an approval, until its run makes it or ends."""

    effect: Effect
    decision: Decision | None
    never: str  # why its run does not ask for it again
    said_yes: tuple[Decision, ...] = ()  # while further people are missing

    @property
    def word(self) -> str:
        """How it stands."""
        if self.never:
            return "not called"
        if self.decision is None:
            return "waiting for approval"
        return "approved" if self.decision.approved else "denied"

    @property
    def people(self) -> int:
        """How many must say yes."""
        return _people(self.effect)

    @property
    def challenge(self) -> str:
        """The words that have to be typed; "" for none."""
        return challenge(self.effect)

    @property
    def request(self) -> dict[str, Any]:
        """All that an approval is for."""
        return request(self.effect)

    @property
    def digest(self) -> str:
        return digest_of(self.effect)

    @property
    def until(self) -> int:
        return waits_until(self.effect)

    @property
    def asked(self) -> str:
        """Who is asked, in words."""
        return asked_in_words(self.effect)


def proposals(books: Books, now: int) -> tuple[Proposal, ...]:
    found = list(books.journal.effects(Query(states=(State.PROPOSED,))))
    return tuple(as_it_stands(books, one, now) for one in found if waits_for_approval(one))


def as_it_stands(books: Books, effect: Effect, now: int) -> Proposal:
    decision = decision_on(books, effect)
    said = () if decision else decisions(books, effect)
    return Proposal(effect, decision, why_never(books, effect, now), said)
