"""A store opened: what each part of `Takeback` shares, and where the concrete parts are put together."""

import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from takeback.api.told_journal import ToldJournal, told
from takeback.errors import LeaseHeld, Misuse, Refused
from takeback.model.boot_clock import since_boot
from takeback.model.effect import Effect
from takeback.model.functions import refuse_while_looking
from takeback.model.ids import new_id
from takeback.model.progress import SILENT, CountedBlobs, Progress
from takeback.model.record import Draft, Kind
from takeback.model.resource import Scope, file_resource
from takeback.model.run import Lease, OnDeath, RunInfo, RunState
from takeback.runs.person import account_here
from takeback.runs.scope import scope_of
from takeback.runs.selection import effect_named, run_of
from takeback.storage.owners import alive, myself
from takeback.storage.people_files import people_here
from takeback.storage.projects import Belonging
from takeback.storage.protocols import Blobs
from takeback.storage.sqlite.store import DiskStore, Store

if TYPE_CHECKING:
    from weakref import WeakValueDictionary

    from takeback.adapters.file.adapter import FileAdapter
    from takeback.engine.parts import Parts
    from takeback.engine.settled import Settled
    from takeback.engine.stop import StopsInForce
    from takeback.model.plan import Plan
    from takeback.runs.core import RunCore
    from takeback.runs.policies import Policies
    from takeback.runs.verbs import Path
    from takeback.storage.notes import GivenUp


def now() -> int:
    return time.time_ns() // 1000


class LimitsLook(NamedTuple):
    """At the limits of the store, when, until when that will do, and how far the nearest was."""

    at: int
    until: int
    free: int
    room: int


class OpenStore:
    def __init__(
        self,
        store: Store,
        room: "Callable[[OpenStore, int], None]",
        keep_up: "Callable[[OpenStore, str], None]",
        proposed: "Callable[[OpenStore, Effect], None]",
    ) -> None:
        """`room` raises if a capture of that many bytes has no room; `keep_up` is called when a run ended well,
        `proposed` when something waits for an approval."""
        self.store = store
        if not isinstance(store.journal, ToldJournal):
            store.journal = told(store)
        self.here: Callable[[], Scope | None] = lambda: None  # what `@` and the newest mean; None: everything
        self.tell: Callable[[str], None] = lambda words: (
            None
        )  # hears what is waited for, or about to be called
        self.progress: Progress = SILENT  # of long work; set before the first of it
        self.given_up: list[GivenUp] = []  # ways back that were given up by policy, in this process
        self.recovered: tuple[Settled, ...] = ()
        self.unrecovered = ""
        self.settles = False  # whether the first change settles what a crash left
        # Raises if a plan is not the one that a person agreed to; called right before it is carried out.
        self.agree: Callable[[Plan], None] = lambda plan: None
        self.lease_lasts = store.settings.lease_seconds * 1_000_000
        self.looked: LimitsLook | None = None
        self._room = room
        self._keep_up = keep_up
        self._proposed = proposed

    @cached_property
    def parts(self) -> "Parts":
        """Made when first needed: looking at the journal needs no adapter."""
        return _wire(self, self._room, self._proposed)

    @cached_property
    def stops(self) -> "StopsInForce":
        from takeback.engine.stop import StopsInForce

        return StopsInForce(self.store.journal)

    @cached_property
    def belonging(self) -> Belonging:
        return Belonging(self.store.journal)

    @cached_property
    def policies(self) -> "Policies":
        from takeback.runs.policies import Policies

        return Policies(self.store, lambda run: self.belonging.projects_of((run,))[0].root)

    def say(self, words: str) -> None:
        self.tell(words)

    def outlast(self, run: str, seconds: float) -> None:
        """The lease of a run that is open here is held for that long from now."""
        if core := self.runs_here.get(run):
            core.outlast(seconds)

    def close(self) -> None:
        if "parts" in self.__dict__ and (close := getattr(self.parts.adapters, "close", None)):
            close()
        self.store.close()

    # Names.

    def scope_for(self, what: object) -> Scope | None:
        """Only `@` needs one: an id means the same everywhere."""
        names = cast("Sequence[object]", what if isinstance(what, (list, tuple)) else (what,))
        counts = any(isinstance(name, str) and name.startswith("@") for name in names)
        return self.here() if counts else None

    def effect(self, id: str, *, project: "Path | None" = None) -> Effect:
        """Find an effect by id, by a unique prefix of at least 4 characters, or as `@` (the newest, not counting undos)
        or `@~2` (the second before it). With `project`, look only at its effects."""
        scope = scope_of(self.store.journal, project) if project is not None else self.scope_for(id)
        return effect_named(self.store.journal, id, scope)

    def find_run(self, name: str) -> RunInfo:
        """Find a run by id, unique prefix or name: the newest of that name. The command line prefers runs of this
        project."""
        try:
            scope = self.here()
        except Refused:
            scope = None  # a name means a run anywhere
        return run_of(self.store.journal, name, scope)

    def run_meant(self, name: str) -> RunInfo | None:
        """A run by its id, a unique prefix of it, or its name; None if there is no such run. `@` is an effect."""
        if name.startswith("@"):
            return None
        ids = self.store.journal.resolve(name.lower())
        if ids:
            return next(self.store.journal.runs(ids), None) if len(ids) == 1 else None
        try:
            return self.find_run(name) if name else None
        except Misuse:
            return None

    # Runs.

    @cached_property
    def runs_here(self) -> "WeakValueDictionary[str, RunCore]":
        """Runs of this process by id, while anyone holds them."""
        from weakref import WeakValueDictionary  # looking needs none of it

        return WeakValueDictionary()

    def hold_run(self, info: RunInfo, lease: Lease, begun: int = 0) -> "RunCore":
        """`begun`: what the clock since the machine started said before the lease was taken, if that is known."""
        from takeback.runs.core import RunCore

        keep_up = partial(self._keep_up, self)
        core = RunCore(self.parts, info, lease, self.store.settings, now, keep_up, begun)
        self.runs_here[info.id] = core
        return core

    def open_run(
        self,
        name: str,
        agent: str,
        on_death: OnDeath,
        belongs: dict[str, Any],
        undoing: Sequence[str] = (),
        on_conflict: str = "",
        only: frozenset[str] | None = None,
    ) -> "RunCore":
        refuse_while_looking()
        self.store.refuse_if_suspect()
        id = new_id()
        body: dict[str, Any] = {"name": name, "agent": agent, "on_death": on_death.value} | belongs
        if undoing:
            # How it was asked for: recovery must finish it the same way.
            body |= {"undoing": list(undoing), "on_conflict": on_conflict}
        if only is not None:
            from takeback.model.plan import ONLY

            body[ONLY] = sorted(only)
        begun = since_boot()
        with self.store.together():
            lease = self.acquire(id, 0)
            (record,) = self.store.journal.append(lease, [Draft(Kind.OPEN, id, "", body)])
        self.belonging.began(id, belongs)
        project: str = belongs.get("project", "")
        info = RunInfo(id, name, agent, RunState.OPEN, on_death, record.at, project=project)
        return self.hold_run(info, lease, begun)

    def acquire(self, run: str, wait: float) -> Lease:
        until = time.monotonic() + wait
        while True:
            try:
                return self.store.leases.acquire(run, myself(), now(), self.lease_lasts)
            except LeaseHeld:
                if time.monotonic() >= until:
                    raise
                time.sleep(0.02)

    @contextmanager
    def leased(self, run: str) -> "Generator[Lease, None, None]":
        """To decide on what it holds. One that is open here lends its own."""
        core = self.runs_here.get(run)
        if core:
            from takeback.runs.end import lent

            with lent(core) as its_own:
                if its_own:
                    yield its_own
                    return
        lease = self.acquire(run, 0)
        try:
            yield lease
        finally:
            self.store.leases.release(lease)


def _wire(
    opened: OpenStore,
    room: Callable[[OpenStore, int], None],
    proposed: Callable[[OpenStore, Effect], None],
) -> "Parts":
    """The only place where the concrete adapters meet the concrete store."""
    from takeback.adapters.call.ask import Processes
    from takeback.adapters.database import Keyring, Waiting
    from takeback.adapters.registry import Registry
    from takeback.engine.parts import DropLimits, Parts

    store, progress, real_path = opened.store, opened.progress, os.path.realpath(opened.store.path)

    def store_names() -> tuple[str, ...]:
        from takeback.adapters.file.mounts import names_of

        return tuple(map(file_resource, names_of(os.fsencode(real_path))))

    held = os.path.join(store.path, "held")
    blobs = cast(Blobs, CountedBlobs(store.blobs, progress.moved)) if progress.draws else store.blobs

    def files() -> "FileAdapter":
        from takeback.adapters.file.adapter import FileAdapter

        return FileAdapter(blobs, held, store.settings.max_capture_bytes, progress)

    keyring = Keyring()
    waiting = Waiting(store.settings.lock_seconds, opened.say)
    adapters = Registry(
        files, blobs, held, store.layers, keyring, waiting,
        Processes(myself, alive, opened.outlast, lambda: store.made_here), progress,
    )  # fmt: skip
    policies = opened.policies
    return Parts(
        store.journal,
        blobs,
        store.leases,
        adapters,
        store.refuse_if_suspect,
        partial(room, opened),
        keyring.named,
        opened.belonging,
        file_resource(real_path),
        store.settings.max_capture_bytes,
        DropLimits(
            store.settings.dropped_seconds, store.settings.dropped_bytes, store.refuse_without_room, now
        ),
        store_names,
        progress,
        opened.say,
        store.together if isinstance(store, DiskStore) else None,
        stops=opened.stops,
        account=partial(account_here, store),
        people=people_here,
        proposed=partial(proposed, opened),
        rules=policies,
        policy_files=policies.always,
        in_force=policies.in_force,
    )
