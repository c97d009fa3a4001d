"""Takeback: a store opened. Each method hands over to the file that does it, with what all of them share."""

import os
from collections.abc import Callable, Sequence
from itertools import islice, takewhile
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from takeback.api import decisions, undo, upkeep, workflows
from takeback.api.store import OpenStore, now
from takeback.api.upkeep import Verified
from takeback.api.workflows import work, worker
from takeback.errors import Misuse, Renamed
from takeback.model.effect import Effect, State, state_named
from takeback.model.functions import refuse_while_looking
from takeback.model.progress import Progress
from takeback.model.record import canonical
from takeback.model.resource import Scope
from takeback.model.run import Checkpoint, OnDeath, RunInfo
from takeback.runs.scope import opening, resource_of, scope_of
from takeback.runs.selection import latest_first, name_of
from takeback.storage.protocols import Query
from takeback.storage.sqlite.store import Store, default_path, open_store

if TYPE_CHECKING:
    from takeback.adapters.database import Cover, RowChange
    from takeback.audit.runs import DeadRun
    from takeback.engine.parts import Parts
    from takeback.engine.settled import Settled
    from takeback.model.plan import UndoResult
    from takeback.retention.candidates import Verdict
    from takeback.runs.core import RunCore
    from takeback.runs.run import Run
    from takeback.runs.scope import Span
    from takeback.runs.verbs import Path
    from takeback.runs.workflows.function import Workflow
    from takeback.runs.workflows.worker import Worker
    from takeback.storage.copy import Copied
    from takeback.storage.notes import GivenUp

_ALL = 1 << 40


class Takeback:
    def __init__(self, store: Store) -> None:
        self._opened = OpenStore(store, upkeep.without_room, upkeep.keep_up)

    @property
    def store(self) -> Store:
        return self._opened.store

    @property
    def path(self) -> str:
        return self._opened.store.path

    @property
    def parts(self) -> "Parts":
        return self._opened.parts

    @property
    def here(self) -> "Callable[[], Scope | None]":
        """What `@` and the newest mean; None: everything. The command line sets it."""
        return self._opened.here

    @here.setter
    def here(self, here: "Callable[[], Scope | None]") -> None:
        self._opened.here = here

    @property
    def tell(self) -> Callable[[str], None]:
        """Hears what is waited for, or about to be called."""
        return self._opened.tell

    @tell.setter
    def tell(self, tell: Callable[[str], None]) -> None:
        self._opened.tell = tell

    @property
    def progress(self) -> Progress:
        """Of long work; set before the first of it."""
        return self._opened.progress

    @progress.setter
    def progress(self, progress: Progress) -> None:
        self._opened.progress = progress

    @property
    def given_up(self) -> "list[GivenUp]":
        """Ways back that were given up by policy, in this process."""
        return self._opened.given_up

    @property
    def recovered(self) -> "tuple[Settled, ...]":
        return self._opened.recovered

    @property
    def unrecovered(self) -> str:
        return self._opened.unrecovered

    # Runs.

    def run(
        self, name: str, agent: str = "", *, on_death: str = "undo", project: "Path | None" = None
    ) -> "Run":
        """A new run; use it as a context manager. What it did is taken back if it fails or its process dies, unless
        `on_death` says "accept". It belongs to the project around `project`, else around the current directory."""
        if on_death == "keep":
            raise Renamed('on_death="keep" was renamed.', hint='Say on_death="accept".')
        if on_death not in (OnDeath.UNDO, OnDeath.ACCEPT):
            raise Misuse(f"A run cannot end with {on_death!r}.", hint='Say on_death="undo" or "accept".')
        belongs = self._beginning(name, agent, project)
        return _as_run(self._opened.open_run(name, agent, OnDeath(on_death), belongs))

    def _beginning(self, name: object, agent: object, project: "Path | None") -> dict[str, Any]:
        """What its first record says of the project, once it is known that there will be one."""
        _refuse_unnamed(name, agent)
        refuse_while_looking()
        self.store.refuse_if_suspect()
        belongs = opening(self.store.journal, project)
        upkeep.before_change(self._opened)
        return belongs

    def session(
        self, name: str, agent: str = "", wait: float = 10, *, project: "Path | None" = None
    ) -> "Run":
        """The open run of that name, or a new one: for commands that each are a process of their own. It is left
        open, not taken back, when such a process ends; let go of it with `run.leave()`. With `project` each project
        has a run of its own by that name."""
        begun = self._beginning(name, agent, project)
        where = None if project is None else begun.get("project", "")
        # LimitsLook for and made in one transaction: of several first commands one makes it and the others wait.
        with self.store.together():
            for info in self.store.journal.runs(unfinished=True):
                mine = info.name == name and info.on_death is OnDeath.LEAVE and where in (None, info.project)
                if mine and not self.store.elsewhere(info.id):
                    break
            else:
                return _as_run(self._opened.open_run(name, agent, OnDeath.LEAVE, begun))
        core = self._opened.runs_here.get(info.id)
        if core:
            from takeback.runs.end import join_again

            if join_again(core):
                return _as_run(core)
        return self.resume(info, wait=wait)

    # Looking.

    def effect(self, id: str, *, project: "Path | None" = None) -> Effect:
        """By id, any unique prefix of at least 4 characters, `@` for the newest (undos do not count), `@~2` for the
        second before it; with `project` of those of that project."""
        return self._opened.effect(id, project)

    def effects(
        self,
        run: "str | RunInfo | None" = None,
        path: "Path | None" = None,
        agent: str = "",
        state: "State | str | Sequence[State | str] | None" = None,
        limit: int = 0,
        newest: bool = False,
        *,
        project: "Path | None" = None,
        scope: "Scope | None" = None,
        since: "str | int" = 0,
    ) -> tuple[Effect, ...]:
        """Oldest first, as they were begun; with `newest` what took hold last comes first, as `@` counts. `project`:
        only those of the project around this directory. `since`: only those that took hold then or later, as text
        (`10m`, `2026-11-18 09:30`) or in microseconds since 1970."""
        if not isinstance(limit, int) or limit < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(f"The limit cannot be {limit!r}.", hint="Give a number; 0 is for all.")
        canonical(agent)  # refuses what no journal could hold
        query = Query(
            run=self.find_run(run).id if isinstance(run, str) else name_of(run, "run") if run else "",
            agent=agent,
            states=tuple(state_named(one) for one in ((state,) if isinstance(state, str) else state or ())),
            resource=resource_of(path) if path is not None else "",
            scope=scope_of(self.store.journal, project) if project is not None else scope,
            limit=0 if newest or since else limit,
        )
        if not newest and not since:
            return tuple(self.store.journal.effects(query))
        found = latest_first(self.store.journal, query, limit or (20 if since else _ALL))
        if since:
            at = _moment(since)
            found = takewhile(lambda one: one.at >= at, found)
        if newest:
            return tuple(islice(found, limit or None))
        return tuple(sorted(found, key=lambda one: one.seq))[: limit or None]

    def rows(self, effect: "Effect | str", table: str = "", limit: int = 1_000) -> "tuple[RowChange, ...]":
        """What an effect changed in its database, row by row: `.table`, `.key`, `.before` and `.after`, each column as
        text. Of one that is held, too."""
        from takeback.audit.rows import changed_rows

        found = self.effect(effect) if isinstance(effect, str) else effect
        return changed_rows(self.parts, found, table, limit).rows

    def runs(self, *, project: "Path | None" = None, scope: "Scope | None" = None) -> tuple[RunInfo, ...]:
        """Oldest first; with `project` those that began in that project or touched it."""
        where = scope_of(self.store.journal, project) if project is not None else scope
        return tuple(self.store.journal.runs(scope=where))

    def find_run(self, name: str) -> RunInfo:
        """By id, unique prefix, or name: the newest of that name, on the command line first of this project."""
        return self._opened.find_run(name)

    def run_meant(self, name: str) -> RunInfo | None:
        """A run by its id, a unique prefix of it, or its name; None if that is no run."""
        ids = self.store.journal.resolve(name.lower())
        if ids:
            return next(self.store.journal.runs(ids), None) if len(ids) == 1 else None
        try:
            return self.find_run(name) if name else None
        except Misuse:
            return None

    def checkpoints(
        self,
        run: "str | RunInfo | None" = None,
        *,
        project: "Path | None" = None,
        scope: "Scope | None" = None,
    ) -> tuple[Checkpoint, ...]:
        """Oldest first: all that were named, and the newest of the automatic ones."""
        from takeback.runs.checkpoints import newest, of_projects, of_run, with_state

        id = self.find_run(run).id if isinstance(run, str) else run.id if run else ""
        found = newest(of_run(self.store.journal, id), self.store.settings.checkpoints_kept)
        where = scope_of(self.store.journal, project) if project is not None else scope
        if where:
            found = of_projects(self.store.journal, found, where)
        return tuple(with_state(self.store.blobs, one) for one in found)

    def accept(
        self, what: "Effect | str | Sequence[Effect | str]", *, dry_run: bool = False
    ) -> tuple[Effect, ...]:
        """Say that these stay: no longer taken back when their run fails, and forgettable after their time."""
        return decisions.accept(self._opened, what, dry_run)

    def apply(
        self, what: "Effect | str | Sequence[Effect | str]", *, force: bool = False, dry_run: bool = False
    ) -> tuple[Effect, ...]:
        """Make what is held, or was dropped and is not erased yet; with `force` also over what others changed since:
        undo brings that back. One of which all is there already stays held, or dropped."""
        return decisions.apply(self._opened, what, force, dry_run)

    def discard(
        self, what: "Effect | str | Sequence[Effect | str]", *, now: bool = False, dry_run: bool = False
    ) -> tuple[Effect, ...]:
        """Drop what is held: it is not made, and for a day `apply` can make it after all. With `now` it is erased at
        once, also if it was dropped before."""
        return decisions.discard(self._opened, what, now, dry_run)

    def pin(
        self, what: "Effect | str | Sequence[Effect | str]", *, dry_run: bool = False
    ) -> tuple[Effect, ...]:
        """Never forget the way back of these, or what that way back needs."""
        return decisions.pin(self._opened, what, dry_run)

    def unpin(
        self, what: "Effect | str | Sequence[Effect | str]", *, dry_run: bool = False
    ) -> tuple[Effect, ...]:
        """From now on these are forgotten like any other effect."""
        return decisions.unpin(self._opened, what, dry_run)

    def keep(self, *what: object, **wishes: object) -> NoReturn:
        """Renamed: says which word is meant, and does nothing."""
        raise Renamed(
            "tb.keep was renamed.", hint="tb.accept accepts what was made, tb.apply makes what is held."
        )

    def pending(self) -> tuple[Effect, ...]:
        """What waits for an approval, oldest first."""
        return decisions.pending(self._opened)

    def approve(self, id: "Effect | str", *, by: str, answer: str = "") -> Effect:
        """Say yes to exactly what was proposed. For what cannot be undone `answer` has to say so. The run that asked
        then makes it, when it asks again; refused if that has ended."""
        return decisions.approve(self._opened, id, by, answer)

    def deny(self, id: "Effect | str", *, by: str, why: str = "") -> Effect:
        """Say no to this proposal; the run that asked is told so. Asked for again, it is another proposal."""
        return decisions.deny(self._opened, id, by, why)

    def settle(self, effect: "Effect | str", happened: bool, *, receipt: Any = None, by: str = "") -> Effect:
        """Say of a call that is in doubt whether it happened; `receipt` is what it would have returned. Then its run,
        if that is over, follows its policy, and whoever waited for it goes on."""
        return decisions.settle(self._opened, effect, happened, receipt, by)

    def undo(
        self,
        what: "Effect | RunInfo | str | Sequence[Effect | str]",
        *,
        dry_run: bool = False,
        cascade: bool = False,
        with_needs: bool = False,
        on_conflict: str = "refuse",
        agent: str = "",
        project: "Path | None" = None,
        paths: "Sequence[Path] | None" = None,
    ) -> "UndoResult":
        """Take back an effect, several, or a whole run. Raises from the `Refused` family when it changed nothing. The
        run of a workflow that has not ended ends with it. With `project`, `@` counts the effects of that project.
        With `paths`, only these paths of one effect are taken back, with all that is in them."""
        return undo.undo(self._opened, what, dry_run, cascade, with_needs, on_conflict, agent, project, paths)

    def undo_to(
        self,
        checkpoint: "Checkpoint | str",
        *,
        run: "str | RunInfo | None" = None,
        project: "Path | None" = None,
        **wishes: Any,
    ) -> "UndoResult":
        """Take back everything of the checkpoint's project (or of `project`) that took hold after it, whoever did it,
        newest first; with `run` only what that run did. The agent's own state comes with it."""
        return undo.undo_to(self._opened, checkpoint, run, project, **wishes)

    def undo_span(self, span: "Span", expected: "Sequence[str] | None" = None, **wishes: Any) -> "UndoResult":
        """Take back everything in a stretch of the journal. Refused while a run in it is at work, and if it is no
        longer what was `expected`."""
        return undo.undo_span(self._opened, span, expected, **wishes)

    def redo(
        self,
        what: "Effect | UndoResult | str | None" = None,
        *,
        dry_run: bool = False,
        on_conflict: str = "refuse",
        agent: str = "",
        project: "Path | None" = None,
    ) -> "UndoResult":
        """Bring back what was undone last, as a whole; all that one undo took back, by its result; or the effect named
        (itself, or the undo that took it back). With `project` what was undone last in that project."""
        return undo.redo(self._opened, what, dry_run, on_conflict, agent, project)

    def to_redo(
        self, what: "Effect | UndoResult | str | None" = None, *, project: "Path | None" = None
    ) -> tuple[Effect, ...]:
        """The undos that `redo` would take back."""
        return undo.to_redo(self._opened, what, project)

    def recover(self) -> "tuple[Settled, ...]":
        """Settle everything that dead processes left; look again at what is stuck. `tb.tell` hears which functions that
        calls, before it calls them."""
        settled = upkeep.recover(self._opened)
        workflows.wake_settled(self._opened)
        return settled

    def settle_first(self, calls: bool = False) -> None:
        """Before a change: settle what a crash left and needs no function to be called; with `calls` the rest, too.
        `recovered` tells what was settled; where that cannot be done now (the disk is full), `unrecovered` says why."""
        upkeep.settle_first(self._opened, calls)

    def dead_runs(self) -> "tuple[DeadRun, ...]":
        """Runs whose process is gone and that are not settled: what is in force, what is in doubt, and which functions
        settling them would call."""
        return upkeep.dead_runs(self._opened)

    def needs_recovery(self) -> bool:
        """Whether a dead process left something; cheap, asked before the first change."""
        return upkeep.needs_recovery(self._opened)

    def verify(self, read_data: bool = False) -> Verified:
        """Everything that is wrong with the store; with `read_data` every blob is read again."""
        return upkeep.verify(self._opened, read_data)

    def forget(
        self,
        what: "Sequence[Effect | str] | Effect | str | None" = None,
        *,
        dry_run: bool = False,
    ) -> "tuple[Verdict, ...]":
        """Give up the power to undo: these effects, or by policy what was accepted long enough ago."""
        return upkeep.forget(self._opened, what, dry_run)

    def unprotect(
        self, address: str, tables: "Sequence[str]" = (), *, dry_run: bool = False
    ) -> "tuple[Cover, tuple[Verdict, ...]]":
        """Remove the protection of a database, or of these tables of it. What is covered then, and the ways back that
        went with it: they are recorded as forgotten."""
        return upkeep.unprotect(self._opened, address, tables, dry_run)

    def sweep(self, grace: int | None = None, *, baselines: bool = False, dry_run: bool = False) -> int:
        """Delete the bytes nothing needs any more; how many were freed. With `baselines` also the copies of watched
        directories: the next watch reads those directories again, and no way back is lost. A dry run deletes nothing
        and counts only what is in no box and no copy of a watched directory."""
        return upkeep.sweep(self._opened, grace, baselines, dry_run)

    def stay_within_limits(self) -> None:
        """For whoever changes things in a run that does not end."""
        upkeep.stay_within_limits(self._opened)

    def copy_to(self, path: str, *, blobs: str = "", backup: bool = False) -> "Copied":
        """A copy of this store, at a directory or a `postgresql://` address where there is none yet. Nobody writes to
        this one meanwhile; an interrupted copy is gone on with when the same is asked for again. Afterwards this store
        takes nothing new, because what is unfinished must not go on in two places; of a `backup` that holds for the
        copy."""
        return upkeep.copy_to(self._opened, path, blobs, backup)

    def size(self) -> int:
        """Bytes on disk."""
        return self.store.bytes_on_disk()

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
        return workflows.submit(self._opened, workflow, *args, key=key, agent=agent, name=name, **kwargs)

    def submit_named(
        self, workflow: str, arguments: str, *, key: str = "", agent: str = "", name: str = ""
    ) -> RunInfo:
        return workflows.submit_named(self._opened, workflow, arguments, key, agent, name)

    def signal(self, run: "str | RunInfo | Run", event: str, data: Any = None) -> None:
        """Tell a run something (JSON): what `run.wait(event)` in it returns, now or later."""
        workflows.signal(self._opened, run, event, data)

    def result(self, run: "str | RunInfo | Run", timeout: float | None = None) -> Any:
        """What the workflow returned, when it has; or the error that ended it. `Unavailable` when it has not ended
        within that many seconds, `Stuck` when it cannot go on without a person."""
        return workflows.result(self._opened, run, timeout)

    def work(self, *workflows: "Workflow", concurrency: int = 1, until_idle: bool = False) -> int:
        """Be a worker for these workflows, in this thread, until it is interrupted; with `until_idle` until nothing is
        due. How many times a run was gone on with. `takeback worker MODULE` does this in a process of its own."""
        return work(self._opened, *workflows, concurrency=concurrency, until_idle=until_idle)

    def worker(
        self,
        workflows: "dict[str, Workflow]",
        concurrency: int = 1,
        tell: Callable[[str], None] = lambda words: None,
    ) -> "Worker":
        return worker(self._opened, workflows, concurrency, tell)

    def resume(
        self, run: "str | RunInfo", wait: float = 0, *, from_checkpoint: "Checkpoint | str | None" = None
    ) -> "Run":
        """Go on with a run that was suspended or left open. From a checkpoint: what came after it is taken back, and
        `run.state` is the agent's own state then. A workflow is not gone on with here: it is due for a worker from now,
        and the run that is returned was let go of."""
        return workflows.resume(self._opened, run, wait, from_checkpoint)

    def close(self) -> None:
        self._opened.close()

    def __enter__(self) -> "Takeback":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open(path: "str | os.PathLike[str] | None" = None, *, recover: bool = True, blobs: str = "") -> Takeback:
    """The store at that path, or at a `postgresql://` address, made if it is not there. Opening it settles nothing and
    calls nothing, and neither does looking. The first change settles what a crash left and needs no function to be
    called, unless `recover` is False: `tb.recovered` tells what that was, `tb.unrecovered` why it could not be done
    (the disk is full). `tb.dead_runs()` shows what is left; `tb.recover()` settles all of it, and so does a worker.
    `blobs` is for a store in PostgreSQL: `s3://bucket/prefix`, where its large blobs are; said once, it is written in
    the store."""
    if path is not None and not os.fspath(path):
        raise Misuse(
            "An empty path names no store.", hint="Give a directory, or nothing for the usual store."
        )
    tb = Takeback(open_store(os.fspath(path) if path is not None else default_path(), now, blobs))
    opened_of(tb).settles = recover
    return tb


def opened_of(tb: Takeback) -> OpenStore:
    """For our own tests and tools."""
    return tb._opened  # pyright: ignore[reportPrivateUsage]


def _as_run(core: "RunCore") -> "Run":
    from takeback.runs.run import Run

    return Run(core)


def _refuse_unnamed(name: object, agent: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise Misuse("A run needs a name.", hint='Say in a few words what it does: tb.run("enable TLS").')
    if not isinstance(agent, str):
        raise Misuse("The agent of a run is given as text.", hint='For example agent="deployer".')


def _moment(since: "str | int") -> int:
    from takeback.model.words import point_in_time

    return point_in_time(since, now()) if isinstance(since, str) else since
