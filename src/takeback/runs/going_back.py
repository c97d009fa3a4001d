"""Going on from a checkpoint: what its run did after it is taken back first."""

from takeback.engine.parts import Parts
from takeback.engine.plan import Wishes, plan_undo
from takeback.engine.stuck import Taker, carry_out
from takeback.engine.undo import not_accepted, refuse_blocked, refuse_conflicts, refuse_untouched
from takeback.errors import Misuse
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.plan import Plan
from takeback.model.remedy import Strategy
from takeback.model.run import Checkpoint, Lease
from takeback.runs import checkpoints

_WISHES = Wishes()


def point_of(parts: Parts, run: str, checkpoint: "Checkpoint | str") -> Checkpoint:
    point = checkpoints.find(parts.journal, checkpoint, run)
    if point.run != run:
        raise Misuse(
            f"Checkpoint {short(point.id)} is not of run {short(run)}.",
            hint=f"`takeback checkpoints --run {short(run)}` lists those that are.",
        )
    return point


def plan_back(parts: Parts, point: Checkpoint) -> Plan | None:
    """What is to be taken back; raises when something stands in the way. What only a person could take back stays, and
    answers for itself when it is asked for again."""
    after = [one for one in not_accepted(parts, point.run) if one.order > point.seq and _can_be(one)]
    if not after:
        return None
    plan = plan_undo(parts, after, _WISHES)
    refuse_blocked(plan)
    refuse_conflicts(plan, _WISHES)
    return plan


def go_back(parts: Parts, lease: Lease, plan: Plan, agent: str, taker: Taker) -> None:
    refuse_untouched(carry_out(parts, lease, plan, _WISHES, agent, taker))


def _can_be(effect: Effect) -> bool:
    return effect.remedy is not None and effect.remedy.strategy not in (
        Strategy.MANUAL,
        Strategy.IRREVERSIBLE,
    )
