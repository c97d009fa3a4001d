"""Run a command where it can do no harm, then merge what it changed as one effect."""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING

from takeback.adapters.protocol import Lending
from takeback.engine.guards import HOLD, refuse_command
from takeback.engine.stop import refuse_stopped
from takeback.engine.write import recorded
from takeback.errors import (
    AwaitingApproval,
    Drifted,
    Failed,
    KeyReused,
    Refused,
    Stopped,
    TakebackError,
    Unavailable,
)
from takeback.model.change import Change, Phase
from takeback.model.effect import DropReason, Effect
from takeback.model.ids import short
from takeback.model.resource import file_resource
from takeback.runs.change import Options, drop_change, hold_change, make_change
from takeback.runs.commands import outcome as outcomes
from takeback.runs.commands.merge import (
    ADAPTER,
    UNSAVED,
    Merge,
    drop_layer,
    read_changes,
    read_merge,
    read_moves,
)
from takeback.runs.commands.outcome import CommandOutcome, in_words, of_sandbox
from takeback.runs.commands.request import CommandRequest, Pipes, TerminalUse, shown, told
from takeback.runs.commands.scratch import CommandRoom, hidden, room_of, workshop
from takeback.runs.core import RunCore, rooms_of
from takeback.runs.stopped import ended_by_stop, with_drop
from takeback.runs.workflows.durable import in_step, once
from takeback.runs.workflows.replay import COMMAND, Replay, WorkflowStep
from takeback.storage.owners import id_in, note
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.engine.parts import Parts
    from takeback.sandbox.protocol import Order


def run_command(
    core: RunCore,
    request: CommandRequest,
    env: Mapping[str, str] | None,
    stdin: bytes | None,
    capture: bool,
    key: str,
) -> CommandOutcome:
    """`env` as it was given: in a workflow the step is known by it."""
    if request.dry_run:
        return tried(core.parts, request, capture, stdin)
    if core.replay is None:
        return _run_command(core, request, capture, stdin, key)
    return _step(
        core,
        core.replay,
        shown(request.argv),
        outcomes.asked_for(request, env, stdin, key),
        lambda: _run_command(core, request, capture, stdin, key),
    )


def _step(
    core: RunCore, replay: Replay, says: str, asked: str, make: Callable[[], CommandOutcome]
) -> CommandOutcome:
    """In a workflow: what it changed is the effect of the same step."""

    def effect_of(id: str) -> Effect | None:
        return next(core.parts.journal.effects(Query(ids=(id,))), None) if id else None

    def run_it() -> CommandOutcome:
        with in_step(core, replay, asked):
            outcome = outcomes.kept_outcome(make())
        return outcome._replace(dropped=effect_of(outcome.dropped.id)) if outcome.dropped else outcome

    def again(step: WorkflowStep) -> CommandOutcome:
        if "outcome" in step.body:
            dropped = effect_of(step.body.get(outcomes.DROPPED, ""))
            return outcomes.outcome_from_json(step.body, step.effect, dropped)
        assert step.effect
        outcome = outcomes.outcome_from_effect(step.effect)
        core.append(replay.draft(COMMAND, says, asked, outcomes.outcome_to_json(outcome)))
        return outcome

    return once(core, replay, COMMAND, says, asked, run_it, outcomes.outcome_to_json, again)


def _made_before(parts: "Parts", request: CommandRequest, key: str) -> CommandOutcome | None:
    """A command that has changed something, or is held, under this key does not run again. Its output is lost."""
    earlier = next(parts.journal.effects(Query(key=key)), None) if key else None
    if earlier is None:
        return None
    if earlier.change.args.get("argv") != told(request.argv):
        raise KeyReused(
            f"The key {key!r} was used for another change: {earlier.change.summary}.",
            hint="Give every command its own key.",
            effect=earlier.id,
        )
    found = recorded(parts, earlier.change, key, HOLD)
    return found and outcomes.outcome_from_effect(found)


def _run_command(
    core: RunCore, request: CommandRequest, capture: bool, stdin: bytes | None, key: str
) -> CommandOutcome:
    if earlier := _made_before(core.parts, request, key):
        return earlier
    refuse_command(core.parts, core.id, core.agent, _begun(request, ""))
    if not capture:
        outcome = _in_a_layer(core, request, None, Options(key=key))
        return outcome._replace(text=in_words(outcome))
    with Pipes(stdin) as printed:
        outcome = _in_a_layer(core, request, printed, Options(key=key))
    outcome = outcome._replace(stdout=printed.stdout, stderr=printed.stderr)
    return outcome._replace(text=in_words(outcome))


def _in_a_layer(
    core: RunCore, request: CommandRequest, printed: Pipes | None, options: Options
) -> CommandOutcome:
    from takeback.sandbox.protocol import Stack

    room = room_of(core.parts)
    with workshop(_workshops(room)) as mine:
        started = time.time_ns()
        layer = os.path.join(mine, "layer")
        order = _order(request, printed, room, started)
        coverage = of_sandbox(room.able, request.network)
        if core.replay is None:  # a step of a workflow is run again
            note(mine, room.store, core.id, core.agent, started, _begun(request, coverage))
            order = order._replace(rescue=True)
        refuse_stopped(core.parts, core.agent, core.id)
        running = core.sandbox(room.able.layers_at).start(order, Stack(), layer)
        use = TerminalUse(order.stdio)
        try:
            with use, ended_by_stop(core, running.end):
                ended = running.wait(printed)
        except (KeyboardInterrupt, SystemExit):
            cut = running.rescued
            if cut and cut.layer:
                with core.uninterrupted():
                    outcome = CommandOutcome(cut.exit_code, coverage=coverage, used_terminal=use.happened)
                    _unmade(core, request, outcome, layer, started, DropReason.INTERRUPTED)
            raise
        outcome = CommandOutcome(
            ended.exit_code, coverage=coverage, stopped=ended.stopped, leftover=ended.leftover,
            used_terminal=use.happened,
        )  # fmt: skip
        try:
            refuse_stopped(core.parts, core.agent, core.id)
            if not ended.layer:
                return outcome  # nothing was changed
            return _merged(core, request, outcome, layer, started, options)
        except Stopped as error:
            if ended.layer:
                outcome = _unmade(core, request, outcome, layer, started, DropReason.INTERRUPTED)
            raise with_drop(error, outcome.dropped, outcome.final) from None


def _merged(
    core: RunCore,
    request: CommandRequest,
    outcome: CommandOutcome,
    layer: str,
    since: int,
    options: Options,
) -> CommandOutcome:
    failed = outcome.exit_code != 0
    if failed and request.on_failure == "undo":
        reason = DropReason.INTERRUPTED if outcome.stopped else DropReason.FAILED
        return _unmade(core, request, outcome, layer, since, reason)
    what = change_of(request, outcome, layer)
    limit = core.parts.max_capture_bytes
    progress = core.parts.progress
    found = read_merge(core.parts.blobs, layer, since, what, None, limit, progress)
    outcome = outcome._replace(changes=found.changes)
    if not found.changes and not found.conflicts:
        return outcome
    if core.forbids and (why := core.forbids(found)):
        raise Refused(why)
    if not (request.hold or found.conflicts or (failed and request.on_failure == "hold")):
        try:
            with _lent(core, found):
                return outcome._replace(effect=make_change(core, lambda: found.change, options))
        except AwaitingApproval as waits:
            # A rule wants a person to see it first: it is held.
            return outcome._replace(effect=core.effect(waits.effect or ""), conflicts=found.conflicts)
        except Drifted:
            # Someone was quicker, in the last moment: looked at again, so that the conflict has a name.
            found = read_merge(core.parts.blobs, layer, since, what, found, limit, progress)
        except (Failed, Unavailable) as trouble:
            # No room, or a target that cannot be written: the work is not lost, it waits until there is.
            raise _held_instead(core, found.change, options, trouble) from trouble
    return outcome._replace(effect=hold_change(core, found.change, options), conflicts=found.conflicts)


def _unmade(
    core: RunCore,
    request: CommandRequest,
    outcome: CommandOutcome,
    layer: str,
    since: int,
    reason: DropReason,
) -> CommandOutcome:
    """It failed. A command that someone typed to waits until someone decides. Any other is dropped: what it had changed
    is saved for a while, if that can be done."""
    what = change_of(request, outcome, layer)
    if outcome.used_terminal:
        try:
            found = read_merge(core.parts.blobs, layer, since, what, limit=core.parts.max_capture_bytes)
            effect = hold_change(core, found.change, Options()) if found.changes or found.conflicts else None
            return outcome._replace(effect=effect, changes=found.changes, conflicts=found.conflicts)
        except UNSAVED:  # also if it was stopped, since then nothing is held any more
            core.parts.blobs.disown()
    saved = drop_layer(core.parts, layer, since, what, lambda change: drop_change(core, change, reason))
    return outcome._replace(dropped=saved.effect, changes=saved.changes, final=saved.final)


def _lent(core: RunCore, found: Merge) -> AbstractContextManager[None]:
    """The layer is thrown away afterwards, so its files need not be copied."""
    adapter = core.parts.adapters.get(ADAPTER)
    if isinstance(adapter, Lending):
        return adapter.lent(found.change, found.sources)
    return nullcontext()


def _held_instead(core: RunCore, change: Change, options: Options, trouble: TakebackError) -> TakebackError:
    try:
        effect = hold_change(core, change, options)
    except TakebackError:
        return trouble
    if effect:
        trouble.effect = effect.id
        trouble.hint = (
            f"Nothing was changed; the changes of the command are held. Fix that, then run `takeback apply "
            f"{short(effect.id)}`, or drop them with `takeback discard {short(effect.id)}`."
        )
    return trouble


def tried(
    parts: "Parts", request: CommandRequest, capture: bool = True, stdin: bytes | None = None
) -> CommandOutcome:
    """What a command would change: it runs in a layer that is thrown away. Nothing is recorded, so no run is needed."""
    from takeback.sandbox.protocol import Stack

    room = room_of(parts)
    with ExitStack() as stack:
        printed = stack.enter_context(Pipes(stdin)) if capture else None
        mine = stack.enter_context(workshop(_workshops(room)))
        rooms = rooms_of(parts, room.able.layers_at)
        stack.callback(rooms.close)
        layer = os.path.join(mine, "layer")
        order = _order(request, printed, room, time.time_ns())
        ended = rooms.start(order, Stack(), layer).wait(printed)
        outcome = CommandOutcome(
            ended.exit_code,
            coverage=of_sandbox(room.able, request.network),
            stopped=ended.stopped,
            leftover=ended.leftover,
            changes=read_changes(layer) if ended.layer else (),
            moves=tuple(read_moves(layer)) if ended.layer else (),
        )
    if printed:
        outcome = outcome._replace(stdout=printed.stdout, stderr=printed.stderr)
    return outcome._replace(text=in_words(outcome))


def _workshops(room: CommandRoom) -> str:
    return os.path.join(room.able.layers_at, "commands")


def _order(request: CommandRequest, printed: Pipes | None, room: CommandRoom, started: int) -> "Order":
    from takeback.sandbox.protocol import Order

    stdio = printed.stdio if printed else (0, 1, 2)
    return Order(
        request.argv, request.cwd, request.env, stdio, request.network, request.timeout, request.memory,
        request.processes, hidden=hidden(room.store, _workshops(room)), after=started,
        keep_empty=False,
    )  # fmt: skip


def change_of(request: CommandRequest, outcome: CommandOutcome, layer: str) -> Change:
    begun = _begun(request, outcome.coverage)
    workshop = id_in(os.path.basename(os.path.dirname(layer)))
    return begun._replace(args=begun.args | {"exit_code": outcome.exit_code}, phase=Phase(workshop=workshop))


def _begun(request: CommandRequest, coverage: str) -> Change:
    args = {
        **request.about, "argv": told(request.argv), "cwd": file_resource(request.cwd), "coverage": coverage
    }  # fmt: skip
    return Change(ADAPTER, "run", file_resource(request.cwd), request.says or shown(request.argv), args)
