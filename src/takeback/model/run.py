"""A run: one agent's stretch of work; and who holds it."""

from enum import StrEnum
from typing import NamedTuple

from takeback.errors import RecordInvalid
from takeback.model.record import Kind


class RunState(StrEnum):
    OPEN = "open"
    SUSPENDED = "suspended"  # stopped by a signal at a checkpoint; can be resumed
    KEPT = "kept"  # ended well
    UNDONE = "undone"  # taken back
    PARTLY = "partly undone"  # taken back but for what someone changed since


class OnDeath(StrEnum):
    """What recovery does with the run of a dead process, after its open effects are settled."""

    UNDO = "undo"  # take back everything not kept
    KEEP = "keep"  # what it did stays; only the run is ended
    LEAVE = "leave"  # leave it open for the next command that joins it
    FINISH = "finish"  # it was an undo of several effects: carry out the rest


class RunInfo(NamedTuple):
    id: str
    name: str
    agent: str
    state: RunState
    on_death: OnDeath
    opened_at: int
    closed_at: int = 0
    effects: int = 0


def run_state_after(state: RunState | None, kind: Kind, outcome: str, where: str) -> RunState:
    if kind is Kind.OPEN and state in (None, RunState.OPEN, RunState.SUSPENDED):
        return RunState.OPEN
    if kind is Kind.CLOSE and state in (RunState.OPEN, RunState.SUSPENDED):
        return RunState(outcome)
    raise RecordInvalid(f"{where}: {kind.value!r} cannot follow run state {state!r}.")


class Owner(NamedTuple):
    """A process, named so that another one can tell whether it still lives."""

    boot: str  # kernel boot id
    space: str  # pid namespace
    pid: int
    started: str  # start time in clock ticks: a reused pid has another one


class Lease(NamedTuple):
    run: str
    generation: int  # the fence: only the newest may append
    owner: Owner
    expires_at: int  # microseconds since 1970


class Checkpoint(NamedTuple):
    id: str
    run: str
    label: str
    seq: int  # journal position: undo takes back what came after
    at: int
    state: str = ""  # the agent's own state, JSON text
    cwd: str = ""
    environment: dict[str, str] = {}
    path: tuple[str, ...] = ()  # the decisions that led here
    summary: str = ""
    automatic: bool = False
