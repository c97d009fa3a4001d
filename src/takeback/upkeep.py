"""Keeping an opened store in order: recover, verify, forget, sweep."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple, cast

from takeback.errors import InDoubt, Misuse, StoreFull, TakebackError, Unavailable
from takeback.model.effect import PERSON, Effect, State
from takeback.model.ids import short
from takeback.model.mounts import SANDBOX_TRIAL
from takeback.model.progress import Progress
from takeback.model.record import Flaw
from takeback.model.resource import Scope
from takeback.model.run import OnDeath, RunState
from takeback.runs.selection import id_of, names_of
from takeback.storage import bodies
from takeback.storage.owners import killed_commands, myself
from takeback.storage.protocols import Journal, Leases, Query
from takeback.storage.sqlite.store import Store, open_store

if TYPE_CHECKING:
    from takeback.adapters.database import Cover
    from takeback.audit.runs import DeadRun
    from takeback.engine.parts import Parts
    from takeback.engine.settled import Settled
    from takeback.retention.candidates import Verdict
    from takeback.retention.space import Space
    from takeback.storage.copy import Copied
    from takeback.storage.notes import GivenUp


_LOOK_LASTS = 60_000_000  # microseconds
_MUCH_ROOM = 64 << 20


class _Looked(NamedTuple):
    """At the limits of the store, when, until when that will do, and how far the nearest was."""

    at: int
    until: int
    free: int
    room: int


# Runs whose process is gone.


def something_left(journal: Journal, leases: Leases, now: int) -> bool:
    """Whether a dead process left something to settle; what a workflow left is for the next worker."""
    resumed: set[str] = set()
    for info in journal.runs(unfinished=True):
        if info.on_death is OnDeath.RESUME:
            resumed.add(info.id)
            continue
        if info.state is RunState.SUSPENDED or not leases.free(info.id, now):
            continue
        if info.on_death is not OnDeath.LEAVE:
            return True
        in_flight = journal.effects(Query(run=info.id, states=(State.PROPOSED, State.INTENDED)))
        if any(effect.waits_for != PERSON for effect in in_flight):
            return True
    in_the_making = journal.effects(Query(states=(State.INTENDED,)))
    return any(effect.run not in resumed and leases.free(effect.run, now) for effect in in_the_making)


class Verified(NamedTuple):
    """What `verify` found; sound if there is nothing in it."""

    findings: tuple[Flaw, ...]
    records: int
    blobs: int

    @property
    def sound(self) -> bool:
        return not self.findings


class Upkeep(ABC):
    """The part of a store opened that keeps it in order."""

    store: Store
    progress: Progress
    _looked: "_Looked | None" = None
    given_up: "list[GivenUp]"  # ways back that were given up by policy since the store was opened
    recovered: "tuple[Settled, ...]" = ()
    unrecovered: str = ""
    _settles = False  # whether the first change settles what a crash left
    here: "Callable[[], Scope | None]"  # what `@` and the newest mean; None: everything. The command line sets it

    def _scope_for(self, what: object) -> "Scope | None":
        """Only `@` needs one: an id means the same everywhere."""
        names = cast("Sequence[object]", what if isinstance(what, (list, tuple)) else (what,))
        counts = any(isinstance(name, str) and name.startswith("@") for name in names)
        return self.here() if counts else None

    @abstractmethod
    def _tell(self, words: str) -> None:
        """Say what is waited for, or about to be called."""

    @property
    @abstractmethod
    def parts(self) -> "Parts": ...

    @property
    def _lease_lasts(self) -> int:
        return self.store.settings.lease_seconds * 1_000_000

    def recover(self) -> "tuple[Settled, ...]":
        """Settle everything that dead processes left; look again at what is stuck. `tb.tell` hears which functions that
        calls, before it calls them."""
        self._settles = False
        settled = self._recover(stuck_too=True)
        self._wake_settled()
        return settled

    def settle_first(self, calls: bool = False) -> None:
        """Before a change: settle what a crash left and needs no function to be called; with `calls` the rest, too.
        `recovered` tells what was settled; where that cannot be done now (the disk is full), `unrecovered` says why."""
        self._settles = False
        if not self.needs_recovery():
            return
        try:
            self.recovered = self._recover(stuck_too=False, calls=calls)
        except (Unavailable, InDoubt) as error:
            self.unrecovered = str(error)

    def _before_change(self, calls: bool = False) -> None:
        """Each verb that changes something comes here, once it knows that what it was asked for makes sense."""
        if self._settles:
            self.settle_first(calls)

    def dead_runs(self) -> "tuple[DeadRun, ...]":
        """Runs whose process is gone and that are not settled: what is in force, what is in doubt, and which functions
        settling them would call."""
        from takeback.audit.runs import dead_runs

        return dead_runs(self.store, now())

    @abstractmethod
    def _wake_settled(self) -> None:
        """Whoever waits for a person to settle an effect goes on when it is."""

    def _recover(self, stuck_too: bool, calls: bool = True) -> "tuple[Settled, ...]":
        from takeback.engine.recover import recover

        parts = self.parts._replace(leases=self.store.leases_at_home)
        dropped = self._rescue(parts)
        self._clear()
        settled = recover(
            parts, myself(), now(), self._lease_lasts, stuck_too=stuck_too, calls=calls, tell=self._tell
        )
        return (*dropped, *settled)

    def _rescue(self, parts: "Parts") -> "list[Settled]":
        """What commands changed whose takeback was killed."""
        from takeback.runs.commands.merge import rescue

        return rescue(
            parts, os.path.realpath(self.store.path), myself(), now(), self._lease_lasts, self._tell
        )

    def needs_recovery(self) -> bool:
        """Whether a dead process left something; cheap, asked before the first change."""
        if self.store.read_only or self.store.suspect() or self.store.retired:
            return False
        if os.path.lexists(os.path.join(self.store.path, SANDBOX_TRIAL)):
            return True  # killed while it looked whether there can be a sandbox, before it began anything
        if something_left(self.store.journal, self.store.leases_at_home, now()):
            return True
        store = os.path.realpath(self.store.path)
        return any(one.is_whole for one in killed_commands(store, (store,)))

    def verify(self, read_data: bool = False) -> Verified:
        """Everything that is wrong with the store; with `read_data` every blob is read again."""
        from takeback.audit.diff import lost_layers

        self.store.read_anew()
        progress = self.progress
        with progress.stage("Checking the journal", ticks=True):
            findings = list(self.store.journal.check())
        if lost := self.store.lost():
            findings.append(Flaw(lost))
        with progress.stage("Checking", "blob"):
            if progress.draws:
                sizes = [one.size for one in self.store.blobs.info()]
                progress.expect(len(sizes), sum(sizes) if read_data else 0)
            findings += self.store.blobs.check(read_data, progress)
        findings += self._missing_blobs()
        findings += lost_layers(self.store.layers())
        if not findings and read_data:
            self.store.trust_again()
        blobs = sum(1 for _ in self.store.blobs.info())
        return Verified(tuple(findings), self.store.journal.tally()["records"], blobs)

    def _missing_blobs(self) -> Iterator[Flaw]:
        states = (State.DONE, State.UNDONE, State.INTENDED, State.DROPPED)
        for effect in self.store.journal.effects(Query(states=states)):
            for digest in effect.remedy.blobs if effect.remedy and not effect.forgotten else ():
                if not self.store.blobs.has(digest):
                    done = "applied" if effect.state is State.DROPPED else "undone"
                    text = f"Effect {short(effect.id)} cannot be {done}: blob {digest[:12]} is missing."
                    yield Flaw(text, blob=digest, effect=effect.id)
        for digest in bodies.needed(self.store.journal):
            if not self.store.blobs.has(digest):
                text = f"The state of a checkpoint, or what a run remembered, is missing: blob {digest[:12]}."
                yield Flaw(text, blob=digest)

    def forget(
        self,
        what: "Sequence[Effect | str] | Effect | str | None" = None,
        *,
        dry_run: bool = False,
    ) -> "tuple[Verdict, ...]":
        """Give up the power to undo: these effects, or by policy what was accepted long enough ago."""
        from takeback.retention.forget import by_policy, forget, named

        if what is None:
            if not dry_run:
                self._before_change()
            decisions = by_policy(self.parts, self.store.settings, now())
        else:
            # A damaged record is no reason to keep it: forgetting is how a store goes on without it.
            ids = [id_of(self.store.journal, name, scope=self._scope_for(name)) for name in names_of(what)]
            if not dry_run:
                self._before_change()
            found = list(self.store.journal.effects(Query(ids=tuple(ids), damaged_too=True)))
            decisions = named(self.parts, found)
        if not dry_run:
            self.store.use_spare()
            forget(self.parts, decisions, self._held)
        return decisions

    def unprotect(
        self, address: str, tables: "Sequence[str]" = (), *, dry_run: bool = False
    ) -> "tuple[Cover, tuple[Verdict, ...]]":
        """Remove the protection of a database, or of these tables of it. What is covered then, and the ways back that
        went with it: they are recorded as forgotten."""
        from takeback.adapters.database import Databases
        from takeback.engine.parts import adapter_of
        from takeback.retention.forget import record_forgotten, release, with_its_database
        from takeback.runs.lease import held_back

        database = self.parts.named(address)
        adapter = adapter_of(self.parts, database.engine)
        assert isinstance(adapter, Databases)
        if not dry_run:
            self._before_change()
        going = with_its_database(self.parts, database, tables)
        if dry_run:
            return adapter.cover(database), going
        self.store.use_spare()
        given_up = False
        with ExitStack() as rest:

            def give_up() -> None:
                """Recorded before they go: no way back may be promised that a kill has left without its log."""
                nonlocal given_up
                if not given_up:
                    rest.enter_context(held_back())
                    list(record_forgotten(self.parts, going, self._held))
                    given_up = True

            try:
                cover = adapter.unprotect(database, tables, give_up)
            except TakebackError as error:
                if given_up and going:
                    error.hint = (
                        "The ways back are given up. Run `takeback sql unprotect` again for the rest."
                    )
                raise
            give_up()
            release(self.parts, [one.effect for one in going], self._held)
        return cover, going

    def sweep(self, grace: int | None = None, *, baselines: bool = False, dry_run: bool = False) -> int:
        """Delete the bytes nothing needs any more; how many were freed. With `baselines` also the copies of watched
        directories: the next watch reads those directories again, and no way back is lost. A dry run deletes nothing
        and counts only what is in no box and no copy of a watched directory."""
        if grace is not None and grace < 0:
            raise Misuse(f"A grace period of {grace} seconds makes no sense.", hint="Give 0 or more.")
        if dry_run:
            from takeback.retention.space import sweepable

            return sweepable(self.parts, self.store.settings.grace_seconds if grace is None else grace)
        self.store.use_spare()
        self.store.refuse_if_suspect()
        return self._expire_drops() + self._swept(grace, baselines)

    def _swept(self, grace: int | None = None, baselines: bool = False, erased: Sequence[Effect] = ()) -> int:
        from takeback.retention.forget import release_forgotten
        from takeback.retention.layers import sweep_layers
        from takeback.retention.space import sweep
        from takeback.runs.watch import UNUSED, drop_unused

        self.store.use_spare()
        self.store.refuse_if_suspect()
        self._before_change()
        self._clear()
        release_forgotten(self.parts, self._held)
        grace = self.store.settings.grace_seconds if grace is None else grace
        dropped = drop_unused(self.parts, now() / 1e6 - (0 if baselines else UNUSED))
        return (
            dropped + sweep_layers(self.parts, self.store.layers(), grace) + sweep(self.parts, grace, erased)
        )

    def _expire_drops(self) -> int:
        """Erase what was dropped too long ago, or is too much for its project; how many bytes were freed."""
        from takeback.retention.candidates import due, with_their_undos

        decisions = due(self.parts, self.store.settings, now())
        return self._give_up(with_their_undos(self.parts, decisions)) if decisions else 0

    def _erase(self, effects: Sequence[Effect]) -> None:
        """What was dropped cannot be applied any more, and its bytes go."""
        from takeback.retention.candidates import Verdict, with_their_undos
        from takeback.retention.forget import forget

        dropped = [one for one in effects if one.state is State.DROPPED]
        decisions = [Verdict(one, True, "goes: someone asked for it") for one in dropped]
        going = with_their_undos(self.parts, decisions)
        forget(self.parts, going, self._held)
        # What was seen of a watched directory has the content too; the next watch reads that directory again.
        self._swept(baselines=len(going) > len(decisions), erased=[one.effect for one in going])

    @property
    def _held(self) -> str:
        return os.path.join(self.store.path, "held")

    def _clear(self) -> None:
        """Layers of commands, and of boxes put together, whose takeback was killed."""
        from takeback.runs.commands.scratch import clear
        from takeback.sandbox import ability

        ability.clear(self.store.path)

        for name in ("commands", "wholes"):
            clear(os.path.join(self.store.path, name))

    def _keep_up(self, run: str) -> None:
        """After a run ended well: give up what its time is over for, and bring the store under its limits."""
        from takeback.runs.watch import any_unused

        crowding: list[Verdict] = []
        if self.store.settings.versions_per_file:
            from takeback.retention import space

            ended = tuple(self.store.journal.effects(Query(run=run, limit=50)))
            crowding = space.crowding(self.parts, self.store.settings, now(), ended)
        if crowding or not self._within_limits():
            self._make_room(crowding)
        elif any_unused(self.store.path, now() / 1e6):
            self.sweep()
        self._expire_drops()

    def _within_limits(self) -> bool:
        """Whether a look not long ago found so much room that no limit can be met by now."""
        looked = self._looked
        if looked is None or not looked.at <= now() < looked.until:
            return False
        return self.store.free_bytes() > looked.free - looked.room // 2

    def _make_room(self, also: "Sequence[Verdict]" = (), more: int = 0) -> None:
        """The oldest accepted effects go first, then the baselines of watched directories. `more`: for a capture."""
        from takeback.retention.space import due
        from takeback.runs.watch import any_unused, drop_unused

        settings, limits, space = self.store.settings, self.store.limits(), self._space(more)
        found = (*due(self.parts, settings, limits, now(), space), *also)
        if decisions := {one.effect.id: one for one in found}:
            self._give_up(tuple(decisions.values()))
            space = self._space(more)
        room = min(limits.store - space.taken, space.free - limits.free)
        lasts = min(_LOOK_LASTS, settings.accepted_seconds * 10_000)  # a hundredth of the term
        self._looked = _Looked(now(), now() + lasts, space.free, room) if room > _MUCH_ROOM else None
        if (space.over(limits)[0] and drop_unused(self.parts, now() / 1e6)) or any_unused(
            self.store.path, now() / 1e6
        ):
            self.sweep()

    def stay_within_limits(self) -> None:
        """For whoever changes things in a run that does not end."""
        limits = self.store.limits()
        if self.store.bytes_kept() > limits.store or self.store.free_bytes() < limits.free:
            self._make_room()

    def _space(self, more: int = 0) -> "Space":
        from takeback.retention.space import Space, pinned_bytes

        taken = self.store.bytes_kept()
        return Space(taken + more - pinned_bytes(self.parts), self.store.free_bytes() - more)

    def _give_up(self, decisions: "Sequence[Verdict]") -> int:
        """Noted first: a kill in between must not lose the line that tells of it. How many bytes were freed."""
        from takeback.retention.forget import forget
        from takeback.storage.notes import Bound, GivenUp, note

        going = [
            GivenUp(one.effect.id, Bound(one.bound), one.effect.at, one.limit)
            for one in decisions
            if one.bound
        ]
        note(self.store.path, going)
        forget(self.parts, decisions, self._held)
        self.given_up += going
        return self._swept()

    def without_room(self, more: int) -> None:
        """Raises when there is no room for a capture of that many bytes, after what may go has gone."""
        try:
            self.store.refuse_without_room(more)
        except StoreFull:
            if self.store.retired or self.store.suspect():
                raise
            self._make_room(more=more)
            self.store.refuse_without_room(more)

    def copy_to(self, path: str, *, blobs: str = "", backup: bool = False) -> "Copied":
        """A copy of this store, at a directory or a `postgresql://` address where there is none yet. Nobody writes to
        this one meanwhile; an interrupted copy is gone on with when the same is asked for again. Afterwards this store
        takes nothing new, because what is unfinished must not go on in two places; of a `backup` that holds for the
        copy."""
        from takeback.storage.copy import copy_store

        target = open_store(path, now, blobs, copying=self.store.name)
        try:
            return copy_store(self.store, target, backup, self.progress)
        finally:
            target.close()

    def size(self) -> int:
        """Bytes on disk."""
        return self.store.bytes_on_disk()


def now() -> int:
    return time.time_ns() // 1000
