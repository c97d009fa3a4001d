"""Takeback: a store opened. The only place that wires the concrete parts together."""

import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import islice, takewhile
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from takeback.decisions import Acceptance, Deciding
from takeback.errors import LeaseHeld, Misuse, Refused, Renamed
from takeback.model.boot_clock import since_boot
from takeback.model.effect import Effect, State, state_named
from takeback.model.functions import refuse_while_looking
from takeback.model.ids import new_id
from takeback.model.progress import SILENT, CountedBlobs, Progress
from takeback.model.record import Draft, Kind, canonical
from takeback.model.resource import Scope, file_resource
from takeback.model.run import Checkpoint, Lease, OnDeath, RunInfo, RunState
from takeback.runs.scope import opening, resource_of, scope_of
from takeback.runs.selection import effect_named, latest_first, name_of, run_of
from takeback.storage.owners import alive, myself
from takeback.storage.protocols import Blobs, Query
from takeback.storage.sqlite.store import Store, default_path, open_store
from takeback.undos import Undos
from takeback.upkeep import now

if TYPE_CHECKING:
    from takeback.adapters.database import RowChange
    from takeback.adapters.file.adapter import FileAdapter
    from takeback.engine.parts import Parts
    from takeback.runs.run import Run
    from takeback.runs.verbs import Path
    from takeback.storage.notes import GivenUp

_ALL = 1 << 40


class Takeback(Undos, Deciding, Acceptance):
    def __init__(self, store: Store) -> None:
        self.store = store
        self.here: Callable[[], Scope | None] = lambda: None
        self.tell: Callable[[str], None] = lambda words: None  # what it waits for, while it waits
        self.progress: Progress = SILENT  # of long work; set before the first of it
        self.given_up: list[GivenUp] = []  # ways back that were given up by policy, in this process
        self._parts: Parts | None = None

    @property
    def path(self) -> str:
        return self.store.path

    @property
    def parts(self) -> "Parts":
        """Made when first needed: looking at the journal needs no adapter."""
        if self._parts is None:
            self._parts = _wire(self.store, self._tell, self._hold, self.without_room, self.progress)
        return self._parts

    def _tell(self, words: str) -> None:
        self.tell(words)

    def _hold(self, run: str, seconds: float) -> None:
        if here := self._open_here.get(run):
            here.outlast(seconds)

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
        return self._open(name, agent, OnDeath(on_death), belongs)

    def _beginning(self, name: object, agent: object, project: "Path | None") -> dict[str, Any]:
        """What its first record says of the project, once it is known that there will be one."""
        _refuse_unnamed(name, agent)
        refuse_while_looking()
        self.store.refuse_if_suspect()
        belongs = opening(self.store.journal, project)
        self._before_change()
        return belongs

    def session(
        self, name: str, agent: str = "", wait: float = 10, *, project: "Path | None" = None
    ) -> "Run":
        """The open run of that name, or a new one: for commands that each are a process of their own. It is left
        open, not taken back, when such a process ends; let go of it with `run.leave()`. With `project` each project
        has a run of its own by that name."""
        begun = self._beginning(name, agent, project)
        where = None if project is None else begun.get("project", "")
        # Looked for and made in one transaction: of several first commands one makes it and the others wait.
        with self.store.together():
            for info in self.store.journal.runs(unfinished=True):
                mine = info.name == name and info.on_death is OnDeath.LEAVE and where in (None, info.project)
                if mine and not self.store.elsewhere(info.id):
                    break
            else:
                return self._open(name, agent, OnDeath.LEAVE, begun)
        here = self._open_here.get(info.id)
        if here and here.join_again():
            return here
        return self.resume(info, wait=wait)

    def _run(self, info: RunInfo, lease: Lease, begun: int = 0) -> "Run":
        """`begun`: what the clock since the machine started said before the lease was taken, if that is known."""
        from takeback.runs.run import Run

        run = Run(self.parts, info, lease, self.store.settings, now, self._keep_up, begun)
        self._open_here[info.id] = run
        return run

    def _open(
        self,
        name: str,
        agent: str,
        on_death: OnDeath,
        belongs: dict[str, Any],
        undoing: Sequence[str] = (),
        on_conflict: str = "",
        only: frozenset[str] | None = None,
    ) -> "Run":
        refuse_while_looking()
        self.store.refuse_if_suspect()
        id = new_id()
        body: dict[str, Any] = {"name": name, "agent": agent, "on_death": on_death.value} | belongs
        if undoing:
            # How it was asked for: whoever has to finish it must do it the same way.
            body |= {"undoing": list(undoing), "on_conflict": on_conflict}
        if only is not None:
            from takeback.model.plan import ONLY

            body[ONLY] = sorted(only)
        begun = since_boot()
        with self.store.together():
            lease = self._acquire(id, 0)
            (record,) = self.store.journal.append(lease, [Draft(Kind.OPEN, id, "", body)])
        project: str = belongs.get("project", "")
        info = RunInfo(id, name, agent, RunState.OPEN, on_death, record.at, project=project)
        return self._run(info, lease, begun)

    def _acquire(self, run: str, wait: float) -> Any:
        until = time.monotonic() + wait
        while True:
            try:
                return self.store.leases.acquire(run, myself(), now(), self._lease_lasts)
            except LeaseHeld:
                if time.monotonic() >= until:
                    raise
                time.sleep(0.02)

    @contextmanager
    def _leased(self, run: str) -> "Generator[Lease, None, None]":
        """To decide on what it holds. One that is open here lends its own."""
        here = self._open_here.get(run)
        if here:
            with here.lent() as its_own:
                if its_own:
                    yield its_own
                    return
        lease = self._acquire(run, 0)
        try:
            yield lease
        finally:
            self.store.leases.release(lease)

    # Looking.

    def effect(self, id: str, *, project: "Path | None" = None) -> Effect:
        """By id, any unique prefix of at least 4 characters, `@` for the newest (undos do not count), `@~2` for the
        second before it; with `project` of those of that project."""
        scope = scope_of(self.store.journal, project) if project is not None else self._scope_for(id)
        return effect_named(self.store.journal, id, scope)

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
        try:
            scope = self.here()
        except Refused:
            scope = None  # a name means a run anywhere
        return run_of(self.store.journal, name, scope)

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

    def close(self) -> None:
        if self._parts is not None and (close := getattr(self._parts.adapters, "close", None)):
            close()
        self.store.close()

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
    tb._settles = recover  # pyright: ignore[reportPrivateUsage]
    return tb


def _refuse_unnamed(name: object, agent: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise Misuse("A run needs a name.", hint='Say in a few words what it does: tb.run("enable TLS").')
    if not isinstance(agent, str):
        raise Misuse("The agent of a run is given as text.", hint='For example agent="deployer".')


def _moment(since: "str | int") -> int:
    from takeback.model.words import point_in_time

    return point_in_time(since, now()) if isinstance(since, str) else since


def _wire(
    store: Store,
    tell: Callable[[str], None],
    hold: Callable[[str, float], None],
    room: Callable[[int], None],
    progress: Progress,
) -> "Parts":
    from takeback.adapters.call.ask import Processes
    from takeback.adapters.database import Keyring, Waiting
    from takeback.adapters.registry import Registry
    from takeback.engine.parts import DropLimits, Parts
    from takeback.storage.projects import Belonging

    def store_names() -> tuple[str, ...]:
        from takeback.adapters.file.mounts import names_of

        return tuple(file_resource(name) for name in names_of(os.fsencode(os.path.realpath(store.path))))

    held = os.path.join(store.path, "held")
    blobs = _counted(store.blobs, progress)

    def files() -> "FileAdapter":
        from takeback.adapters.file.adapter import FileAdapter

        return FileAdapter(blobs, held, store.settings.max_capture_bytes, progress)

    keyring = Keyring()
    waiting = Waiting(store.settings.lock_seconds, tell)
    adapters = Registry(
        files, blobs, held, store.layers, keyring, waiting,
        Processes(myself, alive, hold, lambda: store.made_here), progress,
    )  # fmt: skip
    return Parts(
        store.journal,
        blobs,
        store.leases,
        adapters,
        store.refuse_if_suspect,
        room,
        keyring.named,
        Belonging(store.journal),
        file_resource(os.path.realpath(store.path)),
        store.settings.max_capture_bytes,
        DropLimits(
            store.settings.dropped_seconds, store.settings.dropped_bytes, store.refuse_without_room, now
        ),
        store_names,
        progress,
        tell,
    )


def _counted(blobs: Blobs, progress: Progress) -> Blobs:
    return cast(Blobs, CountedBlobs(blobs, progress.moved)) if progress.draws else blobs
