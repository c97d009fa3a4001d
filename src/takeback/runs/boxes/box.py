"""A box: commands one after another over a root filesystem, each with a way back, none seen outside until it is
committed."""

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from takeback.adapters.box import box_change, due, is_long, read_variables, shorten, squash_below
from takeback.engine.guards import refuse_command
from takeback.engine.plan import Wishes
from takeback.engine.stop import refuse_stopped
from takeback.errors import KeyReused, Misuse, Stopped
from takeback.model.box import Point
from takeback.model.change import on_conflict_named
from takeback.model.effect import DropReason, Effect, State
from takeback.model.ids import short
from takeback.model.plan import UndoResult
from takeback.model.resource import file_resource
from takeback.model.run import Checkpoint
from takeback.runs.boxes import history
from takeback.runs.boxes.command import (
    BoxDrop,
    BoxOutcome,
    Cut,
    Ran,
    changed_files,
    drop_all,
    drop_step,
    expect,
    in_words,
    is_somewhere_else,
    listed,
    make_durable,
    not_kept,
    point_at,
    run_in,
    standing_after,
    variables,
)
from takeback.runs.boxes.history import BoxStep
from takeback.runs.boxes.setting import (
    BoxLimits,
    BoxUpkeep,
    Setting,
    begin,
    clear_scratch,
    remove_layer,
    reopen,
)
from takeback.runs.change import Options, make_change
from takeback.runs.commands.outcome import Changed, CommandOutcome, of_sandbox
from takeback.runs.commands.request import (
    CommandRequest,
    Pipes,
    refuse_odd,
    refuse_unfit,
    shown,
    told,
    words_of,
)
from takeback.runs.core import RunCore
from takeback.runs.stopped import with_drop
from takeback.runs.undo import undo_all
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.sandbox.protocol import Stack


def open_box(
    core: RunCore,
    box: str,
    base: "str | os.PathLike[str]",
    cwd: "str | os.PathLike[str] | None",
    env: Mapping[str, str] | None,
    limits: BoxLimits,
) -> "Box":
    """A new box, or the one with this id."""
    refuse_odd(timeout=limits.timeout, memory=limits.memory, processes=limits.processes, env=env)
    with core.lock:
        core.refuse_ended()
        core.refuse_in_workflow("A sandbox session", "Use run.command, or run.call with an action.")
        return Box(core, reopen(core, box, env) if box else begin(core.parts, base, cwd, env), limits)


class Box:
    """Use it as a context manager. Uncommitted steps stay in the box when it is closed."""

    def __init__(self, core: RunCore, setting: Setting, limits: BoxLimits) -> None:
        self._core = core
        self._setting = setting
        self._layers = layers = setting.layers
        self._limits = limits
        self._lock = threading.RLock()
        self._upkeep = BoxUpkeep()
        self._held = ExitStack()
        self._closed = False
        self.discarded: Effect | None = None  # by the last `discard`: what `tb.apply` brings back
        self._unfinished = setting.reopened  # a commit may have ended between its two effects
        with layers.alone(setting.id) as mine:
            if mine:
                clear_scratch(layers, setting.id)
        self._held.enter_context(layers.opened(setting.id))
        if layers.unsettled(setting.id):  # its own process was killed
            self._upkeep.settle(layers, setting.id)

    @property
    def id(self) -> str:
        return self._setting.id

    @property
    def base(self) -> str:
        return self._setting.base

    @property
    def resource(self) -> str:
        return self._setting.resource

    @property
    def lost(self) -> int:
        """How many steps were undone when the box was opened, because the machine had stopped before they were on the
        disk."""
        return self._setting.lost

    @property
    def cwd(self) -> str:
        return self._head().cwd

    @property
    def env(self) -> dict[str, str]:
        """The variables of the next command."""
        return variables(self._setting, self._exported(self._head()))

    @property
    def coverage(self) -> str:
        return of_sandbox(self._setting.able, self._limits.network)

    def _exported(self, point: Point) -> dict[str, str | None]:
        return read_variables(self._core.parts.blobs, point.env)

    def _head(self) -> Point:
        return self._layers.head(self.id)

    # Commands.

    def run(
        self,
        command: "Sequence[str] | str",
        *,
        timeout: float | None = None,
        network: bool | None = None,
        memory: int | None = None,
        processes: int | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        capture: bool = True,
        on_failure: str = "undo",
        key: str = "",
    ) -> BoxOutcome:
        """Run a command; `/bin/sh -c` runs a text. If it ends with 0, its changes are the next step of the box; if not,
        they are dropped, unless `on_failure` is "leave". `env` is for this command only."""
        refuse_odd(timeout=timeout, memory=memory, processes=processes, env=env, stdin=stdin, key=key)
        limits = _limits(self._limits, network, timeout, memory, processes)
        with self._lock:
            self._catch_up()
            if earlier := self._recorded(key, command):
                return earlier
            self._upkeep.complain()
            with self._layers.working(self.id):
                point = self._head()
                request = CommandRequest(
                    words_of(command), point.cwd, variables(self._setting, self._exported(point), env), *limits,
                    on_failure=on_failure,
                )  # fmt: skip
                refuse_unfit(request)
                if request.on_failure == "hold":
                    raise Misuse("In a box nothing is held.", hint='Say on_failure="leave" or "undo".')
                refuse_command(
                    self._core.parts, self._core.id, self._core.agent,
                    box_change("run", self.resource, shown(request.argv), point, point, {"argv": told(request.argv)}),
                    file_resource(point.cwd),
                )  # fmt: skip
                self._keep_short(point)
                ran, printed = self._run_it(point, request, stdin, capture, env)
                try:
                    self._refuse_stopped(point, request, ran, env)
                    return self._settled(point, request, ran, printed, env, key)
                except BaseException:
                    ran.running.gone()
                    raise

    def _run_it(
        self,
        point: Point,
        request: CommandRequest,
        stdin: bytes | None,
        capture: bool,
        env: Mapping[str, str] | None,
    ) -> tuple[Ran, tuple[bytes, bytes]]:
        sandbox = self._core.sandbox(self._setting.rooms)
        layers = self._layers

        def cut(ran: Ran) -> None:
            if ran.ended.layer and not self._dropped(point, request, ran, env, DropReason.INTERRUPTED).effect:
                remove_layer(layers.place_of(ran.layer), self.base)

        if not capture and stdin is None:
            return run_in(self._core, sandbox, self._setting, point, request, (0, 1, 2), None, cut), (
                b"",
                b"",
            )
        with Pipes(stdin) as captured:
            stdio = captured.stdio if capture else (captured.stdio[0], 1, 2)
            ran = run_in(self._core, sandbox, self._setting, point, request, stdio, captured, cut)
        return ran, (captured.stdout, captured.stderr)

    def _refuse_stopped(
        self, point: Point, request: CommandRequest, ran: Ran, env: Mapping[str, str] | None
    ) -> None:
        """A stop came while it ran: no step comes of it."""
        try:
            refuse_stopped(self._core.parts, self._core.agent, self._core.id)
        except Stopped as error:
            drop = self._dropped(
                point, request, ran._replace(used_terminal=False), env, DropReason.INTERRUPTED
            )
            if drop.effect is None:
                self._forget(ran)
            raise with_drop(error, drop.effect, drop.final) from None

    def _settled(
        self,
        point: Point,
        request: CommandRequest,
        ran: Ran,
        printed: tuple[bytes, bytes],
        env: Mapping[str, str] | None,
        key: str,
    ) -> BoxOutcome:
        """Kept as a step, or dropped."""
        ended, layers = ran.ended, self._layers
        gone = point.cwd if ended.gone else ""
        outcome = BoxOutcome(
            ended.exit_code, *printed, None, point.cwd, self.coverage, "", ended.stopped, False, ended.leftover,
            gone, untold=not_kept(ended.untold, ended.too_long), unstarted=ended.unstarted,
        )  # fmt: skip
        changed = changed_files(layers, self._setting, ran, point.layer)
        exported = self._exported(point)
        there = standing_after(self._setting, point, exported, ran, changed, env)
        moves = there != (point.layer, point.cwd, exported)
        if moves and ended.exit_code != 0 and request.on_failure == "undo":
            outcome, moves = outcome._replace(dropped=True), False
            reason = DropReason.INTERRUPTED if ended.stopped else DropReason.FAILED
            drop = self._dropped(point, request, ran, env, reason) if changed else BoxDrop()
            outcome = outcome._replace(drop=drop.effect, final=drop.final)
        if outcome.drop:
            ran.running.gone()
        elif not (moves and changed):
            self._forget(ran)
        if not moves:
            return outcome._replace(text=in_words(outcome))
        args = {"argv": told(request.argv), "exit_code": ended.exit_code, "coverage": self.coverage}
        try:
            durable = not changed or make_durable(layers, ran.layer, point.layer, ran.since)
            after = point_at(self._core.parts.blobs, there, point, exported)
            change = box_change("run", self.resource, shown(request.argv), point, after, args)
            effect = make_change(self._core, lambda: change, Options(key=key))
        except BaseException:
            if changed and self._head() == point:  # no step came of it, and its room may be what is missing
                ran.running.gone()
                with suppress(OSError):
                    remove_layer(layers.place_of(ran.layer), self.base)
            raise
        if changed:
            ran.running.gone()
        outcome = outcome._replace(
            effect=effect,
            durable=durable,
            cwd=after.cwd,
            look=lambda: self._changes_of(ran.layer, point.layer) if changed else (),
        )
        outcome = outcome._replace(text=in_words(outcome))
        # Last: another thread that is awake takes turns with us.
        if not durable:
            self._upkeep.settle(layers, self.id)
        if changed and due(layers.depth(point.layer) + 1):
            self._upkeep.later(lambda: squash_below(layers, ran.layer))
        return outcome

    def _dropped(
        self,
        point: Point,
        request: CommandRequest,
        ran: Ran,
        env: Mapping[str, str] | None,
        reason: DropReason,
    ) -> BoxDrop:
        cut = Cut(point, self._exported(point), request, env, self.coverage)
        return drop_step(self._core, self._setting, cut, ran, reason)

    def _forget(self, ran: Ran) -> None:
        """Remove a layer that will never be mounted."""
        if not ran.ended.layer:
            ran.running.leave()
            return
        path = self._layers.place_of(ran.layer)

        def clear() -> None:
            ran.running.gone()
            remove_layer(path, self.base)

        self._upkeep.later(clear)

    def _changes_of(self, layer: str, below: str) -> tuple[Changed, ...]:
        from takeback.runs.boxes.commit import readable
        from takeback.sandbox.differences import differences

        path = self._layers.unpacked(layer)
        if not os.path.isdir(path):
            return ()  # swept, because no undo could return to it
        with readable(self._setting):
            return tuple(listed(differences(path, self._stack(below)), self.base))

    def _stack(self, layer: str) -> "Stack":
        from takeback.sandbox.protocol import Stack

        return Stack(self.base, self._layers.stack(layer))

    def _keep_short(self, point: Point) -> None:
        layers = self._layers
        if is_long(layers, point.layer):
            self._upkeep.wait()
            if is_long(layers, point.layer):
                shorten(layers, point.layer)

    def _recorded(self, key: str, command: "Sequence[str] | str") -> BoxOutcome | None:
        """Asked for again under the same key: it was done, and is not done twice."""
        earlier = next(self._core.parts.journal.effects(Query(key=key)), None) if key else None
        if earlier is None:
            return None
        args = earlier.change.args
        if earlier.change.resource != self.resource or args.get("argv") != told(words_of(command)):
            raise KeyReused(
                f"The key {key!r} was used for another change: {earlier.change.summary}.",
                hint="Give every command its own key.",
                effect=earlier.id,
            )
        if earlier.state is not State.DONE:
            raise KeyReused(
                f"The command with key {key!r} was run and then taken back.",
                hint="Use a new key.",
                effect=earlier.id,
            )
        outcome = BoxOutcome(args["exit_code"], effect=earlier, cwd=self.cwd, coverage=args["coverage"])
        return outcome._replace(text=in_words(outcome))

    # Back and forth.

    def undo(
        self,
        n: int = 1,
        *,
        to: "Effect | BoxStep | Checkpoint | str | None" = None,
        on_conflict: str = "refuse",
        dry_run: bool = False,
    ) -> UndoResult:
        """Undo the last n steps; or everything after a step, or after a checkpoint of the run."""
        wishes = Wishes(on_conflict=on_conflict_named(on_conflict))
        journal = self._core.parts.journal
        with self._lock:
            self._catch_up()
            if to is None:
                wanted = history.last(journal, self.resource, n)
            else:
                wanted = history.since(journal, self.resource, to, self._core.id)
            if not wanted:
                return UndoResult("done", (), ())
            with self._layers.working(self.id):
                result = undo_all(self._core, history.with_commits(journal, wanted), wishes, dry_run)
            expect(self._core.sandbox(self._setting.rooms), self._layers, self._setting)
            return result

    def history(self) -> tuple[BoxStep, ...]:
        """Every step, oldest first; undone steps are marked."""
        return tuple(history.steps(self._core.parts.journal, self.resource))

    def branch(self) -> "Box":
        """Create another box from the current state of this one; neither sees later changes of the other."""
        with self._lock:
            self._catch_up()
            self.settle()
            point = self._head()
            setting = begin(self._core.parts, self.base, point.cwd, self._setting.env, point)
            return Box(self._core, setting, self._limits)

    def discard(self) -> Effect | None:
        """Return to the state at the beginning of the box, as a step of its own: you can undo it until it is forgotten.
        The earlier content is in `discarded`, and for a day `tb.apply` restores it."""
        with self._lock:
            self._catch_up()
            with self._layers.working(self.id):
                start, now = self._setting.start, self._head()
                if not is_somewhere_else(now, start):
                    return None
                change = box_change(
                    "discard", self.resource, "discard everything", now, start, {"exit_code": 0}
                )
                effect = make_change(self._core, lambda: change, Options())
                self.discarded = drop_all(self._core, self._setting, now)
                return effect

    # What is in it.

    def changes(self) -> tuple[Changed, ...]:
        """The differences between the box and its base."""
        from takeback.runs.boxes.commit import readable, whole_lefts

        with self._lock:
            self._catch_up()
            whole = whole_lefts(self._layers, self._setting, self._head())
            with readable(self._setting), whole as lefts:
                return tuple(listed(lefts, self.base))

    def commit(self) -> CommandOutcome:
        """Merge the content of the box into its base, as one effect; the box then continues over the merged base."""
        from takeback.runs.boxes.commit import commit, readable

        with self._lock:
            self._catch_up()
            with self._layers.working(self.id), readable(self._setting):
                self._unfinished = True
                outcome = commit(self._core, self._setting, self._head(), self.coverage)
                self._unfinished = False
                return outcome

    def export(self, target: "str | os.PathLike[str]") -> str:
        """Export the whole root filesystem as a tar file, or with `docker:NAME` as an image. Returns what was
        written: the path, or the name of the image."""
        from takeback.runs.boxes.commit import readable
        from takeback.runs.boxes.export import export

        with self._lock, readable(self._setting):
            self._catch_up()
            return export(
                self._stack(self._head().layer), target, self._setting.store, self._core.parts.progress
            )

    # The end.

    def settle(self) -> None:
        """Wait until every step is on the disk. A small step is on the disk at once, see `BoxOutcome.durable`."""
        with self._lock:
            self._upkeep.wait()
            self._upkeep.complain()

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._upkeep.close()
                self._held.close()

    def __enter__(self) -> "Box":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _catch_up(self) -> None:
        if self._closed:
            raise Misuse(
                f"Box {short(self.id)} is closed.", hint=f'Open it again: run.sandbox(box="{self.id}").'
            )
        if self._unfinished:
            from takeback.runs.boxes.commit import complete

            with self._layers.alone(self.id, "work") as mine:
                if mine:  # else someone is at it just now, who may be between the two
                    complete(self._core, self._setting)
                    self._unfinished = False


def _limits(
    usual: BoxLimits, network: bool | None, timeout: float | None, memory: int | None, processes: int | None
) -> BoxLimits:
    given: dict[str, Any] = {"network": network, "timeout": timeout, "memory": memory, "processes": processes}
    return usual._replace(**{name: value for name, value in given.items() if value is not None})
