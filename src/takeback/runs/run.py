"""A run: one agent's stretch of work, held under a lease; accepted or taken back as a whole.

This is what an agent can ask for. Each method hands over to the file that does it, with the core they all share.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from takeback.adapters.file import changes
from takeback.engine.plan import Wishes
from takeback.errors import Renamed
from takeback.model.change import on_conflict_named
from takeback.model.effect import Effect
from takeback.model.plan import UndoResult
from takeback.model.run import Checkpoint, Position
from takeback.policy.checks import Check
from takeback.runs import call, end, undo, verbs
from takeback.runs.commands.execute import run_command
from takeback.runs.commands.outcome import CommandOutcome
from takeback.runs.commands.request import CommandRequest, directory_of, refuse_odd, refuse_unfit, words_of
from takeback.runs.core import RunCore
from takeback.runs.lease import shared
from takeback.runs.verbs import Content, Path, ask, options_of, renamed
from takeback.runs.watch import Watch
from takeback.runs.watch_place import Manner
from takeback.runs.workflows import durable
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.adapters.call.action import Action
    from takeback.adapters.database import Tell
    from takeback.runs.boxes.box import Box
    from takeback.runs.canary import CanaryResult
    from takeback.runs.sql import Sql
    from takeback.runs.watch_databases import SeenProgram
    from takeback.runs.watch_files import FileWatch


class Run:
    """Use it as a context manager: an exception takes back everything not accepted, a normal end accepts it."""

    def __init__(self, core: RunCore) -> None:
        self._core = core

    @property
    def id(self) -> str:
        return self._core.id

    @property
    def name(self) -> str:
        return self._core.name

    @property
    def agent(self) -> str:
        return self._core.agent

    @property
    def state(self) -> Any:
        """The agent's own state, if the run was resumed from a checkpoint."""
        return self._core.state

    # Files. Each of these returns its effect, or None if it would have changed nothing.

    def write(
        self,
        path: Path,
        content: Content,
        *,
        mode: int | None = None,
        checks: Sequence[Check] = (),
        key: str = "",
        needs: "Sequence[str | Effect]" = (),
        expects: Callable[[], bool] | None = None,
        allow_inexact: bool = False,
    ) -> Effect | None:
        """Write this content to the file: staged beside the target, checked, captured, replaced in one step."""
        options = options_of(key, needs, checks, expects, allow_inexact)
        return verbs.write(self._core, options, path, content, mode)

    def write_all(
        self,
        files: Mapping[Any, Content],
        *,
        checks: Sequence[Check] = (),
        key: str = "",
        needs: "Sequence[str | Effect]" = (),
        expects: Callable[[], bool] | None = None,
        allow_inexact: bool = False,
    ) -> Effect | None:
        """Write several files as one effect: all of them or none."""
        options = options_of(key, needs, checks, expects, allow_inexact)
        return verbs.write_all(self._core, options, files)

    def delete(
        self, path: Path, *, key: str = "", needs: "Sequence[str | Effect]" = (), allow_inexact: bool = False
    ) -> Effect | None:
        """Delete a file, a link, or a whole directory; its content is captured first."""
        options = options_of(key, needs, (), None, allow_inexact)
        return ask(self._core, partial(changes.delete_change, path), options, "delete", path)

    def move(
        self,
        source: Path,
        target: Path,
        *,
        replace: bool = False,
        key: str = "",
        needs: "Sequence[str | Effect]" = (),
    ) -> Effect | None:
        build = partial(changes.move_change, source, target, replace=replace)
        return ask(self._core, build, options_of(key, needs), "move", source, target, replace)

    def mkdir(
        self,
        path: Path,
        mode: int | None = None,
        *,
        parents: bool = False,
        key: str = "",
        needs: "Sequence[str | Effect]" = (),
    ) -> Effect | None:
        build = partial(changes.mkdir_change, path, mode, parents=parents)
        return ask(self._core, build, options_of(key, needs), "make directory", path, mode, parents)

    def symlink(
        self, path: Path, target: Path, *, key: str = "", needs: "Sequence[str | Effect]" = ()
    ) -> Effect | None:
        """Make `path` a symbolic link to `target`."""
        options = options_of(key, needs)
        return ask(self._core, partial(changes.symlink_change, path, target), options, "link", path, target)

    def chmod(
        self,
        path: Path,
        mode: int,
        *,
        checks: Sequence[Check] = (),
        key: str = "",
        needs: "Sequence[str | Effect]" = (),
    ) -> Effect | None:
        options = options_of(key, needs, checks)
        build = partial(changes.chmod_change, path, mode)
        return ask(self._core, build, options, "set the mode of", path, mode)

    def edit_config(
        self,
        path: Path,
        set: Mapping[str, Any] | None = None,
        delete: Sequence[str] = (),
        *,
        format: str = "",
        checks: Sequence[Check] = (),
        key: str = "",
        needs: "Sequence[str | Effect]" = (),
        expects: Callable[[], bool] | None = None,
    ) -> Effect | None:
        """Set or delete keys of a JSON, YAML or TOML file; comments and order stay, undo is per key."""
        options = options_of(key, needs, checks, expects)
        return verbs.edit_config(self._core, options, path, set, delete, format)

    # Databases.

    @renamed(most="max_rows", review="hold")
    def sql(
        self, address: str, *, max_rows: int | None = None, hold: bool = False, limit: float = 300
    ) -> "Sql":
        """A database: `postgresql://…`, `sqlite:///file.db`, `mariadb://…`, `redis://…`, or `env:NAME` for an address
        in an environment variable. Each statement that changes something is an effect. `max_rows` is how many rows
        one statement may change (0: any number; default: the setting of that name). With `hold` it is held until
        `apply` or `discard`; if only an open session can hold it, for `limit` seconds at most."""
        from takeback.runs.sql import open_sql

        return open_sql(self._core, address, max_rows, hold, limit)

    @renamed(says="summary")
    def program(
        self, *addresses: str, summary: str = "a program", tell: "Tell | None" = None
    ) -> "AbstractContextManager[SeenProgram]":
        """Start a program with its own database driver in the block, with the variables in `.environment`, and wait for
        its end there. Its changes in each of these databases are one effect, in `.effects` after the block. Another
        thread calls `tell(sentence, hint)` if takeback keeps the program from something."""
        from takeback.adapters.database import quiet
        from takeback.runs.watch_databases import program

        self._core.refuse_in_workflow("A program with a driver of its own", "Use run.call with an action.")
        self._core.refuse_ended()
        return program(self._core, addresses, summary, tell or quiet)

    # Calls of functions.

    def call(
        self,
        action: "Action",
        /,
        *arguments: Any,
        key: str = "",
        needs: "Sequence[str | Effect]" = (),
        **named: Any,
    ) -> Any:
        """Call an action and return its result, as JSON gives it back. A second call with the same key does not call it
        again: it returns the recorded result. The function and `verify` get `key`; by default it is made from the run
        and the request. Threads may call at the same time."""
        return call.call(self._core, action, arguments, key, needs, named)

    def call_all(
        self, action: "Action", calls: "Iterable[Mapping[str, Any]]", *, at_once: int = 1
    ) -> list[Any]:
        """Call an action once for each of these mappings of arguments (`key` may be one). Returns the results, in
        order. Each call is an effect. With `at_once` that many run at the same time, in threads; else one after the
        other, each outcome recorded with the next intent, which saves every second commit. After an error no further
        call begins, and the error is raised; the calls before it stay done."""
        return call.call_all(self._core, action, calls, at_once)

    def fork(self, reason: str) -> None:
        """Start a new attempt: calls from here on get new keys and need new approvals, though the run made the same
        calls before it went back."""
        call.fork(self._core, reason)

    # What lasts in a workflow: each of these is a step, and its outcome is recorded.

    def remember(self, name: str, fn: Callable[[], Any]) -> Any:
        """The result of the first `fn()` call: when a workflow is resumed, the function is not called again. Use it for
        everything that may answer differently tomorrow: the time, a random number, a model. The result is JSON; the
        function must change nothing."""
        return durable.remember(self._core, name, fn)

    def sleep(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Continue after that time. A waiting workflow needs no process: its run is suspended, and a worker continues
        it."""
        durable.sleep(self._core, days, hours, minutes, seconds)

    def wait(self, event: str, *, timeout: float | None = None) -> Any:
        """The data of the next `tb.signal(run, event, data)`, also of one sent earlier. Raises `TimeoutError` after
        that many seconds. A waiting workflow needs no process: its run is suspended, for weeks if need be."""
        return durable.wait(self._core, event, timeout)

    # Commands, watched directories, boxes.

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
        """Run a command over the real filesystem, in a layer that no other process sees. If it ends with 0, takeback
        merges its changes as one effect; if not, it drops them, and for a day `apply` can still make them. `/bin/sh -c`
        runs a text."""
        words = words_of(argv)
        refuse_odd(timeout=timeout, memory=memory, processes=processes, env=env, stdin=stdin, key=key)
        request = CommandRequest(
            words, directory_of(cwd), dict(os.environ if env is None else env), network, timeout, memory, processes,
            hold, on_failure, dry_run,
        )  # fmt: skip
        return run_command(self._core, refuse_unfit(request), env, stdin, capture, key)

    @renamed(force="any_root")
    def watch(
        self,
        *roots: "str | bytes | os.PathLike[str]",
        any_root: bool = False,
        about: Mapping[str, Any] | None = None,
        summary: str = "",
        key: str = "",
    ) -> Watch:
        """`with run.watch("src") as watched: …`; afterwards `watched.effect` holds all changes below these directories,
        or is None. `any_root` allows roots that are refused otherwise: home, `/`, very large trees, and trees with
        unreadable files. With a `key`, `.begin()` may be called again, and any process ends it with
        `tb.finish_watch(key)`; undo leaves a path that others may have changed during it, unless the path is named."""
        from takeback.runs.watch_resume import watch_with

        self._core.refuse_in_workflow("Watching", "Use run.command, or run.call with an action.")
        manner = Manner(key, doubts=bool(key))
        return watch_with(self._core, roots, any_root, dict(about or {}), summary, manner)

    def watch_files(
        self,
        *paths: "str | bytes | os.PathLike[str]",
        about: Mapping[str, Any] | None = None,
        summary: str = "",
        key: str = "",
    ) -> "FileWatch":
        """The same for files by their names, anywhere, also such that are not there yet; nothing else is looked at."""
        from takeback.runs.watch_files import FileWatch

        self._core.refuse_in_workflow("Watching", "Use run.command, or run.call with an action.")
        return FileWatch(self._core, paths, dict(about or {}), summary, key)

    def sandbox(
        self,
        base: "str | os.PathLike[str]" = "/",
        *,
        box: str = "",
        cwd: "str | os.PathLike[str] | None" = None,
        env: Mapping[str, str] | None = None,
        network: bool = True,
        timeout: float = 0,
        memory: int = 0,
        processes: int = 0,
    ) -> "Box":
        """Begin a session over the machine's own files or over a directory with a root filesystem: every command is a
        step that you can undo, and no one outside sees its changes before the commit. `box` continues an earlier
        one."""
        from takeback.runs.boxes.box import open_box
        from takeback.runs.boxes.setting import BoxLimits

        limits = BoxLimits(network, timeout, memory, processes)
        return open_box(self._core, box, base, cwd, env, limits)

    # Points, undo, accepting.

    def checkpoint(
        self,
        label: str,
        state: Any = None,
        *,
        environment: Sequence[str] = (),
        path: Sequence[str] = (),
        summary: str = "",
        at: "Position | None" = None,
    ) -> Checkpoint:
        """Name the current state, with the agent's own state (JSON), to return to it later. `at`: what `position` gave
        earlier; then the checkpoint stands there."""
        return durable.checkpoint(self._core, label, state, environment, path, summary, at)

    def position(self) -> Position:
        """Where the journal stands now. `checkpoint(label, at=…)` can name it later."""
        return Position(self._core.parts.journal.newest(), self._core.now())

    def undo(
        self,
        effect: "Effect | str | None" = None,
        *,
        to: "str | Checkpoint | None" = None,
        dry_run: bool = False,
        cascade: bool = False,
        with_needs: bool = False,
        on_conflict: str = "refuse",
        paths: "Sequence[Path] | None" = None,
        why: str = "",
    ) -> UndoResult:
        """Undo one effect of this run, everything after a checkpoint, or everything not accepted. With `paths`, only
        these paths of the effect, with everything below them. `why` is recorded with it."""
        wishes = Wishes(cascade, with_needs, on_conflict_named(on_conflict), why=why)
        return undo.undo(self._core, effect, to, paths, wishes, dry_run)

    def canary(
        self,
        targets: Sequence[Any],
        change: Callable[[Any], object],
        check: Callable[[Any], bool],
        *,
        wait: float = 0,
    ) -> "CanaryResult":
        """Change the first target, check it, wait that many seconds and check it again, then change and check the
        others one by one. `change(target)` uses this run; `check(target)` changes nothing and returns True or False.
        What fails is taken back, and nothing else is; if the first one fails, the others are not begun. The result has
        an outcome for each target. In a workflow each part is a step."""
        from takeback.runs.canary import canary

        return canary(self._core, targets, change, check, wait, self.undo)

    def accept(self, effect: "Effect | str") -> None:
        """Accept this effect: it stays even if the run fails later."""
        undo.accept(self._core, effect)

    def apply(self, effect: "Effect | str") -> None:
        """Apply a held change. It stays even if the run fails later."""
        undo.apply(self._core, effect)

    def discard(self, effect: "Effect | str") -> UndoResult:
        """Drop a held change; for a day `apply` can still make it."""
        return undo.discard(self._core, effect)

    def keep(self, *what: object) -> NoReturn:
        """Renamed: raises an error that says the new name."""
        raise Renamed(
            "run.keep was renamed.",
            hint="run.accept accepts a change that was made, run.apply makes a held one.",
        )

    def effects(self) -> tuple[Effect, ...]:
        return tuple(self._core.parts.journal.effects(Query(run=self.id)))

    # Beginning and end.

    def __enter__(self) -> "Run":
        self._core.refuse_in_workflow(
            "`with run:`", "Its worker ends it: return a result, or raise what went wrong."
        )
        self._core.signals = shared()
        self._core.signals.watch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end.leave_block(self._core, error)

    def close(self, failed: str = "") -> None:
        """End the run normally: its effects stay, and you can undo them until they are forgotten. `failed`: why the
        task of the run failed, though nothing is left to undo; `takeback runs` shows it."""
        end.close(self._core, failed)

    def suspend(self, label: str) -> None:
        """Stop at a checkpoint and undo nothing; `tb.resume` continues from there."""
        end.suspend(self._core, label)

    def leave(self) -> None:
        """Release the lease and leave the run open for the next process that joins it. If one process joined it several
        times, the last release counts."""
        end.leave(self._core)

    def take_back(self) -> UndoResult:
        """End the run by undoing every effect that is not accepted."""
        return end.take_back(self._core)


def core_of(run: Run) -> RunCore:
    """For workers, an opened store and our own front ends."""
    return run._core  # pyright: ignore[reportPrivateUsage]
