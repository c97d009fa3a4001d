"""Durable workflows of an opened store: submit, signal, result, resume, work."""

import json
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from takeback.errors import Failed, KeyReused, Misuse, Refused, Stuck, TakebackError, Unavailable
from takeback.model.effect import PERSON, Effect, State
from takeback.model.format_1 import with_fields
from takeback.model.functions import refuse_while_looking
from takeback.model.ids import new_id, short
from takeback.model.record import Draft, Kind, canonical
from takeback.model.run import NEVER, SETTLED, Lease, OnDeath, RunInfo, RunState, needs_attention
from takeback.runs.scope import opening
from takeback.runs.selection import name_of, refuse_odd_key, run_of
from takeback.storage.owners import myself
from takeback.storage.protocols import Query
from takeback.upkeep import Upkeep, now

if TYPE_CHECKING:
    from takeback.model.plan import UndoResult
    from takeback.model.run import Checkpoint
    from takeback.runs.run import Run
    from takeback.runs.workflows.function import Workflow
    from takeback.runs.workflows.worker import Worker

_ENDED = (RunState.ACCEPTED, RunState.UNDONE, RunState.PARTLY)
_BEING_TAKEN_BACK = "is being taken back"
_SOONEST, _LATEST = 0.01, 0.5  # seconds between two looks for an end


class Workflows(Upkeep):
    """The part of a store opened that makes runs which outlive their worker."""

    @abstractmethod
    def _acquire(self, run: str, wait: float) -> Lease: ...

    @abstractmethod
    def _run(self, info: RunInfo, lease: Lease, begun: int = 0) -> "Run": ...

    @abstractmethod
    def undo(self, what: Any) -> "UndoResult": ...

    def submit(
        self,
        workflow: "Workflow",
        *args: Any,
        key: str = "",
        agent: str = "",
        name: str = "",
        **kwargs: Any,
    ) -> RunInfo:
        """A run of that workflow, which a worker (`takeback worker MODULE`) carries out; the arguments are JSON. With a
        key it is submitted once: again it is the run that is there, and with other arguments it is refused."""
        from takeback.runs.workflows.function import arguments_of, refuse_unfindable

        found = refuse_unfindable(workflow)
        return self.submit_named(
            found.name, arguments_of(found, args, kwargs), key=key, agent=agent, name=name
        )

    def submit_named(
        self, workflow: str, arguments: str, *, key: str = "", agent: str = "", name: str = ""
    ) -> RunInfo:
        for what, given in (("key", key), ("agent", agent), ("name", name)):
            if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise Misuse(
                    f"The {what} of a run is text, not {given!r}.", hint=f'For example {what}="deploy-42".'
                )
        refuse_odd_key(key)
        name = name or workflow.rpartition(":")[2]
        body = {
            "name": name,
            "agent": agent,
            "on_death": OnDeath.RESUME.value,
            "workflow": workflow,
            "arguments": arguments,
        } | ({"key": key} if key else {})
        belongs = opening(self.store.journal)
        body |= belongs
        canonical(body)
        refuse_while_looking()
        self.store.refuse_if_suspect()
        self._before_change()
        if key and (there := self._submitted(key, workflow, arguments)):
            return there
        id = new_id()
        try:
            (record,) = self.store.journal.append(None, [Draft(Kind.OPEN, id, "", body)])
        except KeyReused:
            # Another process was quicker.
            there = self._submitted(key, workflow, arguments)
            if there is None:
                raise
            return there
        project: str = belongs.get("project", "")
        return RunInfo(
            id,
            name,
            agent,
            RunState.OPEN,
            OnDeath.RESUME,
            record.at,
            key=key,
            workflow=workflow,
            project=project,
        )

    def _submitted(self, key: str, workflow: str, arguments: str) -> RunInfo | None:
        info = next(self.store.journal.runs(key=key), None)
        if info is None:
            return None
        opened = next(self.store.journal.records(run=info.id, kinds=(Kind.OPEN,)))
        if (info.workflow, opened.body.get("arguments")) != (workflow, arguments):
            raise KeyReused(
                f"The key {key!r} was used for another run: {info.workflow} with {_cut(opened.body['arguments'])}.",
                hint=f"Nothing was submitted. Give every piece of work its own key; that one is run {short(info.id)}.",
            )
        return info

    def signal(self, run: "str | RunInfo | Run", event: str, data: Any = None) -> None:
        """Tell a run something (JSON): what `run.wait(event)` in it returns, now or later."""
        info = self._named(run)
        if not isinstance(event, str) or not event.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(
                "A signal needs the name of an event.", hint='For example tb.signal(run, "approved").'
            )
        from takeback.model.functions import as_json

        body = {"name": event, "data": as_json(data, "The data of a signal")}
        self._before_change()
        self.store.journal.append(None, [Draft(Kind.SIGNAL, info.id, "", body)])

    def result(self, run: "str | RunInfo | Run", timeout: float | None = None) -> Any:
        """What the workflow returned, when it has; or the error that ended it. `Unavailable` when it has not ended
        within that many seconds, `Stuck` when it cannot go on without a person."""
        if timeout is not None and not (type(timeout) in (int, float) and 0 <= timeout < 1e9):
            raise Misuse(f"A time of {timeout!r} seconds makes no sense.", hint="For example timeout=60.")
        info = self._named(run)
        if info.on_death is not OnDeath.RESUME:
            raise Misuse(
                f"Run {short(info.id)} ({info.name}) is no workflow, so it returns nothing.",
                hint="`takeback show` tells how it stands.",
            )
        until = None if timeout is None else time.monotonic() + timeout
        pause = _SOONEST
        while True:
            info = next(self.store.journal.runs((info.id,)))
            if info.state in _ENDED:
                return self._ended(info)
            if needs_attention(info):
                raise Stuck(
                    f"Run {short(info.id)} cannot continue: {info.note}",
                    hint=f"`takeback show {short(info.id)}` tells what is known.",
                )
            left = pause if until is None else until - time.monotonic()
            if left <= 0:
                raise Unavailable(
                    f"Run {short(info.id)} has not ended yet ({info.note or info.state.value}).",
                    hint="Wait longer, and see that a worker is there: `takeback worker MODULE`.",
                )
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, _LATEST)

    def _ended(self, info: RunInfo) -> Any:
        from takeback.runs.workflows.replay import error_from_json

        *_, closed = self.store.journal.records(run=info.id, kinds=(Kind.CLOSE,))
        if "error" in closed.body:
            kind = closed.body.get("error_type", "Failed")
            hint: str = closed.body.get("hint", "")
            error = error_from_json({"type": kind, "message": closed.body["error"], "hint": hint})
            if not isinstance(error, TakebackError):
                error = Failed(closed.body["error"], hint=hint)
            raise error
        if "result" not in closed.body:
            raise Refused(
                f"Run {short(info.id)} was taken back ({info.state.value}).", hint="It has no result."
            )
        return json.loads(closed.body["result"])

    def work(self, *workflows: "Workflow", concurrency: int = 1, until_idle: bool = False) -> int:
        """Be a worker for these workflows, in this thread, until it is interrupted; with `until_idle` until nothing is
        due. How many times a run was gone on with. `takeback worker MODULE` does this in a process of its own."""
        from takeback.runs.workflows.function import refuse_unfindable

        known = {one.name: one for one in map(refuse_unfindable, workflows)}
        worker = self.worker(known, concurrency, self._tell)
        try:
            worker.work(until_idle=until_idle)
        except BaseException:
            worker.stop()
            worker.work()  # until the runs at hand have come to their next step
            raise
        return worker.worked

    def worker(
        self,
        workflows: "dict[str, Workflow]",
        concurrency: int = 1,
        tell: Callable[[str], None] = lambda words: None,
    ) -> "Worker":
        from takeback.runs.workflows.worker import Worker, Workplace

        if not workflows:
            raise Misuse(
                "A worker needs at least one workflow.", hint="Give it functions with @takeback.workflow."
            )
        if type(concurrency) is not int or concurrency < 1:
            raise Misuse(f"{concurrency!r} runs at a time make no sense.", hint="Give 1 or more.")
        self.store.refuse_if_suspect()
        self._before_change(calls=True)
        place = Workplace(self.parts, now, self._lease_lasts, self._run, self.store.wait_for_work)
        return Worker(place, workflows, concurrency, tell)

    def _named(self, run: "str | RunInfo | Run") -> RunInfo:
        name = name_of(run, "run")
        return (
            run_of(self.store.journal, name)
            if isinstance(run, str)
            else next(self.store.journal.runs((name,)))
        )

    # Going on.

    def resume(
        self, run: "str | RunInfo", wait: float = 0, *, from_checkpoint: "Checkpoint | str | None" = None
    ) -> "Run":
        """Go on with a run that was suspended or left open. From a checkpoint: what came after it is taken back, and
        `run.state` is the agent's own state then. A workflow is not gone on with here: it is due for a worker from now,
        and the run that is returned was let go of."""
        from takeback.runs.checkpoints import state_of

        info = run_of(self.store.journal, run) if isinstance(run, str) else run
        _refuse_over(info)
        self._before_change()
        lease = self._acquire(info.id, wait)
        try:
            # Asked again now that nobody else can add to it: keys are made from how many effects it has.
            info = next(self.store.journal.runs((info.id,)))
            _refuse_over(info)
            durable = info.on_death is OnDeath.RESUME
            if not durable or from_checkpoint is not None:
                self._settle_calls(info, lease)
            point = self._gone_back(info, lease, from_checkpoint) if from_checkpoint is not None else None
            if point is None and (durable or info.state is RunState.SUSPENDED):
                self.store.journal.append(lease, [Draft(Kind.OPEN, info.id, "", {"resumed": True})])
            if durable:
                due = {"outcome": RunState.SUSPENDED.value, "why": "is due for a worker"}
                self.store.journal.append(lease, [Draft(Kind.CLOSE, info.id, "", due)])
            resumed = self._run(next(self.store.journal.runs((info.id,))), lease)
        except BaseException:
            self.store.leases.release(lease)
            raise
        resumed.state = state_of(self.store.blobs, point)
        if durable:
            resumed.leave()
        return resumed

    def _settle_calls(self, info: RunInfo, lease: Lease) -> None:
        """Of a run that goes on, or ends: whether calls that its process left in the middle have happened."""
        from takeback.engine.recover import open_in, settle_all
        from takeback.engine.settled import named
        from takeback.model.resource import function_in

        left = [one for one in open_in(self.parts, info.id) if function_in(one.change.resource)]
        left = [one for one in left if one.waits_for != PERSON]
        if left:
            functions = ", ".join(named(iter(left)))
            self._tell(f"Continuing run {short(info.id)} ({info.name}) calls functions of {functions}.")
            settle_all(self.parts, lease, left)

    def _gone_back(self, info: RunInfo, lease: Lease, checkpoint: "Checkpoint | str") -> "Checkpoint":
        """What came after the checkpoint is taken back. That it is to be is recorded first: whoever finds this
        unfinished goes on with it."""
        from takeback.engine.recover import settle_open
        from takeback.engine.stuck import Taker
        from takeback.engine.undo import Undoer
        from takeback.runs.workflows.replay import steps_before
        from takeback.runs.workflows.rewind import BACK, go_back, point_of

        point = point_of(self.parts, info.id, checkpoint)
        settle_open(self.parts, lease)
        told: dict[str, Any] = {"resumed": True, "from": point.id, BACK: point.seq}
        if info.on_death is OnDeath.RESUME:
            told["step"] = steps_before(self.store.journal, info.id, point.seq)
        undoer = Undoer(lease, info.agent, Taker(myself(), now(), self._lease_lasts))
        go_back(self.parts, point, undoer, Draft(Kind.OPEN, info.id, "", told))
        return point

    def _wake_settled(self) -> None:
        for info in self.store.journal.runs(unfinished=True):
            if needs_attention(info) and info.awaits:
                effect = next(
                    self.store.journal.effects(Query(ids=(info.awaits.removeprefix(SETTLED),))), None
                )
                if effect and effect.state is not State.STUCK:
                    self.signal(info, info.awaits, effect.state.value)

    def _go_on_undoing(self, run: str) -> None:
        """What kept a run from being taken back is known now."""
        from takeback.runs.selection import stuck_in

        for info in self.store.journal.runs((run,)):
            going = self._unfinished_workflow(info) and self._is_being_taken_back(info)
            if going and not stuck_in(self.store.journal, info):
                with suppress(TakebackError):  # it waits as before, and status tells
                    self.undo(info)

    def _is_being_taken_back(self, info: RunInfo) -> bool:
        closed = tuple(self.store.journal.records(run=info.id, kinds=(Kind.CLOSE,)))
        suspended = info.state is RunState.SUSPENDED and bool(closed)
        return suspended and with_fields(Kind.CLOSE, closed[-1].body).get("taking_back", False)

    def _unfinished_workflow(self, what: Any) -> RunInfo | None:
        """The run that is meant, if it is one of a workflow that has not ended."""
        if isinstance(what, Effect):
            return None
        name: Any = getattr(what, "id", what)
        if isinstance(name, (list, tuple)):
            several = cast("Sequence[Any]", name)
            return self._unfinished_workflow(several[0]) if len(several) == 1 else None
        info = next(self.store.journal.runs((name,)), None) if isinstance(name, str) and name else None
        return info if info and info.on_death is OnDeath.RESUME and info.state not in _ENDED else None

    def _end_by_undo(self, info: RunInfo, undo: "Callable[[bool], UndoResult]") -> "UndoResult":
        """Take back what it did, and end it. While that goes on no worker goes on with it."""
        from takeback.engine.close_run import closing
        from takeback.engine.recover import open_in, settle_open
        from takeback.model.plan import UndoResult
        from takeback.runs.selection import stuck_in

        run = self._run(info, self._acquire(info.id, 0))
        try:
            self._settle_calls(info, run.lease)
            settle_open(self.parts, run.lease)
            anything = any(
                self.store.journal.effects(Query(run=info.id, states=(State.DONE, State.PROPOSED)))
            )
            if anything:
                undo(True)  # what is refused is refused before anything changes
            why: dict[str, Any] = {
                "outcome": RunState.SUSPENDED.value,
                "why": _BEING_TAKEN_BACK,
                "due": NEVER,
            }
            why["taking_back"] = True
            self._reopen(info, run.lease, [Draft(Kind.CLOSE, info.id, "", why)])
            try:
                result = undo(False) if anything else UndoResult("done", (), ())
            except Refused:
                self._reopen(info, run.lease, [Draft(Kind.CLOSE, info.id, "", self._waiting_as_before(info))])
                raise
            if not stuck_in(self.store.journal, info):
                outcome = RunState.UNDONE if result.outcome == "done" else RunState.PARTLY
                told = {"outcome": outcome.value, "error": "It was taken back.", "error_type": "Refused"}
                left = open_in(self.parts, info.id)
                self._reopen(info, run.lease, closing(self.parts, info.id, told, left))
            return result
        finally:
            run.leave()

    def _waiting_as_before(self, info: RunInfo) -> dict[str, Any]:
        from takeback.runs.workflows.replay import Leaving, history_of

        read = history_of(self.store.journal, info.id).read.get(info.awaits, 0)
        return Leaving(info.note, info.due_at, info.awaits, read).body

    def _reopen(self, info: RunInfo, lease: Lease, end: list[Draft]) -> None:
        """To be closed again, in another way."""
        opened = Draft(Kind.OPEN, info.id, "", {"resumed": True})
        self.store.journal.append(lease, [opened, *end])


def _refuse_over(info: RunInfo) -> None:
    if info.state in _ENDED:
        raise Refused(f"Run {short(info.id)} has ended ({info.state.value}).", hint="Start another one.")


def _cut(text: str) -> str:
    return text if len(text) <= 100 else text[:99] + "…"
