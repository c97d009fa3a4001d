"""Runs as their effects stand now: what one did may have been taken back, or brought back, long after it ended.

What it costs grows with the number of undos, and with the size of those runs that undos have touched.
"""

from collections.abc import Sequence
from typing import NamedTuple

from takeback.model.effect import State
from takeback.model.run import RunInfo, RunState
from takeback.storage.store import Store

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
