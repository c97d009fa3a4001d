"""The end of a run, for good: what it asked for and still waits for an approval ends with it."""

from collections.abc import Iterable, Mapping
from typing import Any

from takeback.engine.parts import Parts
from takeback.model.effect import PERSON, Effect, State, applied_once_approved, waits_for_approval
from takeback.model.plan import UndoResult
from takeback.model.record import Draft, Kind
from takeback.model.run import Lease, RunState
from takeback.storage.protocols import Query

UNDECIDED = "Its run ended before anyone decided."
UNMADE = "Its run ended without asking for it again."


def cannot_end(parts: Parts, run: str) -> bool:
    """The run stays open while one of its effects is stuck, because its earlier effects may be needed to fix that, and
    while a command that it watches is running."""
    return _in_the_way(_unsettled(parts, run))


def close_rolled_back(
    parts: Parts, lease: Lease, result: UndoResult, outcome: str, told: Mapping[str, Any] | None = None
) -> bool:
    """A run ends only when nothing more can be done for it; else it stays open, and the next recovery continues.
    `told`: more fields of the record of its end."""
    left = _unsettled(parts, lease.run)
    ends = not result.postponed and not _in_the_way(left)
    if outcome == RunState.UNDONE and result.outcome != "done":
        outcome = RunState.PARTLY.value
    if ends:
        parts.journal.append(lease, closing(parts, lease.run, {"outcome": outcome, **(told or {})}, left))
    return ends


def close(parts: Parts, lease: Lease, outcome: RunState) -> None:
    body = {"outcome": outcome.value}
    parts.journal.append(lease, closing(parts, lease.run, body, _unsettled(parts, lease.run)))


def closing(parts: Parts, run: str, body: dict[str, Any], left: Iterable[Effect]) -> list[Draft]:
    """The records of its end, to be appended together. `left`: its unsettled effects. Only the run itself makes an
    approved call, so without the run the key is free again. A suspended run keeps asking."""
    close = Draft(Kind.CLOSE, run, "", body)
    if body["outcome"] == RunState.SUSPENDED:
        return [close]
    return [
        *(
            given_up_with_its_run(parts, one)
            for one in left
            if waits_for_approval(one) and not applied_once_approved(one)
        ),
        close,
    ]


def given_up_with_its_run(parts: Parts, effect: Effect) -> Draft:
    from takeback.engine.approval import decision_on, in_words

    decision = decision_on(parts, effect)
    why = f"{in_words(decision)} {UNMADE}" if decision else UNDECIDED
    return Draft(Kind.ABORT, effect.run, effect.id, {"why": why})


def _unsettled(parts: Parts, run: str) -> tuple[Effect, ...]:
    states = (State.STUCK, State.PROPOSED, State.INTENDED)
    return tuple(parts.journal.effects(Query(run=run, states=states)))


def _in_the_way(left: Iterable[Effect]) -> bool:
    return any(effect.waits_for != PERSON for effect in left)
