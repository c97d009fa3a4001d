"""Run a command where it can do no harm, then merge what it changed as one effect."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, Any

from takeback.engine.guards import HOLD
from takeback.engine.write import recorded
from takeback.errors import Drifted, Failed, KeyReused, TakebackError, Unavailable
from takeback.model.change import Change, Phase
from takeback.model.effect import DropReason, Effect
from takeback.model.ids import short
from takeback.model.resource import file_resource
from takeback.runs.commands.merge import ADAPTER, Merge, read_changes, read_merge
from takeback.runs.commands.outcome import CommandOutcome, in_words, of_sandbox, outcome_from_effect
from takeback.runs.commands.pipes import Pipes, TerminalUse
from takeback.runs.commands.request import (
    CommandRequest,
    directory_of,
    refuse_odd,
    refuse_unfit,
    shown,
    told,
    words_of,
)
from takeback.runs.commands.scratch import CommandRoom, hidden, room_of, workshop
from takeback.runs.verbs import Options
from takeback.storage.owners import id_in, note
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.engine.parts import Parts
    from takeback.runs.workflows.replay import Replay
    from takeback.sandbox.protocol import Order, Stack
    from takeback.sandbox.sandbox import Sandbox


def _made_before(parts: "Parts", request: CommandRequest, key: str) -> CommandOutcome | None:
    """A command that changed something, or is held, under this key is not run again. What it printed is lost."""
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
    return found and outcome_from_effect(found)


class Commands(ABC):
    """The part of a run that runs commands."""

    _parts: "Parts"
    _replay: "Replay | None"

    @property
    @abstractmethod
    def id(self) -> str: ...

    @property
    @abstractmethod
    def agent(self) -> str: ...

    @abstractmethod
    def _command_once(self, says: str, asked: str, make: Callable[[], CommandOutcome]) -> CommandOutcome: ...

    @abstractmethod
    def _change(self, build: Callable[[], Change], options: Options) -> Effect | None: ...

    @abstractmethod
    def _hold(self, change: Change, options: Options) -> Effect | None: ...

    @abstractmethod
    def _drop(self, change: Change, reason: DropReason, size: int | None = None) -> Effect | None: ...

    @abstractmethod
    def uninterrupted(self) -> Any: ...

    @abstractmethod
    def _sandbox(self, place: str) -> "Sandbox": ...

    def command(
        self,
        argv: "Sequence[str] | str",
        *,
        cwd: "str | os.PathLike[str] | None" = None,
        env: Mapping[str, str] | None = None,
        network: bool = True,
        timeout: float = 0,
        memory: int = 0,
        processes: int = 0,
        hold: bool = False,
        on_failure: str = "undo",
        stdin: bytes | None = None,
        capture: bool = True,
        dry_run: bool = False,
        key: str = "",
    ) -> CommandOutcome:
        """Run a command over the real filesystem in a layer that nobody else sees. If it ends with 0, exactly what it
        changed is merged into the world as one effect; if not, it is dropped, and for a day `apply` can make it
        after all. A text is run by `/bin/sh -c`."""
        words = words_of(argv)
        refuse_odd(timeout=timeout, memory=memory, processes=processes, env=env, stdin=stdin, key=key)
        request = CommandRequest(
            words, directory_of(cwd), dict(os.environ if env is None else env), network, timeout, memory, processes,
            hold, on_failure, dry_run,
        )  # fmt: skip
        refuse_unfit(request)
        if dry_run:
            return tried(self._parts, request, capture, stdin)
        if self._replay is None:
            return self._run_command(request, capture, stdin, key)
        from takeback.runs.commands import outcome

        asked = outcome.asked_for(request, env, stdin, key)
        return self._command_once(
            shown(request.argv), asked, lambda: self._run_command(request, capture, stdin, key)
        )

    def _run_command(
        self, request: CommandRequest, capture: bool, stdin: bytes | None, key: str
    ) -> CommandOutcome:
        if earlier := _made_before(self._parts, request, key):
            return earlier
        if not capture:
            outcome = self._in_a_layer(request, None, Options(key=key))
            return outcome._replace(text=in_words(outcome))
        with Pipes(stdin) as printed:
            outcome = self._in_a_layer(request, printed, Options(key=key))
        outcome = outcome._replace(stdout=printed.stdout, stderr=printed.stderr)
        return outcome._replace(text=in_words(outcome))

    def _in_a_layer(self, request: CommandRequest, printed: Pipes | None, options: Options) -> CommandOutcome:
        from takeback.sandbox.protocol import Stack

        room = room_of(self._parts)
        with workshop(_workshops(room)) as mine:
            started = time.time_ns()
            layer = os.path.join(mine, "layer")
            order = _order(request, printed, room, started)
            coverage = of_sandbox(room.able, request.network)
            if self._replay is None:  # a step of a workflow is run again
                note(mine, room.store, self.id, self.agent, started, _begun(request, coverage))
                order = order._replace(rescue=True)
            running = self._sandbox(room.able.layers_at).start(order, Stack(), layer)
            use = TerminalUse(order.stdio)
            try:
                with use:
                    ended = running.wait(printed)
            except (KeyboardInterrupt, SystemExit):
                cut = running.rescued
                if cut and cut.layer:
                    with self.uninterrupted():
                        outcome = CommandOutcome(cut.exit_code, coverage=coverage, used_terminal=use.happened)
                        self._unmade(request, outcome, layer, started, DropReason.INTERRUPTED)
                raise
            outcome = CommandOutcome(
                ended.exit_code, coverage=coverage, stopped=ended.stopped, leftover=ended.leftover,
                used_terminal=use.happened,
            )  # fmt: skip
            if not ended.layer:
                return outcome  # nothing was changed
            return self._merged(request, outcome, layer, Stack(), started, options)

    def _merged(
        self,
        request: CommandRequest,
        outcome: CommandOutcome,
        layer: str,
        stack: "Stack",
        since: int,
        options: Options,
    ) -> CommandOutcome:
        """Merged, held or dropped."""
        failed = outcome.exit_code != 0
        if failed and request.on_failure == "undo":
            reason = DropReason.INTERRUPTED if outcome.stopped else DropReason.FAILED
            return self._unmade(request, outcome, layer, since, reason)
        what = change_of(request, outcome, layer)
        limit = self._parts.max_capture_bytes
        progress = self._parts.progress
        found = read_merge(self._parts.blobs, layer, stack, since, what, None, limit, progress)
        outcome = outcome._replace(changes=found.changes)
        if not found.changes and not found.conflicts:
            return outcome
        if not (request.hold or found.conflicts or (failed and request.on_failure == "hold")):
            try:
                with self._lent(found):
                    return outcome._replace(effect=self._change(lambda: found.change, options))
            except Drifted:
                # Someone was quicker, in the last moment: looked at again, so that the conflict has a name.
                found = read_merge(self._parts.blobs, layer, stack, since, what, found, limit, progress)
            except (Failed, Unavailable) as trouble:
                # No room, or a target that cannot be written: the work is not lost, it waits until there is.
                raise self._held_instead(found.change, options, trouble) from trouble
        return outcome._replace(effect=self._hold(found.change, options), conflicts=found.conflicts)

    def _unmade(
        self, request: CommandRequest, outcome: CommandOutcome, layer: str, since: int, reason: DropReason
    ) -> CommandOutcome:
        """It failed. A command that someone typed to waits until someone decides; any other is dropped."""
        from takeback.runs.commands.merge import UNSAVED
        from takeback.sandbox.protocol import Stack

        if outcome.used_terminal:
            try:
                what, limit = change_of(request, outcome, layer), self._parts.max_capture_bytes
                found = read_merge(self._parts.blobs, layer, Stack(), since, what, limit=limit)
                effect = self._hold(found.change, Options()) if found.changes or found.conflicts else None
                return outcome._replace(effect=effect, changes=found.changes, conflicts=found.conflicts)
            except UNSAVED:
                self._parts.blobs.disown()
        return self._dropped(request, outcome, layer, since, reason)

    def _dropped(
        self, request: CommandRequest, outcome: CommandOutcome, layer: str, since: int, reason: DropReason
    ) -> CommandOutcome:
        """Not made. What it had changed is saved for a while, if that can be done."""
        from takeback.runs.commands.merge import drop_layer

        def drop(change: Change) -> Effect | None:
            return self._drop(change, reason)

        saved = drop_layer(self._parts, layer, since, change_of(request, outcome, layer), drop)
        return outcome._replace(dropped=saved.effect, changes=saved.changes, final=saved.final)

    def _lent(self, found: Merge) -> AbstractContextManager[None]:
        """The layer is thrown away afterwards, so its files need not be copied."""
        from takeback.adapters.tree.adapter import TreeAdapter

        adapter = self._parts.adapters.get(ADAPTER)
        if isinstance(adapter, TreeAdapter):
            return adapter.lent(found.change, found.sources)
        return nullcontext()

    def _held_instead(self, change: Change, options: Options, trouble: TakebackError) -> TakebackError:
        try:
            effect = self._hold(change, options)
        except TakebackError:
            return trouble
        if effect:
            trouble.effect = effect.id
            trouble.hint = (
                f"Nothing was changed; what the command did is held. Put that right, then `takeback apply "
                f"{short(effect.id)}` makes it, `takeback discard {short(effect.id)}` drops it."
            )
        return trouble


def tried(
    parts: "Parts", request: CommandRequest, capture: bool = True, stdin: bytes | None = None
) -> CommandOutcome:
    """What a command would change: it runs in a layer that is thrown away. Nothing is recorded, so nobody's run is
    needed."""
    from takeback.runs.boxes.open import rooms_of
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
            changes=read_changes(layer, Stack()) if ended.layer else (),
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
    """What is known of it before it has ended."""
    args = {"argv": told(request.argv), "cwd": file_resource(request.cwd), "coverage": coverage}
    return Change(ADAPTER, "run", file_resource(request.cwd), shown(request.argv), args)
