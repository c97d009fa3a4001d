"""Runs as their effects stand now: what one did may have been taken back, or brought back, long after it ended."""

from collections.abc import Sequence
from typing import NamedTuple

from takeback.model.effect import State
from takeback.model.run import RunInfo, RunState
from takeback.storage.store import Store

_COUNT = """
SELECT run, undoes <> '', state, count(*) FROM effects
WHERE state <> 'aborted' {}
GROUP BY 1, 2, 3
"""
_FEW = 500  # more runs than that are counted together with all others


class RunNow(NamedTuple):
    info: RunInfo
    state: RunState
    effects: int  # what never happened does not count, nor what the run took back
    undos: int


def as_they_stand(store: Store, infos: Sequence[RunInfo]) -> tuple[RunNow, ...]:
    few = [info.id for info in infos] if len(infos) <= _FEW else []
    only = f"AND run IN ({','.join('?' * len(few))})" if few else ""
    counts: dict[tuple[str, bool], dict[str, int]] = {}
    for run, undo, state, count in store.database.read(_COUNT.format(only), few):
        counts.setdefault((run, bool(undo)), {})[state] = count
    return tuple(
        _now(info, counts.get((info.id, False), {}), counts.get((info.id, True), {})) for info in infos
    )


def _now(info: RunInfo, own: dict[str, int], undos: dict[str, int]) -> RunNow:
    # The run of an undo has nothing but undos: how those stand is how it stands.
    return RunNow(info, _state(info.state, own or undos), sum(own.values()), sum(undos.values()))


def _state(recorded: RunState, counts: dict[str, int]) -> RunState:
    if recorded in (RunState.OPEN, RunState.SUSPENDED) or not counts:
        return recorded
    undone = counts.get(State.UNDONE, 0)
    if undone == sum(counts.values()):
        return RunState.UNDONE
    return RunState.PARTLY if undone or recorded is RunState.PARTLY else RunState.KEPT
