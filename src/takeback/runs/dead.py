"""Runs whose process is gone."""

from takeback.model.effect import PERSON, State
from takeback.model.run import OnDeath, RunState
from takeback.storage.process import alive
from takeback.storage.protocols import Journal, Leases, Query


def something_left(journal: Journal, leases: Leases, now: int) -> bool:
    """Whether a dead process left something to settle."""
    for info in journal.runs(unfinished=True):
        if info.state is RunState.SUSPENDED or _held_by_the_living(leases, info.id, now):
            continue
        if info.on_death is not OnDeath.LEAVE:
            return True
        in_flight = journal.effects(Query(run=info.id, states=(State.PROPOSED, State.INTENDED)))
        if any(effect.waits_for != PERSON for effect in in_flight):
            return True
    in_the_making = journal.effects(Query(states=(State.INTENDED,)))
    return any(not _held_by_the_living(leases, effect.run, now) for effect in in_the_making)


def _held_by_the_living(leases: Leases, run: str, now: int) -> bool:
    """A process of another machine or container cannot be asked; its lease is believed until it ends."""
    lease = leases.holder(run)
    if lease is None or not lease.owner.pid:
        return False
    living = alive(lease.owner)
    return bool(living) or (living is None and lease.expires_at > now)
