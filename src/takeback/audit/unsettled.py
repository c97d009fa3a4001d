"""What is not at rest: what recovery would look at, and what it leaves to someone else."""

from collections.abc import Iterator
from typing import NamedTuple

from takeback.model.effect import COMMAND, OPEN_STATES, PERSON, Effect, State, waits_for_approval
from takeback.model.run import OnDeath, RunInfo, RunState
from takeback.storage.protocols import Query
from takeback.storage.store import Store


class Unsettled(NamedTuple):
    effect: Effect
    what: str  # recovery would do with it, or why it does nothing
    left_alone: bool = False


def unsettled(store: Store, now: int) -> Iterator[Unsettled]:
    """What dead processes left, what is stuck, and what recovery leaves to a living process or a worker."""
    unfinished = {info.id: info for info in store.journal.runs(unfinished=True)}
    dead = [
        info
        for info in unfinished.values()
        if info.state is RunState.OPEN
        and info.on_death not in (OnDeath.LEAVE, OnDeath.RESUME)
        and store.leases_at_home.free(info.id, now)
    ]
    for effect in list(store.journal.effects(Query(states=OPEN_STATES))):
        if effect.waits_for != PERSON:
            yield _of(store, effect, unfinished.get(effect.run), now)
        elif waits_for_approval(effect) and any(info.id == effect.run for info in dead):
            yield Unsettled(effect, "waits for an approval, and would be given up with its run, which died")
    for info in dead:
        if info.on_death is OnDeath.UNDO:
            for effect in store.journal.effects(Query(run=info.id, states=(State.DONE,), newest=True)):
                if not effect.accepted and not effect.is_undo:
                    yield Unsettled(effect, "would be taken back with its run, which died")


def _of(store: Store, effect: Effect, run: RunInfo | None, now: int) -> Unsettled:
    stuck = effect.state is State.STUCK
    if not store.leases_at_home.free(effect.run, now):
        what = (
            "is stuck, and another process is at its run" if stuck else "is in the hands of another process"
        )
        return Unsettled(effect, what, left_alone=True)
    if run and run.on_death is OnDeath.RESUME:
        what = (
            "is stuck; its workflow waits for a person" if stuck else "is for the next worker of its workflow"
        )
        return Unsettled(effect, what, left_alone=True)
    if stuck:
        return Unsettled(effect, "is stuck; its target would be looked at again")
    if effect.waits_for == COMMAND:
        return Unsettled(effect, "would be recorded as far as it got, if its command has ended")
    return Unsettled(effect, "would be finished or taken back, by where its target stands")
