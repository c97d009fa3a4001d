"""Ways back that are looked at, or tried at their place where nothing of it stays; those of files need a layer."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from takeback.adapters.protocol import Rehearsing, traits_of
from takeback.engine.parts import Parts, adapter_of, whole
from takeback.engine.plan import Wishes, plan_undo
from takeback.engine.undo import refuse_blocked, refuse_conflicts
from takeback.errors import (
    ActionMissing,
    Blocked,
    Corrupt,
    InDoubt,
    TakebackError,
    Unavailable,
    UndoFailed,
)
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.plan import Outcome, Plan
from takeback.model.rehearsal import Rehearsed, RehearsedTarget, Viability
from takeback.model.remedy import Strategy
from takeback.model.resource import display

_NOT_THERE = {"redis": "Redis cannot roll back what was tried, so there is nothing to try it on"}
_MOST_NAMED = 5
_MOST_ROWS = 100_000  # that a trial at a server may lock


def is_database_file(effect: Effect) -> bool:
    traits = traits_of(effect.change)
    return traits.layered and traits.marks


def unfit(effect: Effect) -> str:
    """Why there is nothing to rehearse about it; "" if there is."""
    if effect.is_undo:
        return f"it is an undo itself; name the effect that it took back, {short(effect.undoes)}"
    if effect.state is not State.DONE:
        return f"it is {effect.state.value}, so there is nothing to take back"
    if effect.redacted:
        return "its content and its way back were erased"
    if effect.forgotten:
        return "its undo data was deleted"
    if effect.remedy is None or effect.remedy.strategy is Strategy.IRREVERSIBLE:
        return f"it cannot be undone ({effect.remedy.residue})" if effect.remedy else "it has no way back"
    if effect.remedy.strategy is Strategy.MANUAL:
        return f"a person takes it back ({effect.remedy.residue})"
    if not effect.targets and effect.is_elsewhere:
        return "it changed only what was not watched"
    return ""


def told_of(effect: Effect, proof: Viability, why: str = "", milliseconds: int = 0) -> Rehearsed:
    return Rehearsed(
        effect.id,
        effect.change.adapter,
        effect.remedy.strategy.value if effect.remedy else "",
        proof,
        why,
        effect.change.summary,
        tuple(
            RehearsedTarget(one, proof, why)
            for one in dict.fromkeys(each.resource for each in effect.targets)
        ),
        milliseconds,
    )


def judged(error: TakebackError) -> tuple[Viability, str]:
    """What an error says of a way back: that it does not work, or that it could not be tried."""
    if isinstance(error, Blocked):
        return Viability.CANNOT, blocked_words(error.blockers)
    if isinstance(error, (Unavailable, InDoubt)) and not isinstance(error, ActionMissing):
        return Viability.CANNOT, str(error)
    return Viability.FAILS, str(error)


def blocked_words(blockers: tuple[str, ...]) -> str:
    names = ", ".join(short(one) for one in blockers[:_MOST_NAMED])
    return f"later effects depend on it ({names}), and were not taken back first"


def _timed(effect: Effect, work: Callable[[], str]) -> Rehearsed:
    started = time.perf_counter()
    try:
        proof, why = Viability.WORKS, work()
    except TakebackError as error:
        proof, why = judged(error)
    return told_of(effect, proof, why, int((time.perf_counter() - started) * 1000))


def rehearse_at_its_place(parts: Parts, effect: Effect) -> Rehearsed:
    """By its adapter, where the thing itself is: the transaction of a server, the test endpoint of an action."""

    def work() -> str:
        plan_of(parts, effect)
        adapter = adapter_of(parts, effect.change.adapter)
        assert isinstance(adapter, Rehearsing)
        return adapter.rehearse(effect)

    name = effect.change.adapter
    if (count := _rows(effect)) > _MOST_ROWS:
        why = f"it changed {count:,} rows, and a trial would lock them for long; a look compares them"
        return told_of(effect, Viability.CANNOT, why)
    if why := _NOT_THERE.get(name) or ("" if _can(parts, name) else f"nothing rehearses effects of {name}"):
        return told_of(effect, Viability.CANNOT, why)
    return _timed(effect, work)


def _rows(effect: Effect) -> int:
    """As the server counted them."""
    tables: dict[str, dict[str, Any]] = effect.receipt.get("tables", {})
    return sum(count for counts in tables.values() for count in counts.values() if isinstance(count, int))


def _can(parts: Parts, name: str) -> bool:
    try:
        return isinstance(adapter_of(parts, name), Rehearsing)
    except Corrupt:
        return False


def plan_of(parts: Parts, effect: Effect) -> Plan:
    """The plan of its undo, which changes nothing; raises what the undo would raise."""
    plan = plan_undo(parts, (whole(parts, effect),), Wishes())
    refuse_blocked(plan)
    refuse_conflicts(plan, Wishes())
    return plan


class Fitness(NamedTuple):
    """What is remembered between looks at several effects, newest first."""

    sound: dict[str, str]  # by digest of a blob that was read: what is wrong with it
    fit: set[str]  # effects whose way back looks as it must


def look_at(parts: Parts, effect: Effect, looked: Fitness) -> Rehearsed:
    """Whether the way back looks as if it worked: its blobs are whole, its server answers, its function is there, the
    schema and the content are those that it left."""

    def work() -> str:
        for digest in effect.remedy.blobs if effect.remedy else ():
            if digest not in looked.sound:
                looked.sound[digest] = _damage(parts, digest)
            if looked.sound[digest]:
                raise Corrupt(looked.sound[digest])
        try:
            plan = plan_of(parts, effect)
        except Blocked as error:
            if not looked.fit.issuperset(error.blockers):
                raise
            return "later effects stand on it, so only its blobs could be looked at"
        if plan.stuck:
            raise UndoFailed(f"an undo of it is stuck ({short(plan.stuck[0].id)})")
        bad = [one for one in plan.targets if one.outcome not in (Outcome.UNDONE, Outcome.ALREADY)]
        if bad:
            raise UndoFailed(f"{display(bad[0].resource)} {bad[0].detail}")
        return ""

    found = _timed(effect, work)
    if found.outcome is Viability.WORKS:
        looked.fit.add(effect.id)
    return found


def _damage(parts: Parts, digest: str) -> str:
    try:
        for _ in parts.blobs.read(digest):
            continue
    except TakebackError as error:
        return str(error)
    return ""
