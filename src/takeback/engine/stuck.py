"""What is stuck, taken back because a person says so: it is settled first, and then undone like anything else."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from takeback.adapters.protocol import Rester
from takeback.engine import undo
from takeback.engine.parts import Parts, adapter_of, whole
from takeback.engine.plan import Wishes
from takeback.model.effect import Effect, State
from takeback.model.plan import Outcome, Plan, UndoResult
from takeback.model.record import Draft, Kind
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


def carry_out(parts: Parts, lease: Lease, plan: Plan, wishes: Wishes, agent: str, taker: Taker) -> UndoResult:
    """A plan that may name what is stuck."""
    stuck = to_settle(parts, plan)
    with _holding(parts, stuck, lease, taker) as leases:
        left = _settled(parts, plan, stuck, leases)
        result = undo.carry_out(parts, lease, left, wishes, agent)
    return _told(parts, plan, stuck, result) if stuck else result


def to_settle(parts: Parts, plan: Plan) -> tuple[Settling, ...]:
    """Of an undo: what of it is stuck, and undos that got stuck before they could do the same."""
    wanted = {effect.id for effect in plan.effects}
    found = parts.journal.effects(Query(states=(State.STUCK,)))
    stuck = [
        Settling(effect, Kind.ABORT, GIVEN_UP)
        for effect in found
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
    """Their runs, so that nobody settles them in another way until this is over. By run."""
    leases = {own.run: own}
    with ExitStack() as stack:
        for run in sorted({one.effect.run for one in stuck} - {own.run}):
            leases[run] = parts.leases.acquire(run, *taker)
            stack.callback(parts.leases.release, leases[run])
        yield leases


def _settled(parts: Parts, plan: Plan, stuck: Sequence[Settling], leases: dict[str, Lease]) -> Plan:
    """What is left to undo. The run of the undo was opened with what it is for, so whoever comes after a crash right
    after this goes on with it."""
    for one in stuck:
        # Asked again now that nobody else can: it may have come to rest in the meantime.
        (effect,) = parts.journal.effects(Query(ids=(one.effect.id,)))
        if effect.state is not State.STUCK:
            continue
        effect = whole(parts, effect)
        adapter = adapter_of(parts, effect.change.adapter)
        if isinstance(adapter, Rester):
            adapter.rest(effect)
        adapter.tidy(effect)
        parts.journal.append(leases[effect.run], [Draft(one.record, effect.run, effect.id, {"why": one.why})])
    gone = {one.effect.id for one in stuck if one.record is Kind.ABORT}
    return plan._replace(effects=tuple(effect for effect in plan.effects if effect.id not in gone))


def _told(parts: Parts, plan: Plan, stuck: Sequence[Settling], result: UndoResult) -> UndoResult:
    """Nothing of it is stuck any more: so much has happened, even if no path could be taken back."""
    told = {one.effect for one in result.targets}
    ids = tuple(effect.id for effect in plan.effects)
    return result._replace(
        outcome="partial" if result.outcome == "refused" else result.outcome,
        because=None,
        settled=tuple(one.effect.id for one in stuck),
        effects=tuple(parts.journal.effects(Query(ids=ids, newest=True))),
        targets=(*result.targets, *(one for one in plan.targets if one.effect not in told)),
    )
