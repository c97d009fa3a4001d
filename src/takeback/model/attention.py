"""Which runs of workflows wait for a person, or for a worker that is not there."""

from takeback.model.run import NEVER, UNFINISHED, OnDeath, RunInfo, RunState

DECIDED = "decided:"  # and an effect's id: the signal for a run when a person has approved or denied it
SETTLED = "settled:"  # and an effect's id: the signal for a run when a person has said what became of it


def needs_attention(info: RunInfo) -> bool:
    """It waits, and for nothing that comes by itself or that its function has asked for."""
    if info.state is not RunState.SUSPENDED or info.on_death is not OnDeath.RESUME:
        return False
    for_a_person = info.awaits.startswith((DECIDED, SETTLED))
    return for_a_person or (info.due_at >= NEVER and not info.awaits)


def is_due(info: RunInfo, at: int) -> bool:
    """For a worker; whether one is at it just now is not looked at here."""
    unfinished = info.on_death is OnDeath.RESUME and info.state in UNFINISHED
    return unfinished and max(info.due_at, info.closed_at, info.opened_at) <= at
