"""Undo stuck effects on request of a person: they are settled first, and then undone like any other."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from takeback.adapters.protocol import Adapter, Rester
from takeback.engine.parts import Parts, adapter_of, whole
from takeback.model.effect import Effect, State
from takeback.model.plan import Outcome, Plan, Standing, UndoResult
from takeback.model.record import Draft, Kind
from takeback.model.remedy import Remedy, Target
from takeback.model.run import Lease, Owner
from takeback.storage.protocols import Query

GIVEN_UP = "It was stuck, and given up for another way back that a person chose."
MADE_IN_PART = "It was stuck, made in part; a person has it taken back."
NOTHING_OF_IT = "It was stuck, and nothing of it is there."


class Taker(NamedTuple):
    """Who takes the leases of the runs that stuck effects belong to."""

    owner: Owner
    now: int
    lasts: int


class Settling(NamedTuple):
    effect: Effect
    record: Kind
    why: str
    given_up: bool = False

    @property
    def body(self) -> dict[str, Any]:
        return {"why": self.why, "given_up": True} if self.given_up else {"why": self.why}


@contextmanager
def settled_first(
    parts: Parts, plan: Plan, stuck: Sequence[Settling], own: Lease, taker: Taker
) -> Iterator[tuple[Plan, dict[str, Remedy]]]:
    """Settle what is stuck, and hold its runs during the block. Yields the rest of the plan, and by effect what undos
    that were given up have taken back."""
    with _holding(parts, stuck, own, taker) as leases:
        yield _settled(parts, plan, stuck, leases)


def to_settle(plan: Plan) -> tuple[Settling, ...]:
    """Of an undo: what of it is stuck, and undos that got stuck before they could do the same."""
    wanted = {effect.id for effect in plan.effects}
    stuck = [
        Settling(effect, Kind.ABORT, GIVEN_UP, given_up=True)
        for effect in plan.stuck
        if effect.undoes in wanted and effect.id not in wanted
    ]
    for effect in plan.effects:
        if effect.state is State.STUCK:
            gone = all(one.outcome is Outcome.ALREADY for one in plan.targets if one.effect == effect.id)
            how = (Kind.ABORT, NOTHING_OF_IT) if gone else (Kind.DONE, MADE_IN_PART)
            stuck.append(Settling(effect, *how))
    return tuple(stuck)


@contextmanager
def _holding(parts: Parts, stuck: Sequence[Settling], own: Lease, taker: Taker) -> Iterator[dict[str, Lease]]:
    """Their runs with a lease each, so that no other process settles them until this is over."""
    leases = {own.run: own}
    with ExitStack() as stack:
        for run in sorted({one.effect.run for one in stuck} - {own.run}):
            leases[run] = parts.leases.acquire(run, *taker)
            stack.callback(parts.leases.release, leases[run])
        yield leases


def _settled(
    parts: Parts, plan: Plan, stuck: Sequence[Settling], leases: dict[str, Lease]
) -> tuple[Plan, dict[str, Remedy]]:
    """The effects left to undo, and by effect the parts that abandoned undos have taken back. The run of the undo was
    opened with what it is for, so recovery continues it after a crash at this point."""
    taken: dict[str, Remedy] = {}
    for one in stuck:
        # Looked at again under the lease: it may have been settled in between.
        (effect,) = parts.journal.effects(Query(ids=(one.effect.id,)))
        if effect.state is not State.STUCK:
            continue
        effect = whole(parts, effect)
        adapter = adapter_of(parts, effect.change.adapter)
        if isinstance(adapter, Rester):
            adapter.rest(effect)
            if one.given_up and (remedy := _taken_back(adapter, effect)):
                taken[effect.undoes] = remedy
        adapter.tidy(effect)
        parts.journal.append(leases[effect.run], [Draft(one.record, effect.run, effect.id, one.body)])
    gone = {one.effect.id for one in stuck if one.record is Kind.ABORT}
    return plan._replace(effects=tuple(effect for effect in plan.effects if effect.id not in gone)), taken


def _taken_back(adapter: Adapter, undo: Effect) -> Remedy | None:
    """Without what belongs to that one alone: an inode held for it, and further names of a file that is not back."""
    done = {one.resource for one in adapter.verify(undo).targets if one.standing is Standing.AFTER}
    others = {one.resource for one in undo.targets} - done
    if not done or undo.remedy is None:
        return None

    def lasting(state: dict[str, Any]) -> dict[str, Any]:
        lost = ("held", "twin") if state.get("twin") in others else ("held",)
        return {name: value for name, value in state.items() if name not in lost}

    targets = (
        Target(one.resource, lasting(one.before), lasting(one.after))
        for one in undo.targets
        if one.resource in done
    )
    return undo.remedy._replace(targets=tuple(targets))


def told(parts: Parts, plan: Plan, stuck: Sequence[Settling], result: UndoResult) -> UndoResult:
    """Nothing of it is stuck any more: so much has happened, even if no path could be taken back."""
    known = {one.effect for one in result.targets}
    ids = tuple(effect.id for effect in plan.effects)
    return result._replace(
        outcome="partial" if result.outcome == "refused" else result.outcome,
        because=None,
        settled=tuple(one.effect.id for one in stuck),
        effects=tuple(parts.journal.effects(Query(ids=ids, newest=True))),
        targets=(*result.targets, *(one for one in plan.targets if one.effect not in known)),
    )
