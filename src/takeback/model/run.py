"""A run: one agent's stretch of work; who holds it, and whom it waits for."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from takeback.errors import RecordInvalid, Refused
from takeback.model.format_1 import word
from takeback.model.ids import short
from takeback.model.record import Kind, Record

NEVER = 1 << 62  # as `due_at`: no time comes by itself, only a signal wakes it
MEMBER = "/"  # in the name of a run, before what says which subagent; no host has it in its ids
OF_RUNS = (Kind.OPEN, Kind.CLOSE, Kind.SIGNAL)

Unread = Callable[[str, int], bool]  # was a signal of this name recorded for the run after this record?


class RunState(StrEnum):
    OPEN = "open"
    SUSPENDED = "suspended"  # stopped at a checkpoint, or it waits; can be resumed
    ACCEPTED = "accepted"  # ended well
    UNDONE = "undone"  # taken back
    PARTLY = "partly undone"  # taken back but for what someone changed since


UNFINISHED = (RunState.OPEN, RunState.SUSPENDED)


class OnDeath(StrEnum):
    """What recovery does with the run of a dead process, after its open effects are settled."""

    UNDO = "undo"  # take back everything not accepted
    ACCEPT = "accept"  # what it did stays; only the run is ended
    LEAVE = "leave"  # leave it open for the next command that joins it
    FINISH = "finish"  # it was an undo of several effects: carry out the rest
    RESUME = "resume"  # a durable workflow: the next worker continues it


class RunInfo(NamedTuple):
    id: str
    name: str
    agent: str
    state: RunState
    on_death: OnDeath
    opened_at: int
    closed_at: int = 0
    effects: int = 0
    key: str = ""  # of a submitted run; no other run has it
    workflow: str = ""  # the registered name of its function
    due_at: int = 0  # when a worker may continue it, microseconds since 1970; 0: now
    awaits: str = ""  # the signal it waits for
    note: str = ""  # why it was suspended, or how it failed
    project: str = ""  # the one it began in, as a resource; "" where that is none


def run_after(info: RunInfo | None, record: Record, unread: Unread) -> RunInfo:
    """How the run stands after a record that is about it. Every journal uses this, so that all of them agree."""
    body, where = record.body, f"Record {record.seq}"
    if record.kind is Kind.SIGNAL:
        return _signalled(info, record)
    state = run_state_after(info.state if info else None, record.kind, body.get("outcome", ""), where)
    if info is None:
        name, agent, on_death = body["name"], body["agent"], OnDeath(word(body["on_death"]))
        first = RunInfo(record.run, name, agent, state, on_death, record.at)
        return first._replace(
            key=body.get("key", ""), workflow=body.get("workflow", ""), project=body.get("project", "")
        )
    if record.kind is Kind.OPEN:
        return info._replace(state=state, closed_at=0, due_at=0, awaits="", note="")
    closed = info._replace(state=state, closed_at=record.at, due_at=0, awaits="")
    if state is not RunState.SUSPENDED:
        return closed._replace(note=body.get("error", "") or body.get("why", ""))
    awaits: str = body.get("awaits", "")
    # It came while the run was on its way to wait for it: then there is nothing to wait for.
    missed = bool(awaits) and unread(awaits, body.get("read", 0))
    due_at = record.at if missed else body.get("due", 0)
    return closed._replace(due_at=due_at, awaits=awaits, note=body.get("why", ""))


def _signalled(info: RunInfo | None, record: Record) -> RunInfo:
    if info is None:
        raise Refused(f"There is no run {short(record.run)} that could take a signal.")
    if info.state not in UNFINISHED:
        raise Refused(
            f"Run {short(info.id)} has ended ({info.state.value}) and takes no signal.",
            hint="Nothing was recorded.",
        )
    awaited = bool(info.awaits) and info.awaits == record.body["name"]
    return info._replace(due_at=record.at) if awaited else info


def run_state_after(state: RunState | None, kind: Kind, outcome: str, where: str) -> RunState:
    if kind is Kind.OPEN and state in (None, *UNFINISHED):
        return RunState.OPEN
    if kind is Kind.CLOSE and state in UNFINISHED:
        return RunState(word(outcome))
    raise RecordInvalid(f"{where}: {kind.value!r} cannot follow run state {state!r}.")


class Owner(NamedTuple):
    """A process, named so that another one can check whether it still lives."""

    boot: str  # kernel boot id
    space: str  # pid namespace
    pid: int
    started: str  # start time in clock ticks: a reused pid has another one


class Lease(NamedTuple):
    run: str
    generation: int  # the fence: only the newest may append
    owner: Owner
    expires_at: int  # microseconds, by the clock of the store: comparable with nothing else


class Position(NamedTuple):
    """A moment of the journal. It costs nothing: nothing is recorded until a checkpoint names it."""

    seq: int
    at: int


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
    state_blob: str = ""  # where a long state is


def conversation_of(info: RunInfo) -> str:
    """The name that all runs of a session have in common."""
    return info.name.partition(MEMBER)[0]


def member_of(info: RunInfo) -> str:
    """Kind and id of the subagent whose run it is; "" for a run of the conversation itself."""
    return info.name.partition(MEMBER)[2]


class UnderPrompt(NamedTuple):
    """To which prompt an effect belongs."""

    run: RunInfo
    point: Checkpoint | None  # None: it took hold before the first prompt
    member: RunInfo | None = None  # of the subagent that did it


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
