"""`Takeback`: an open store. The files beside this one have one function for each method."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import islice, takewhile
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar

from takeback.api import decisions, halts, proof, redaction, upkeep, workers, workflows
from takeback.api import rehearse as rehearsing
from takeback.api import undo as undoing
from takeback.api.store import OpenStore, now
from takeback.errors import Misuse, Renamed
from takeback.model.effect import Effect, State, state_named
from takeback.model.functions import refuse_while_looking
from takeback.model.record import canonical
from takeback.model.resource import Scope
from takeback.model.run import Checkpoint, OnDeath, RunInfo
from takeback.runs.scope import opening, resource_of, scope_of
from takeback.runs.selection import latest_first, name_of
from takeback.runs.settings_in_force import read_settings
from takeback.storage.protocols import Query
from takeback.storage.sqlite.store import Store, default_path, open_store

if TYPE_CHECKING:
    from takeback.adapters.database import RowChange
    from takeback.engine.settled import Settled
    from takeback.runs.core import RunCore
    from takeback.runs.prompts import AgentSession, Prompt
    from takeback.runs.run import Run
    from takeback.runs.verbs import Path
    from takeback.storage.notes import GivenUp

_ALL = 1 << 40


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _handed(work: Callable[Concatenate[OpenStore, _P], _T]) -> "Callable[Concatenate[Takeback, _P], _T]":
    """The method that hands over to `work`, with the same parameters and the same words."""

    @wraps(work)
    def method(tb: "Takeback", *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return work(opened_of(tb), *args, **kwargs)

    return method


class Takeback:
    def __init__(self, store: Store) -> None:
        self._opened = OpenStore(store, upkeep.without_room, upkeep.keep_up, _proposed)

    @property
    def store(self) -> Store:
        return self._opened.store

    @property
    def path(self) -> str:
        return self._opened.store.path

    @property
    def tell(self) -> Callable[[str], None]:
        """Called with a sentence when takeback waits, or is about to call a function."""
        return self._opened.tell

    @tell.setter
    def tell(self, tell: Callable[[str], None]) -> None:
        self._opened.tell = tell

    @property
    def given_up(self) -> "list[GivenUp]":
        """Effects whose undo data this process deleted by policy."""
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
        """Begin a run; use it as a context manager. If it fails or its process dies, its effects are undone, unless
        `on_death` is "accept". It belongs to the project of the directory `project` (default: the current one)."""
        if on_death == "keep":
            raise Renamed('on_death="keep" was renamed.', hint='Say on_death="accept".')
        if on_death not in (OnDeath.UNDO, OnDeath.ACCEPT):
            raise Misuse(f"A run cannot end with {on_death!r}.", hint='Say on_death="undo" or "accept".')
        belongs = self._beginning(name, agent, project)
        return _as_run(self._opened.open_run(name, agent, OnDeath(on_death), belongs))

    def _beginning(self, name: object, agent: object, project: "Path | None") -> dict[str, Any]:
        """What its first record says of the project, once it is known that there will be one."""
        if not isinstance(name, str) or not name.strip():
            raise Misuse("A run needs a name.", hint='Say in a few words what it does: tb.run("enable TLS").')
        if not isinstance(agent, str):
            raise Misuse("The agent of a run is given as text.", hint='For example agent="deployer".')
        refuse_while_looking()
        self.store.refuse_if_suspect()
        belongs = opening(self.store.journal, project)
        upkeep.before_change(self._opened)
        return belongs

    def session(
        self, name: str, agent: str = "", wait: float = 10, *, project: "Path | None" = None
    ) -> "Run":
        """The open run of that name, or a new one: for work of several processes, one after the other. The end of a
        process leaves the run open; release it with `run.leave()`. With `project`, each project has its own run of that
        name."""
        begun = self._beginning(name, agent, project)
        where = None if project is None else begun.get("project", "")
        # Looked for and made in one transaction: of several first commands one makes it and the others wait.
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

    effect = _handed(OpenStore.effect)

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
        about: "Mapping[str, Any] | None" = None,
    ) -> tuple[Effect, ...]:
        """Effects, oldest first by the time they began. With `newest`, those that took effect last come first, as `@`
        counts. `project`: only those of the project around this directory. `since`: only those that took effect then or
        later, as text (`10m`, `2026-11-18 09:30`) or in microseconds since 1970. `about`: only those whose watch was
        given these facts, such as `{"session": …, "call": …}` for a call of a coding agent."""
        if not isinstance(limit, int) or limit < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(f"The limit cannot be {limit!r}.", hint="Give a number; 0 is for all.")
        if about is not None and not isinstance(about, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(
                f"{about!r} says nothing about a watch.", hint='For example about={"session": "s-1"}.'
            )
        canonical(agent)  # refuses what no journal could hold
        query = Query(
            run=self.find_run(run).id if isinstance(run, str) else name_of(run, "run") if run else "",
            agent=agent,
            states=tuple(state_named(one) for one in ((state,) if isinstance(state, str) else state or ())),
            resource=resource_of(path) if path is not None else "",
            scope=scope_of(self.store.journal, project) if project is not None else scope,
            limit=0 if newest or since or about else limit,
        )
        found = self.store.journal.effects(query)
        if newest or since:
            found = latest_first(
                self.store.journal, query, _ALL if about else limit or (20 if since else _ALL)
            )
        if about:
            facts = about.items()
            found = (one for one in found if all(one.change.args.get(name) == fact for name, fact in facts))
        if since:
            from takeback.model.words import point_in_time

            at = point_in_time(since, now()) if isinstance(since, str) else since
            found = takewhile(lambda one: one.at >= at, found)
        if newest:
            return tuple(islice(found, limit or None))
        return tuple(sorted(found, key=lambda one: one.seq))[: limit or None]

    def rows(self, effect: "Effect | str", table: str = "", limit: int = 1_000) -> "tuple[RowChange, ...]":
        """The rows that an effect changed in its database: `.table`, `.key`, `.before` and `.after`, each column as
        text. Also works for a held effect."""
        from takeback.audit.rows import changed_rows

        found = self.effect(effect) if isinstance(effect, str) else effect
        return changed_rows(self._opened.parts, found, table, limit).rows

    def runs(self, *, project: "Path | None" = None, scope: "Scope | None" = None) -> tuple[RunInfo, ...]:
        """Runs, oldest first; with `project`, those that began in that project or touched it."""
        where = scope_of(self.store.journal, project) if project is not None else scope
        return tuple(self.store.journal.runs(scope=where))

    find_run = _handed(OpenStore.find_run)

    def checkpoints(
        self,
        run: "str | RunInfo | None" = None,
        *,
        project: "Path | None" = None,
        scope: "Scope | None" = None,
    ) -> tuple[Checkpoint, ...]:
        """Checkpoints, oldest first: all named ones, and the newest of the automatic ones."""
        from takeback.runs.checkpoints import newest, of_projects, of_run, with_state

        id = self.find_run(run).id if isinstance(run, str) else run.id if run else ""
        found = newest(of_run(self.store.journal, id), self.store.settings.checkpoints_kept)
        where = scope_of(self.store.journal, project) if project is not None else scope
        if where:
            found = of_projects(self.store.journal, found, where)
        return tuple(with_state(self.store.blobs, one) for one in found)

    accept = _handed(decisions.accept)
    apply = _handed(decisions.apply)
    discard = _handed(decisions.discard)
    pin = _handed(decisions.pin)
    unpin = _handed(decisions.unpin)

    def keep(self, *what: object, **wishes: object) -> NoReturn:
        """Renamed: raises an error that says the new name."""
        raise Renamed(
            "tb.keep was renamed.",
            hint="tb.accept accepts a change that was made, tb.apply makes a held one.",
        )

    pending = _handed(decisions.pending)
    proposals = _handed(decisions.proposals)
    approve = _handed(decisions.approve)
    deny = _handed(decisions.deny)
    settle = _handed(decisions.settle)
    accept_residue = _handed(decisions.accept_residue)
    stop = _handed(halts.stop)
    lift = _handed(halts.lift)
    stops = _handed(halts.stops)
    finish_watch = _handed(decisions.finish_watch)
    undo = _handed(undoing.undo)
    undo_to = _handed(undoing.undo_to)
    redo = _handed(undoing.redo)

    def recover(self) -> "tuple[Settled, ...]":
        """Recover everything that dead processes left, and retry stuck effects. `tb.tell` gets the names of the
        functions that this calls, before the calls."""
        settled = upkeep.recover(self._opened)
        workflows.wake_settled(self._opened)
        return settled

    rehearse = _handed(rehearsing.rehearse)
    dead_runs = _handed(upkeep.dead_runs)
    verify = _handed(upkeep.verify)
    forget = _handed(upkeep.forget)
    redact = _handed(redaction.redact)
    unprotect = _handed(upkeep.unprotect)
    sweep = _handed(upkeep.sweep)
    copy_to = _handed(upkeep.copy_to)
    anchor = _handed(proof.anchor)
    check_anchors = _handed(proof.check_anchors)
    proof_level = _handed(proof.proof_level)

    def size(self) -> int:
        """The size of the store on disk, in bytes."""
        return self.store.bytes_on_disk()

    submit = _handed(workflows.submit)
    signal = _handed(workflows.signal)
    result = _handed(workflows.result)
    work = _handed(workers.work)
    resume = _handed(workflows.resume)

    def close(self) -> None:
        self._opened.close()

    def __enter__(self) -> "Takeback":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open(path: "str | os.PathLike[str] | None" = None, *, recover: bool = True, blobs: str = "") -> Takeback:
    """Open the store at that path or `postgresql://` address, and create it if it does not exist. Opening and reading
    do not recover anything. The first change recovers what a crash left, without calling functions, unless `recover`
    is False. `tb.recovered` lists the recovered effects. `tb.dead_runs()` lists the runs that still need recovery;
    `tb.recover()` or a worker recovers them. `tb.unrecovered` says why recovery failed, such as a full disk. `blobs`,
    for a store in PostgreSQL: `s3://bucket/prefix` for its large blobs. Give it once; the store remembers it."""
    if path is not None and not os.fspath(path):
        raise Misuse(
            "An empty path names no store.", hint="Give a directory, or nothing for the usual store."
        )
    store = open_store(os.fspath(path) if path is not None else default_path(), now, blobs)
    read_settings(store)
    tb = Takeback(store)
    opened_of(tb).settles = recover
    return tb


def sessions(tb: Takeback, *, project: "Path | None" = None) -> "tuple[AgentSession, ...]":
    """Conversations with coding agents, the one that was active last first; with `project`, those of the project around
    this directory. `tb.undo` takes back what was done in one."""
    from takeback.runs.prompts import sessions

    return sessions(tb.store.journal, scope_of(tb.store.journal, project) if project is not None else None)


def prompts(tb: Takeback, session: "AgentSession") -> "tuple[Prompt, ...]":
    """The prompts of a conversation, oldest first. `tb.undo` takes back what was done since before one."""
    from takeback.runs.prompts import prompts_of

    return prompts_of(tb.store.journal, session)


def opened_of(tb: Takeback) -> OpenStore:
    """What our own front ends, tests and tools need beyond the public names."""
    return tb._opened  # pyright: ignore[reportPrivateUsage]


def _as_run(core: "RunCore") -> "Run":
    from takeback.runs.run import Run

    return Run(core)


def _proposed(opened: OpenStore, effect: Effect) -> None:
    from takeback.api.notices import tell_later

    tell_later(opened, effect)
