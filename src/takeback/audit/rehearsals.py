"""What the records say of rehearsals: when each kind of remedy was last proven, and what was found unfit."""

from typing import Any, NamedTuple

from takeback.audit.views import iso
from takeback.model.effect import Effect, State
from takeback.model.record import STORE, Kind
from takeback.model.rehearsal import Proven, Rehearsal, Rehearsed, Viability, rehearsed_in
from takeback.storage.protocols import Journal, Query


class Unfit(NamedTuple):
    """A remedy that failed when it was tried or looked at last, of an effect that is still in force."""

    effect: Effect
    at: int
    why: str


def proven(journal: Journal) -> dict[tuple[str, str], Proven]:
    """By adapter and strategy: when a way back of that kind was last tried, and how that ended. A look is no proof."""
    found: dict[tuple[str, str], Proven] = {}
    for record in journal.records(run=STORE, kinds=(Kind.REHEARSE,)):
        if record.body.get("check"):
            continue
        for one in rehearsed_in(record):
            if one.outcome is Viability.CANNOT or not one.effect:
                continue
            kind = (one.adapter, one.strategy)
            before = found.get(kind, Proven(0, one.outcome))
            if before.at == record.at and before.outcome is Viability.FAILS:  # of several in one, the worst
                continue
            worked = record.at if one.outcome is Viability.WORKS else before.worked_at
            found[kind] = Proven(record.at, one.outcome, worked, one.why, one.effect)
    return found


def unfit(journal: Journal) -> tuple[Unfit, ...]:
    """Effects in force whose way back failed when it was last tried or looked at."""
    last: dict[str, tuple[int, Rehearsed]] = {}
    for record in journal.records(run=STORE, kinds=(Kind.REHEARSE,)):
        for one in rehearsed_in(record):
            if one.effect and one.outcome is not Viability.CANNOT:
                last[one.effect] = record.at, one
    failed = {id: told for id, told in last.items() if told[1].outcome is Viability.FAILS}
    if not failed:
        return ()
    effects = journal.effects(Query(ids=tuple(failed), states=(State.DONE,)))
    return tuple(
        Unfit(effect, failed[effect.id][0], failed[effect.id][1].why)
        for effect in effects
        if not effect.forgotten
    )


def rehearsal_json(rehearsal: Rehearsal) -> dict[str, Any]:
    outcome = "works" if rehearsal.works else "fails" if _any_fails(rehearsal) else "partial"
    return {
        "outcome": outcome,
        "check": rehearsal.check,
        "at": iso(rehearsal.at),
        "disturbed": list(rehearsal.disturbed),
        "effects": [rehearsed_json(one) for one in rehearsal.rehearsed],
    }


def _any_fails(rehearsal: Rehearsal) -> bool:
    return any(one.outcome is Viability.FAILS for one in rehearsal.rehearsed)


def rehearsed_json(one: Rehearsed) -> dict[str, Any]:
    return {
        "id": one.effect or None,
        "adapter": one.adapter,
        "strategy": one.strategy,
        "summary": one.summary,
        "outcome": one.outcome.value,
        "detail": one.why,
        "milliseconds": one.milliseconds,
        "targets": [
            {"resource": each.resource, "outcome": each.outcome.value, "detail": each.why}
            for each in one.targets
        ],
    }


def proven_json(kinds: dict[tuple[str, str], Proven]) -> list[dict[str, Any]]:
    return [
        {
            "adapter": adapter,
            "strategy": strategy,
            "tried_at": iso(one.at),
            "outcome": one.outcome.value if one.at else None,
            "worked_at": iso(one.worked_at),
            "detail": one.why,
            "effect": one.effect or None,
        }
        for (adapter, strategy), one in sorted(kinds.items())
    ]
