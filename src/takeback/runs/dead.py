"""Runs whose process is gone."""

from takeback.model.effect import PERSON, State
from takeback.model.run import OnDeath, RunState
from takeback.storage.protocols import Journal, Leases, Query


def something_left(journal: Journal, leases: Leases, now: int) -> bool:
    """Whether a dead process left something to settle; what a workflow left is for the next worker."""
    resumed: set[str] = set()
    for info in journal.runs(unfinished=True):
        if info.on_death is OnDeath.RESUME:
            resumed.add(info.id)
            continue
        if info.state is RunState.SUSPENDED or not leases.free(info.id, now):
            continue
        if info.on_death is not OnDeath.LEAVE:
            return True
        in_flight = journal.effects(Query(run=info.id, states=(State.PROPOSED, State.INTENDED)))
        if any(effect.waits_for != PERSON for effect in in_flight):
            return True
    in_the_making = journal.effects(Query(states=(State.INTENDED,)))
    return any(effect.run not in resumed and leases.free(effect.run, now) for effect in in_the_making)
