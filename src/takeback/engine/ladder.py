"""What is tried for an undo, or an effect, that is stuck: again, another way, a person, and what a person accepts.

Each rung is a record. A reset of the whole environment is proposed to a person in words, and never done by itself.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from takeback.adapters.protocol import Rester, traits_of
from takeback.engine.parts import Parts, adapter_of, whole
from takeback.errors import Refused
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.person import Person, recorded
from takeback.model.record import STORE, Draft, Kind
from takeback.model.run import Lease
from takeback.storage.protocols import Journal, Query

RETRIES = 3  # recorded; then a person is asked, and further ones are not recorded
RESET = "If nothing else helps, rebuild the target or restore it from a backup; takeback never does that by itself."


class Rung(StrEnum):
    """From the first to the last."""

    RETRY = "retry"  # the same way back, again
    OTHER = "another way"  # another way back, which a person chose: merge, force, skip
    PERSON = "person"  # nothing that takeback may do by itself is left
    RESIDUE = "accepted residue"  # a person accepts what is left


class Climb(NamedTuple):
    effect: str
    rung: Rung
    outcome: str  # "settled" | "stuck" | "asked" | "accepted"
    why: str = ""
    by: str = ""
    at: int = 0  # microseconds since 1970

    @property
    def words(self) -> str:
        by = f" by {self.by}" if self.by else ""
        return f"{self.rung.value}: {self.outcome}{by}{f': {self.why}' if self.why else ''}"


def climbs(journal: Journal, effects: Iterable[str]) -> tuple[Climb, ...]:
    """Of these effects, oldest first."""
    if not (wanted := frozenset(effects)):
        return ()
    found = (
        Climb(
            one.body["effect"],
            Rung(one.body["rung"]),
            one.body["outcome"],
            one.body.get("why", ""),
            one.body.get("by", ""),
            one.at,
        )
        for one in journal.records(run=STORE, kinds=(Kind.CLIMB,))
    )
    return tuple(one for one in found if one.effect in wanted)


def stuck_now(journal: Journal) -> tuple[str, ...]:
    return tuple(one.id for one in journal.effects(Query(states=(State.STUCK,))))


def retried(journal: Journal, before: Sequence[str]) -> None:
    """After recovery: what became of those that were stuck."""
    if not before:
        return
    earlier = climbs(journal, before)
    drafts: list[Draft] = []
    for effect in journal.effects(Query(ids=tuple(before), damaged_too=True)):
        mine = [one for one in earlier if one.effect == effect.id]
        if effect.state is not State.STUCK:
            drafts.append(_draft(effect.id, Rung.RETRY, "settled"))
            continue
        tries = sum(one.rung is Rung.RETRY for one in mine)
        if tries < RETRIES:
            drafts.append(_draft(effect.id, Rung.RETRY, "stuck", effect.note))
        if tries + 1 >= RETRIES and not any(one.rung is Rung.PERSON for one in mine):
            drafts.append(_draft(effect.id, Rung.PERSON, "asked", effect.note))
    if drafts:
        journal.append(None, drafts)


def chosen(journal: Journal, effects: Sequence[str], how: str, outcome: str) -> None:
    """A person had what was stuck taken back in another way."""
    drafts = [_draft(one, Rung.OTHER, outcome, how) for one in effects]
    if drafts:
        journal.append(None, drafts)


def _draft(effect: str, rung: Rung, outcome: str, why: str = "", **more: Any) -> Draft:
    return Draft(
        Kind.CLIMB, STORE, "", {"effect": effect, "rung": rung.value, "outcome": outcome, "why": why, **more}
    )


# The last rung.


def with_residue(parts: Parts, effect: Effect) -> Effect:
    """The one that is stuck: this one, or an undo of it. Refused where a person has to say something else first."""
    undos = parts.journal.effects(Query(undoing=(effect.id,), states=(State.STUCK,)))
    found = effect if effect.state is State.STUCK else next(undos, None)
    name = short(effect.id)
    if found is None:
        raise Refused(
            f"Effect {name} is {effect.state.value}, and no undo of it is stuck, so there is no residue to accept.",
            hint=f"`takeback accept {name}` says that a change stays.",
            effect=effect.id,
        )
    if traits_of(found.change).calls and not found.is_undo:
        raise Refused(
            f"It is not known whether effect {name} happened, so what it left cannot be accepted.",
            hint=f"Look, then `takeback settle {name} --happened` or `--did-not-happen`.",
            effect=effect.id,
        )
    return found


def accept_residue(parts: Parts, lease: Lease, effect: Effect, person: Person, why: str) -> None:
    """It stays as it is. An undo is given up, and what it was for is accepted with what is left of it; a change counts
    as made. The reason comes first: killed after it, the same can be said again."""
    parts.journal.append(None, [_draft(effect.id, Rung.RESIDUE, "accepted", why, **recorded(person))])
    (effect,) = parts.journal.effects(Query(ids=(effect.id,)))
    effect = whole(parts, effect)
    if effect.state is not State.STUCK:
        return  # settled in between
    adapter = adapter_of(parts, effect.change.adapter)
    if isinstance(adapter, Rester):
        adapter.rest(effect)
    adapter.tidy(effect)
    body: dict[str, Any] = {"why": f"{person.in_words()} accepts what is left: {why}", **recorded(person)}
    if not effect.is_undo:
        stays = Draft(Kind.ACCEPT, effect.run, effect.id, {"why": why})
        parts.journal.append(lease, [Draft(Kind.DONE, effect.run, effect.id, body), stays])
        return
    (of,) = parts.journal.effects(Query(ids=(effect.undoes,)))
    if of.state is State.DONE and not of.accepted:  # first, or its run would try once more
        parts.journal.append(None, [Draft(Kind.ACCEPT, of.run, of.id, {"why": why})])
    parts.journal.append(lease, [Draft(Kind.ABORT, effect.run, effect.id, {**body, "given_up": True})])
