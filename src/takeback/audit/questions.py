"""What auditors ask, answered from the records: who did what on what, by whose leave, and what became of it."""

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from takeback.adapters.protocol import traits_of
from takeback.audit.views import effect_json, iso
from takeback.engine.approvable import digest_of
from takeback.engine.ladder import Rung
from takeback.model.change import OnConflict
from takeback.model.effect import Effect, State, from_intent
from takeback.model.person import person_recorded
from takeback.model.record import STORE, Kind, Record
from takeback.model.run import RunInfo
from takeback.policy.secrets import masked_json
from takeback.storage.protocols import Query
from takeback.storage.store import Store

_RAN = (State.INTENDED, State.DONE, State.UNDONE, State.STUCK)  # it was begun, whatever became of it
_ASKS = "ask"  # the answer of a policy that needs a person


class Approval(NamedTuple):
    approved: bool
    by: str
    known_by: str  # how it is known that it was this person
    detail: str
    remark: str
    at: int
    why: str
    fits: bool  # what was approved is exactly what was recorded as asked for
    seq: int
    key: str = ""  # with which it was signed


class Story(NamedTuple):
    """One effect with all that was recorded of it."""

    effect: Effect
    run: RunInfo | None
    records: tuple[Record, ...]
    identity: dict[str, Any]  # who it was, as far as the host told: agent, session, model

    @property
    def proposed(self) -> Effect:
        """As the people saw it who approved it."""
        first = next((one for one in self.records if one.kind is Kind.PROPOSE), None)
        return from_intent(first, self.effect.agent, State.PROPOSED) if first else self.effect

    @property
    def approvals(self) -> tuple[Approval, ...]:
        wanted = digest_of(self.proposed)
        return tuple(_approval(one, wanted) for one in self.records if one.kind is Kind.DECIDE)

    @property
    def rule(self) -> dict[str, Any]:
        """The ruling of the policy, as it was recorded with the change; empty where none decided."""
        for record in self.records:
            if ruling := record.body.get("ruling") or record.body.get("args", {}).get("ruling"):
                return dict(ruling)
        gate = self.proposed.phase.gate
        return {"rule": gate.rule, "answer": _ASKS} if gate and gate.rule else {}

    @property
    def needed_approval(self) -> bool:
        return self.proposed.phase.gate is not None or self.rule.get("answer") == _ASKS

    @property
    def ran(self) -> bool:
        return self.effect.state in _RAN

    @property
    def missing_approval(self) -> str:
        """Why it ran without the approval that it needed; "" if it did not."""
        if not self.needed_approval or not self.ran:
            return ""
        began = next((one.seq for one in self.records if one.kind is Kind.INTENT), 0)
        before = [one for one in self.approvals if not began or one.seq < began]
        if not before:
            return "no decision was recorded before it ran"
        if not before[0].approved:
            return f"{before[0].by} said no"
        people = {one.by for one in before if one.approved and one.fits}
        if not before[0].fits:
            return "what ran is not what was approved"
        gate = self.proposed.phase.gate
        asks: dict[str, Any] = self.rule.get("asks") or {}
        wanted = max(gate.people if gate else 1, int(asks.get("people", 1) or 1))
        return f"{len(people)} of {wanted} people approved it" if len(people) < wanted else ""

    @property
    def verified(self) -> str:
        """How it is known that it holds."""
        done = next((one for one in reversed(self.records) if one.kind is Kind.DONE), None)
        if done is None:
            return ""
        if done.body.get("by"):
            return f"{done.body['by']} said so"
        if traits_of(self.effect.change).calls:
            return "the function returned; if it has a verify function, that found it"
        return "takeback read the target again, and it was as asked for"

    @property
    def doubts(self) -> tuple[Record, ...]:
        return tuple(one for one in self.records if one.kind is Kind.STICK)

    @property
    def resolution(self) -> str:
        """Of one whose outcome was unknown; "" while it is."""
        if self.effect.state in (State.STUCK, State.INTENDED):
            return ""
        for record in reversed(self.records):
            if record.kind in (Kind.DONE, Kind.ABORT):
                said = record.body.get("why") or (
                    "it happened" if record.kind is Kind.DONE else "it did not happen"
                )
                return f"{said} ({iso(record.at)})"
        return self.effect.state.value


def _approval(record: Record, wanted: str) -> Approval:
    body, person = record.body, person_recorded(record.body)
    return Approval(
        bool(body.get("approved")), person.name, person.known_by.value, person.detail, person.remark, record.at,
        body.get("reason", ""), body.get("digest") == wanted, record.seq, body.get("key", ""),
    )  # fmt: skip


_TOLD_BY_HOSTS = ("host", "model", "version", "session", "call", "tool", "user", "process", "credential")


def story_of(store: Store, effect: Effect) -> Story:
    records = tuple(store.journal.records(effect=effect.id))
    run = next(iter(store.journal.runs((effect.run,))), None)
    opened = next(store.journal.records(run=effect.run, kinds=(Kind.OPEN,)), None)
    told = {**(opened.body if opened else {}), **effect.change.args}
    identity = {name: told[name] for name in _TOLD_BY_HOSTS if told.get(name)}
    return Story(effect, run, records, identity)


def story_json(story: Story) -> dict[str, Any]:
    """With what is secret in it masked."""
    effect = story.effect
    told: dict[str, Any] = {
        **effect_json(effect),
        "run_name": story.run.name if story.run else None,
        "identity": {"agent": effect.agent, **story.identity},
        "approval_needed": story.needed_approval,
        "approvals": [one._asdict() | {"at": iso(one.at)} for one in story.approvals],
        "missing_approval": story.missing_approval or None,
        "shown": effect.plan or None,
        "rule": story.rule or None,
        "verified": story.verified or None,
        "resolution": story.resolution if story.doubts else None,
        "records": [
            {"seq": one.seq, "kind": one.kind.value, "at": iso(one.at), "hash": one.hash.hex()}
            for one in story.records
        ],
    }
    return masked_json(told)


# Question 1: everything on a resource, in a time, by an agent or a person.


class ActionFilter(NamedTuple):
    resource: str = ""
    run: str = ""
    agent: str = ""
    person: str = ""
    since: int = 0
    until: int = 0


def actions(store: Store, asked: ActionFilter) -> Iterator[Story]:
    """Oldest first."""
    named = _decided_by(store, asked.person) if asked.person else None
    query = Query(resource=asked.resource, run=asked.run, agent=asked.agent, ids=tuple(named or ()))
    if named is not None and not named:
        return
    for effect in store.journal.effects(query):
        if effect.at >= asked.since and (not asked.until or effect.at <= asked.until):
            yield story_of(store, effect)


def _decided_by(store: Store, person: str) -> list[str]:
    """Effects on which this person decided, or of which they told what became of it."""
    kinds = (Kind.DECIDE, Kind.DONE, Kind.ABORT, Kind.ACCEPT)
    records = store.journal.records(kinds=kinds)
    return list(dict.fromkeys(one.effect for one in records if one.body.get("by") == person))


# Question 3: what needed an approval, and what ran without.


class Population(NamedTuple):
    needed: int
    ran: int
    exceptions: tuple[Story, ...]


def approvals(store: Store, since: int = 0, until: int = 0) -> Population:
    needed = ran = 0
    exceptions: list[Story] = []
    for effect in _that_asked(store):
        if effect.at < since or (until and effect.at > until):
            continue
        story = story_of(store, effect)
        if not story.needed_approval:
            continue
        needed += 1
        ran += story.ran
        if story.missing_approval:
            exceptions.append(story)
    return Population(needed, ran, tuple(exceptions))


def _that_asked(store: Store) -> Iterator[Effect]:
    """Of the effects those that a person had to approve, by their records."""
    seen: set[str] = set()
    for record in store.journal.records(kinds=(Kind.PROPOSE, Kind.INTENT)):
        args: dict[str, Any] = record.body.get("args", {})
        ruling: dict[str, Any] = record.body.get("ruling") or args.get("ruling") or {}
        if record.effect not in seen and ("gate" in args or ruling.get("answer") == _ASKS):
            seen.add(record.effect)
            yield from store.journal.effects(Query(ids=(record.effect,)))


# Question 4: what was undone.


class Undo(NamedTuple):
    undo: Effect
    of: Effect | None
    run: RunInfo | None
    verified: str
    residue: str


def undone(store: Store, since: int = 0, until: int = 0) -> Iterator[Undo]:
    for effect in store.journal.effects(Query(undos=True)):
        if effect.at < since or (until and effect.at > until):
            continue
        story = story_of(store, effect)
        of = next(iter(store.journal.effects(Query(ids=(effect.undoes,)))), None)
        remedy = of.remedy if of else None
        residue = remedy.residue if remedy and (remedy.residue or not remedy.exact) else ""
        yield Undo(effect, of, story.run, story.verified, residue)


def undo_json(one: Undo) -> dict[str, Any]:
    return {
        "undo": one.undo.id,
        "of": one.of.id if one.of else one.undo.undoes,
        "summary": one.of.change.summary if one.of else one.undo.change.summary,
        "at": iso(one.undo.at),
        "by": one.undo.agent,
        "run": one.run.name if one.run else one.undo.run,
        "state": one.undo.state.value,
        "why": one.undo.change.undo.why or None,
        "verified": one.verified or None,
        "residue": one.residue or None,
        "forced": one.undo.change.undo.on_conflict is OnConflict.FORCE,
    }


# Question 5: unknown outcomes.


def unknown(store: Store) -> Iterator[Story]:
    ids = dict.fromkeys(one.effect for one in store.journal.records(kinds=(Kind.STICK,)))
    ids |= dict.fromkeys(one.id for one in store.journal.effects(Query(states=(State.STUCK, State.INTENDED))))
    for effect in store.journal.effects(Query(ids=tuple(ids))) if ids else ():
        yield story_of(store, effect)


# Questions 7, 11 and 12, and what else was said of the store.


def of_store(store: Store, *kinds: Kind) -> tuple[Record, ...]:
    return tuple(store.journal.records(run=STORE, kinds=kinds))


def policies(store: Store, at: int = 0) -> tuple[Record, ...]:
    """The policies that came into force, oldest first; with `at`, a position, only the one in force there."""
    found = of_store(store, Kind.POLICY)
    before = [one for one in found if one.seq <= at]
    return tuple(before[-1:]) if at else found


class GlassBroken(NamedTuple):
    """A rule was passed by, on someone's word."""

    what: str
    by: str
    at: int
    about: str
    seq: int


_BY_HAND = {
    Kind.LIFT: "a stop was lifted",
    Kind.TRUST: "a file of a project was trusted",
    Kind.REDACT: "content was erased",
}


def break_glass(store: Store) -> Iterator[GlassBroken]:
    for record in of_store(store, *_BY_HAND):
        about = str(record.body.get("agent") or record.body.get("path") or record.body.get("why") or "")
        yield GlassBroken(_BY_HAND[record.kind], str(record.body.get("by", "")), record.at, about, record.seq)
    for record in of_store(store, Kind.CLIMB):
        if record.body.get("rung") == Rung.RESIDUE:
            said = str(record.body.get("why", ""))
            yield GlassBroken(
                "residue was accepted", str(record.body.get("by", "")), record.at, said, record.seq
            )
    for record in store.journal.records(kinds=(Kind.DONE, Kind.ABORT)):
        if record.body.get("by"):
            about = f"{record.effect}: {record.body.get('why', '')}"
            yield GlassBroken(
                "an outcome was settled by word", record.body["by"], record.at, about, record.seq
            )
    for effect in store.journal.effects(Query(undos=True)):
        if effect.change.undo.on_conflict is OnConflict.FORCE:
            what = "an undo was forced over later changes"
            yield GlassBroken(
                what, effect.agent, effect.at, f"{effect.undoes}: {effect.change.summary}", effect.seq
            )


# Question 9: retention.


class Retention(NamedTuple):
    oldest: int  # microseconds since 1970; 0: no record
    records: int
    days: int  # as the setting says
    forgotten: dict[str, int]  # ways back that were given up, by rule
    erased: int  # drops that can no longer be applied
    redacted: int


def retention(store: Store) -> Retention:
    rows = store.read("SELECT min(at), count(*) FROM records")
    forgotten: dict[str, int] = {}
    for record in store.journal.records(kinds=(Kind.FORGET,)):
        rule = str(record.body.get("bound") or record.body.get("why") or "by name")
        forgotten[rule] = forgotten.get(rule, 0) + 1
    erased = store.read("SELECT count(*) FROM records WHERE kind = 'erase'")[0][0]
    redacted = len(of_store(store, Kind.REDACT))
    return Retention(rows[0][0] or 0, rows[0][1], store.settings.audit_days, forgotten, erased, redacted)


# Question 10: a sample.


def sample(store: Store, count: int, seed: str) -> tuple[Story, ...]:
    """The same for the same seed and journal. Undos are part of the population."""
    ids = [one for (one,) in store.read("SELECT id FROM effects ORDER BY seq")]
    chosen = sorted(random.Random(seed).sample(range(len(ids)), min(count, len(ids))))
    wanted = [ids[one] for one in chosen]
    found = store.journal.effects(Query(ids=tuple(wanted))) if wanted else ()
    return tuple(story_of(store, effect) for effect in found)


def as_of(records: Sequence[Record]) -> list[dict[str, Any]]:
    """What was recorded of the store, as it was."""
    return [{"seq": one.seq, "kind": one.kind.value, "at": iso(one.at), **one.body} for one in records]
