"""Runs as they stand now: what was taken back since, what is not at rest, what damage has hurt."""

import os
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

from takeback.engine.settled import functions_of, still_to_undo
from takeback.errors import RecordInvalid
from takeback.model.effect import COMMAND, OPEN_STATES, PERSON, Effect, State, waits_for_approval
from takeback.model.record import Flaw
from takeback.model.run import OnDeath, RunInfo, RunState
from takeback.sandbox.probe_note import recall
from takeback.storage.owners import KilledCommand, is_busy, killed_commands
from takeback.storage.protocols import Query
from takeback.storage.sqlite.store import Store

# Runs as their effects stand now: what one did may have been taken back, or brought back, long after it ended.
#
# What it costs grows with the number of undos, and with the size of those runs that undos have touched.


# The plus keeps SQLite from reading all effects in the order of their runs: those of the undos alone are few.
_UNDOS = """
SELECT r.id, u.n FROM (SELECT +run AS run, count(*) AS n FROM effects WHERE undoes <> '' GROUP BY +run) u
JOIN runs r ON r.number = u.run
"""
_TOUCHED = """
SELECT DISTINCT r.id FROM effects u CROSS JOIN effects e CROSS JOIN runs r
WHERE u.undoes <> '' AND e.id = u.undoes AND r.number = e.run
"""
_STATES = """
SELECT state, count(*) FROM effects
WHERE run = (SELECT number FROM runs WHERE id = ?) AND (undoes <> '') = ? AND state <> 'aborted' AND state <> 'dropped'
GROUP BY state
"""


_ABORTED = """
SELECT count(*) FROM effects
WHERE run = (SELECT number FROM runs WHERE id = ?) AND undoes = '' AND state = 'aborted'
"""
_FEW = 1_000  # effects; in a larger run those that never happened are counted too, because telling them takes long


class RunNow(NamedTuple):
    info: RunInfo
    state: RunState
    effects: int  # without what it took back, and without what never happened
    undos: int

    @property
    def failed(self) -> str:
        """How it failed, of one that ended by itself; empty if it did not."""
        return self.info.note if self.state is RunState.ACCEPTED else ""


def as_they_stand(store: Store, infos: Sequence[RunInfo]) -> tuple[RunNow, ...]:
    read = store.read
    undos: dict[str, int] = dict(read(_UNDOS))
    touched: set[str] = {run for (run,) in read(_TOUCHED)}
    found: list[RunNow] = []
    for info in infos:
        effects, state = info.effects - undos.get(info.id, 0), info.state
        if info.id in touched and state not in (RunState.OPEN, RunState.SUSPENDED):
            # The run of an undo has nothing but undos: how those stand is how it stands.
            state = _state(state, dict(read(_STATES, [info.id, not effects])))
        aborted: int = read(_ABORTED, [info.id])[0][0] if 0 < effects <= _FEW else 0
        found.append(RunNow(info, state, effects - aborted, info.effects - effects))
    return tuple(found)


def _state(recorded: RunState, counts: dict[str, int]) -> RunState:
    undone = counts.get(State.UNDONE, 0)
    if not counts or undone == sum(counts.values()):
        return RunState.UNDONE if counts else recorded
    return RunState.PARTLY if undone or recorded is RunState.PARTLY else RunState.ACCEPTED


class DamageReach(NamedTuple):
    """Runs that did something, oldest first."""

    damaged: tuple[RunInfo, ...]
    usable: tuple[RunInfo, ...]


def reach(store: Store, findings: Sequence[Flaw]) -> DamageReach:
    """Raises an error of the `Corrupt` family if a page of the journal cannot be read."""
    if any(one.unreadable for one in findings):
        raise RecordInvalid("Some page of the journal cannot be read.", hint="Restore it from a backup.")
    digests = {one.blob for one in findings if one.blob}
    hurt = {one.run for one in findings if one.run}
    for effect in store.journal.effects(Query()):
        needed = effect.remedy.blobs if effect.remedy and not effect.forgotten else ()
        if effect.change.kind == "damaged" or not digests.isdisjoint(needed):
            hurt.add(effect.run)
    runs = [info for info in store.journal.runs() if info.effects or info.id in hurt]
    return DamageReach(
        tuple(info for info in runs if info.id in hurt), tuple(info for info in runs if info.id not in hurt)
    )


class Ending(Enum):
    """What recovery makes of a dead run."""

    TAKEN_BACK = "taken back"
    RECORDED = "recorded"  # its command's changes are written down, and stay
    STAYS = "stays"
    FINISHED = "finished"  # an undo, or a redo
    STUCK = "stuck"  # it waits for a person
    DROPPED = "dropped"  # what its command had changed is saved as a drop; nothing else is left of it
    APPLIED = "applied"  # a held or dropped effect was being applied: that is finished, or taken back
    NOTHING = "nothing"  # none of its effects is in force


class DeadRun(NamedTuple):
    """A run whose process is gone, and that was not settled since. Or one that has ended, of which something held or
    dropped was being applied."""

    info: RunInfo
    pid: int  # of the process that had it; 0 if that is not known
    last_at: int  # when it was last heard of
    in_force: int  # effects of it that are done
    in_doubt: tuple[Effect, ...]  # whose outcome is not known yet
    functions: tuple[str, ...]  # actions of which settling it calls functions
    ending: Ending
    command: str = ""  # one that was killed with it; what it had changed becomes a drop


def dead_runs(store: Store, now: int) -> tuple[DeadRun, ...]:
    """Found by looking; settles nothing and calls no probe."""
    died = list(_died(store, now))
    killed = {one.run: one.change.summary for one in _killed(store)} if died else {}
    return tuple(_dead(store, info, killed.get(info.id, "")) for info in died)


def _killed(store: Store) -> list[KilledCommand]:
    path = os.path.realpath(store.path)
    trial = recall(path)
    found = killed_commands(path, (path, trial.layers_at) if trial else (path,))
    return [one for one in found if one.is_whole or is_busy(one.path)]


def _died(store: Store, now: int) -> Iterator[RunInfo]:
    unfinished = tuple(store.journal.runs(unfinished=True))
    for info in unfinished:
        if info.on_death is OnDeath.RESUME or not store.leases_at_home.free(info.id, now):
            continue
        if (info.state is RunState.OPEN and info.on_death is not OnDeath.LEAVE) or _in_flight(store, info):
            yield info
    # Of a run that has ended: a held or dropped effect that was being applied.
    known = {info.id for info in unfinished}
    applied = {one.run for one in store.journal.effects(Query(states=(State.INTENDED,)))} - known
    left = tuple(run for run in sorted(applied) if store.leases_at_home.free(run, now))
    yield from store.journal.runs(left) if left else ()


def _in_flight(store: Store, info: RunInfo) -> tuple[Effect, ...]:
    found = store.journal.effects(Query(run=info.id, states=(State.PROPOSED, State.INTENDED)))
    return tuple(one for one in found if one.waits_for != PERSON)


def _dead(store: Store, info: RunInfo, command: str) -> DeadRun:
    holder = store.leases.holder(info.id)
    newest = next(store.journal.effects(Query(run=info.id, newest=True, limit=1)), None)
    done = store.journal.count(Query(run=info.id, states=(State.DONE,), made=True))
    pid = holder.owner.pid if holder else 0
    last = max(info.opened_at, newest.at if newest else 0)
    in_flight = _in_flight(store, info)
    functions = functions_of(store.journal, info)
    ending = _ending(store, info, in_flight)
    if command and ending in (Ending.NOTHING, Ending.STAYS) and not done:
        ending = Ending.DROPPED
    return DeadRun(info, pid, last, done, in_flight, functions, ending, command)


def _ending(store: Store, info: RunInfo, in_flight: tuple[Effect, ...]) -> Ending:
    if store.journal.count(Query(run=info.id, states=(State.STUCK,))):
        return Ending.STUCK
    if info.state not in (RunState.OPEN, RunState.SUSPENDED):
        return Ending.APPLIED
    if any(one.waits_for == COMMAND for one in in_flight):
        return Ending.RECORDED
    if info.on_death is OnDeath.FINISH:
        return Ending.FINISHED
    if info.on_death is not OnDeath.UNDO:
        return Ending.STAYS
    done = store.journal.effects(Query(run=info.id, states=(State.DONE,)))
    going = any(not one.accepted and not one.is_undo for one in done)
    return Ending.TAKEN_BACK if going or in_flight else Ending.NOTHING


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
        "ending": one.ending.value,
        "command": one.command,
    }


class Unsettled(NamedTuple):
    effect: Effect
    what: str  # recovery would do with it, or why it does nothing
    left_alone: bool = False
    by: str = ""  # the run whose settling does it, if that is not the effect's own


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
        elif info.on_death is OnDeath.FINISH:
            undos = store.journal.effects(Query(run=info.id, states=OPEN_STATES, undos=True))
            begun = {one.undoes for one in undos}
            for effect in still_to_undo(store.journal, info):
                if effect.id not in begun:
                    verb = "redo" if effect.is_undo else "undo"
                    what = f"its {verb} would be carried out; the process that was asked for it died"
                    yield Unsettled(effect, what, by=info.id)


def _of(store: Store, effect: Effect, run: RunInfo | None, now: int) -> Unsettled:
    stuck = effect.state is State.STUCK
    if not store.leases_at_home.free(effect.run, now):
        what = "is stuck, and another process is at its run" if stuck else "is locked by another process"
        return Unsettled(effect, what, left_alone=True)
    if run and run.on_death is OnDeath.RESUME:
        what = "is stuck; its workflow waits for a person"
        return Unsettled(effect, what if stuck else "is for the next worker of its workflow", left_alone=True)
    if stuck:
        return Unsettled(effect, "is stuck; its target would be looked at again")
    if effect.waits_for == COMMAND:
        return Unsettled(effect, "would be recorded if its command has ended")
    if effect.is_undo:
        return Unsettled(effect, "would be finished, if nothing else changed its target since")
    return Unsettled(effect, "would be finished or undone, depending on its target")
