"""What became of ways back that were tried on a copy, and when each kind was last proven."""

from enum import StrEnum
from typing import Any, NamedTuple

from takeback.model.record import Record


class Viability(StrEnum):
    WORKS = "works"
    FAILS = "fails"
    CANNOT = "cannot be rehearsed"


class RehearsedTarget(NamedTuple):
    resource: str
    outcome: Viability
    why: str = ""


class Rehearsed(NamedTuple):
    """One effect, or one change of a plan."""

    effect: str  # its id; "" for a change of a plan
    adapter: str
    strategy: str
    outcome: Viability
    why: str = ""  # why it fails, or cannot be rehearsed; of one that works, what was not tried
    summary: str = ""
    targets: tuple[RehearsedTarget, ...] = ()
    milliseconds: int = 0


class Rehearsal(NamedTuple):
    rehearsed: tuple[Rehearsed, ...]
    check: bool = False  # the ways back were only looked at, not tried
    disturbed: tuple[str, ...] = ()  # resources that someone changed while it ran
    at: int = 0  # microseconds since 1970; 0: nothing was recorded

    @property
    def works(self) -> bool:
        return all(one.outcome is Viability.WORKS for one in self.rehearsed)


class Proven(NamedTuple):
    """Of one kind of remedy: an adapter and a strategy."""

    at: int  # when it was last tried; 0: never
    outcome: Viability  # how that ended
    worked_at: int = 0  # when it last worked; 0: never
    why: str = ""
    effect: str = ""


TOGETHER = 200  # effects in one record
_MOST_TARGETS = 50  # of one effect in a record; those that do not work come first


def bodies(rehearsal: Rehearsal) -> list[dict[str, Any]]:
    """For the journal. More than a record should hold is divided over several."""
    found: list[dict[str, Any]] = []
    for start in range(0, max(1, len(rehearsal.rehearsed)), TOGETHER):
        some = rehearsal.rehearsed[start : start + TOGETHER]
        body: dict[str, Any] = {"effects": [_as_json(one) for one in some]}
        if rehearsal.check:
            body["check"] = True
        if rehearsal.disturbed:
            body["disturbed"] = list(rehearsal.disturbed[:_MOST_TARGETS])
        found.append(body)
    return found


def _as_json(one: Rehearsed) -> dict[str, Any]:
    ordered = sorted(one.targets, key=lambda target: target.outcome is Viability.WORKS)
    data: dict[str, Any] = {
        "effect": one.effect,
        "adapter": one.adapter,
        "strategy": one.strategy,
        "outcome": one.outcome.value,
        "milliseconds": one.milliseconds,
        "targets": [[each.resource, each.outcome.value, each.why] for each in ordered[:_MOST_TARGETS]],
        "count": len(one.targets),
    }
    optional = {"why": one.why, "summary": one.summary}
    return data | {name: value for name, value in optional.items() if value}


def rehearsed_in(record: Record) -> tuple[Rehearsed, ...]:
    return tuple(rehearsed_from(one) for one in record.body["effects"])


def rehearsed_from(one: dict[str, Any]) -> Rehearsed:
    targets = tuple(RehearsedTarget(name, Viability(proof), why) for name, proof, why in one["targets"])
    return Rehearsed(
        one["effect"], one["adapter"], one["strategy"], Viability(one["outcome"]), one.get("why", ""),
        one.get("summary", ""), targets, one.get("milliseconds", 0),
    )  # fmt: skip
