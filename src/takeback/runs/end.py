"""How a run ends, or is let go of: closed, taken back, suspended, left to the next process."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from takeback.engine.undo import not_accepted, roll_back
from takeback.errors import (
    AwaitingApproval,
    InDoubt,
    ResourceUnreachable,
    StoreFull,
    TakebackError,
    Unavailable,
)
from takeback.model.effect import State
from takeback.model.ids import short
from takeback.model.plan import Outcome, UndoResult
from takeback.model.record import Draft, Kind, Record
from takeback.model.resource import display
from takeback.model.run import Lease, OnDeath, RunState
from takeback.runs import checkpoints
from takeback.runs.core import RunCore
from takeback.runs.workflows.replay import Leaving

_RETURN = "Return a result, or raise what went wrong; run.undo() takes back."
_NAMED = 5


def leave_block(core: RunCore, error: BaseException | None) -> None:
    """The end of `with run:`."""
    try:
        if not core.ended and not core.is_a_childs_copy:
            _left(core, error)
    except (Unavailable, InDoubt) as trouble:
        # That something is in doubt says more about the world than that this cannot be recorded, either.
        if not isinstance(error, InDoubt):
            raise
        error.add_note(f"Run {short(core.id)} could not be ended: {trouble}")
    finally:
        if core.signals:
            core.signals.release()


def _left(core: RunCore, error: BaseException | None) -> None:
    on_death = core.info.on_death
    if on_death is OnDeath.LEAVE:
        leave(core)
        return
    try:
        if error is None:
            close(core)
        elif isinstance(error, AwaitingApproval) and on_death is not OnDeath.FINISH:
            suspend(core, str(error))
        elif on_death is OnDeath.ACCEPT:
            # That something of it is in doubt keeps it from ending, and the error tells more.
            with suppress(InDoubt):
                close(core)
        elif on_death is OnDeath.FINISH:
            from takeback.engine.recover import end_undo

            with core.lock, core.uninterrupted():
                end_undo(core.parts, core.lease, core.info)
                let_go(core)
        elif isinstance(error, KeyboardInterrupt) or (core.signals and core.signals.arrived):
            suspend(core, f"interrupted: {type(error).__name__}")
        else:
            result, dropped = _taken_back(core)
            if result.targets or dropped:
                error.add_note(note(core.name, result, dropped))
    finally:
        if not core.ended:
            let_go(core)  # it could not be ended: recovery settles it


def close(core: RunCore, failed: str = "") -> None:
    core.refuse_in_workflow("Ending the run", _RETURN)
    with core.uninterrupted():
        _end(core, RunState.ACCEPTED, {"error": failed} if failed else None)
        core.keep_up(core.id)


def suspend(core: RunCore, label: str) -> None:
    core.refuse_in_workflow("Suspending the run", "Use run.sleep or run.wait.")
    with core.lock:
        core.calls.quiet()
        core.refuse_ended()
        core.append(checkpoints.draft(core.id, label, automatic=True))
        _end(core, RunState.SUSPENDED)


def take_back(core: RunCore) -> UndoResult:
    core.refuse_in_workflow("Ending the run", _RETURN)
    return _taken_back(core)[0]


def leave(core: RunCore) -> None:
    core.refuse_in_workflow("Leaving the run", _RETURN)
    with core.lock:
        if core.joined:
            core.joined -= 1
            return
        core.calls.quiet()
        let_go(core)


def join_again(core: RunCore) -> bool:
    """Another part of this process works on it too; False if it is over here. Each of them leaves it."""
    with core.lock:
        if core.ended or core.is_a_childs_copy:
            return False
        core.joined += 1
        return True


def let_go(core: RunCore) -> None:
    """Whatever becomes of the run, this process has no part in it any more."""
    with core.lock:
        if core.released:
            return
        core.ended = True
        if core.rooms is not None:
            core.rooms.close()
            core.rooms = None
        if core.is_a_childs_copy:
            return
        for watched in core.trees.values():
            watched.close()
        core.trees.clear()
        core.close_databases()
        core.heartbeat.stop()
        if not core.freed:
            with suppress(ResourceUnreachable):  # then it expires, or ends with this process
                core.parts.leases.release(core.lease)
        core.released = True


@contextmanager
def lent(core: RunCore) -> Generator[Lease | None, None, None]:
    """Its lease, for a decision on what it holds; None once it has ended."""
    with core.lock:
        core.calls.quiet()
        yield None if core.ended else core.lease


# By its worker.


def end_workflow(core: RunCore, told: dict[str, str]) -> None:
    """End the run; its effects stay. `told`: the result, or the error."""
    with core.lock:
        _end(core, RunState.ACCEPTED, told)
    with suppress(TakebackError):  # the next run that ends tries again to bring the store under its caps
        core.keep_up(core.id)


def suspend_workflow(core: RunCore, leaving: Leaving) -> None:
    """Let go of it until it is due. An effect that is in doubt stays so."""
    with core.lock:
        core.calls.quiet()
        core.refuse_ended()
        drafts = [checkpoints.draft(core.id, leaving.label, automatic=True)] if leaving.label else []
        try:
            core.parts.journal.append(core.lease, [*drafts, Draft(Kind.CLOSE, core.id, "", leaving.body)])
        finally:
            let_go(core)


def _taken_back(core: RunCore) -> tuple[UndoResult, int]:
    """Also how many changes that were held were dropped."""
    from takeback.engine.close_run import close_rolled_back
    from takeback.engine.recover import settle_open

    with core.lock, core.uninterrupted():
        core.calls.quiet()
        core.refuse_ended()
        settle_open(core.parts, core.lease)
        dropped = 0
        if core.databases:
            from takeback.engine.review import drop_all

            dropped = drop_all(core.parts, core.lease)
        core.close_databases()  # a file that goes back must not be open in a session of ours
        result = roll_back(core.parts, core.lease, not_accepted(core.parts, core.id), core.agent)
        close_rolled_back(core.parts, core.lease, result, RunState.UNDONE.value)
        let_go(core)
        return result, dropped


def _end(core: RunCore, state: RunState, told: dict[str, str] | None = None) -> None:
    from takeback.engine.close_run import closing
    from takeback.engine.recover import open_in, settle_all
    from takeback.engine.settled import stands

    with core.lock:
        core.calls.quiet()
        core.refuse_ended()
        if core.closed:
            let_go(core)
            return
        try:
            # Something is still in flight only if the store failed between a change and its record, or if the world
            # could not be asked whether a call has happened, or what a command changed could not be recorded.
            not_settled = open_in(core.parts, core.id)
            found = settle_all(core.parts, core.lease, not_settled)
            left = [one for one in found if one.outcome == "left"]
            if left and state is RunState.ACCEPTED:
                raise InDoubt(
                    f"Run {short(core.id)} cannot end: {left[0].summary} {stands(left[0])}",
                    hint="It stays open. `takeback recover` asks again, and then ends it as if it had been killed: "
                    f"on_death is {core.info.on_death.value!r}.",
                    effect=left[0].effect,
                )
            end = closing(core.parts, core.id, {"outcome": state.value, **(told or {})}, not_settled)
            try:
                _record(core, end)
            except StoreFull:
                _record(core, end)  # on a full disk there is room for this
        finally:
            # A run that could not be ended is not held either: recovery settles it.
            let_go(core)


def _record(core: RunCore, end: list[Draft]) -> tuple[Record, ...]:
    """Its end; the lease is released with that, if nothing else has to be let go of first."""
    if core.parts.at_once is None or core.rooms or core.trees or core.databases:
        records = core.parts.journal.append(core.lease, end)
    else:
        core.heartbeat.stop()
        with core.parts.at_once():
            records = core.parts.journal.append(core.lease, end)
            core.parts.leases.release(core.lease)
        core.freed = True
    core.closed = True
    return records


class ClosingJournal:
    """The journal of a run with a single effect: when that is done, the same commit ends the run."""

    def __init__(self, core: RunCore) -> None:
        self._core = core

    def append(self, lease: Lease | None, drafts: Sequence[Draft]) -> tuple[Record, ...]:
        if [one.kind for one in drafts] != [Kind.DONE]:
            return self._core.parts.journal.append(lease, drafts)
        end = Draft(Kind.CLOSE, self._core.id, "", {"outcome": RunState.ACCEPTED.value})
        return _record(self._core, [*drafts, end])[:1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core.parts.journal, name)


# The note on the error of a run that failed and was taken back.


def note(name: str, result: UndoResult, dropped: int = 0) -> str:
    """`dropped`: changes that were held, and never came to be."""
    back = len({one.id for one in result.effects if one.state is State.UNDONE})
    text = f"takeback: run {name!r} failed and took back {back} of its effects"
    if dropped:
        text += f" and dropped {dropped} that {'were' if dropped > 1 else 'was'} held in a database, for good"
    return " ".join((text + _stay(result), *_of_watches(result)))


def _stay(result: UndoResult) -> str:
    """What stays for the same reason is named once."""
    stay: dict[str, dict[str, None]] = {}  # the paths, by why
    for one in result.targets:
        if one.outcome in ("conflict", "failed", "excluded"):
            stay.setdefault(one.detail, {})[display(one.resource)] = None
    if not stay:
        return "."
    told = [_folded(list(paths), why) for why, paths in list(stay.items())[:_NAMED]]
    if len(stay) > _NAMED:
        told.append("…")
    count = len({path for paths in stay.values() for path in paths})
    return f"; {count:,} target{'s stay' if count > 1 else ' stays'}: {'; '.join(told)}"


def _folded(paths: list[str], why: str) -> str:
    first = f"{paths[0]} {why}".strip()
    if len(paths) == 1:
        return first
    others = ", ".join(paths[1:_NAMED])
    more = f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else ""
    return f"{first.rstrip('.')} (so {others}{more})"


def _of_watches(result: UndoResult) -> Iterator[str]:
    """Changes by others in a watched directory count as changes of the run: so name the paths."""
    from takeback.adapters.tree.targets import WATCH

    for undo in result.undo:
        if undo.of is None or undo.of.change.kind != WATCH:
            continue
        names = [
            display(one.resource)
            for one in result.targets
            if one.effect == undo.undoes and one.outcome is Outcome.UNDONE
        ]
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        yield (
            f"In watched directories, these changes were taken back, by any author: {', '.join(names[:_NAMED])}"
            f"{more}; `takeback redo {short(undo.id)}` brings it back."
        )
