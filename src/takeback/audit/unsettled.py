"""What is not at rest: what recovery would look at, and what it leaves to someone else."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from takeback.engine.functions import functions_of
from takeback.model.effect import COMMAND, OPEN_STATES, PERSON, Effect, State, waits_for_approval
from takeback.model.run import OnDeath, RunInfo, RunState
from takeback.storage.protocols import Query
from takeback.storage.store import Store


class DeadRun(NamedTuple):
    """A run whose process is gone, and that was not settled since."""

    info: RunInfo
    pid: int  # of the process that had it; 0 if that is not known
    last_at: int  # when it was last heard of
    in_force: int  # effects of it that are done
    in_doubt: tuple[Effect, ...]  # of which nobody has seen yet whether they happened
    functions: tuple[str, ...]  # actions of which settling it calls functions


def dead_runs(store: Store, now: int) -> tuple[DeadRun, ...]:
    """Found by looking; nothing is settled and nobody asked."""
    return tuple(_dead(store, info) for info in _died(store, now))


def _died(store: Store, now: int) -> Iterator[RunInfo]:
    for info in store.journal.runs(unfinished=True):
        if info.on_death is OnDeath.RESUME or not store.leases_at_home.free(info.id, now):
            continue
        if (info.state is RunState.OPEN and info.on_death is not OnDeath.LEAVE) or _in_flight(store, info):
            yield info


def _in_flight(store: Store, info: RunInfo) -> tuple[Effect, ...]:
    found = store.journal.effects(Query(run=info.id, states=(State.PROPOSED, State.INTENDED)))
    return tuple(one for one in found if one.waits_for != PERSON)


def _dead(store: Store, info: RunInfo) -> DeadRun:
    holder = store.leases.holder(info.id)
    newest = next(store.journal.effects(Query(run=info.id, newest=True, limit=1)), None)
    done = store.journal.count(Query(run=info.id, states=(State.DONE,), made=True))
    pid = holder.owner.pid if holder else 0
    last = max(info.opened_at, newest.at if newest else 0)
    return DeadRun(info, pid, last, done, _in_flight(store, info), functions_of(store.journal, info))


def dead_json(one: DeadRun) -> dict[str, Any]:
    return {
        "run": one.info.id,
        "name": one.info.name,
        "agent": one.info.agent,
        "pid": one.pid,
        "last_at": one.last_at,
        "on_death": one.info.on_death.value,
        "effects": one.in_force,
        "in_doubt": [effect.id for effect in one.in_doubt],
        "calls": list(one.functions),
    }


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
