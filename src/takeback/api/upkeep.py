"""Keeping an opened store in order: recover, verify, forget, sweep."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from takeback.api.store import LimitsLook, OpenStore, now
from takeback.errors import Corrupt, InDoubt, Misuse, StoreFull, TakebackError, Unavailable
from takeback.model.effect import PERSON, Effect, State
from takeback.model.ids import short
from takeback.model.mounts import SANDBOX_TRIAL
from takeback.model.record import Flaw
from takeback.model.run import OnDeath, RunState
from takeback.runs.agent_above import refuse_below_agent
from takeback.runs.selection import id_of, names_of
from takeback.storage import bodies
from takeback.storage.owners import killed_commands, myself
from takeback.storage.protocols import Journal, Leases, Query
from takeback.storage.sqlite.store import open_store
from takeback.storage.verify_note import LastVerified, note_verified

if TYPE_CHECKING:
    from takeback.adapters.database import Cover
    from takeback.audit.runs import DeadRun
    from takeback.engine.settled import Settled
    from takeback.retention.candidates import Verdict
    from takeback.retention.space import Space
    from takeback.storage.copy import Copied


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


_LOOK_LASTS = 60_000_000  # microseconds
_MUCH_ROOM = 64 << 20


class Verified(NamedTuple):
    """What `verify` found; sound if there is nothing in it."""

    findings: tuple[Flaw, ...]
    records: int
    blobs: int

    @property
    def sound(self) -> bool:
        return not self.findings


def recover(opened: OpenStore) -> "tuple[Settled, ...]":
    from takeback.engine.ladder import retried, stuck_now

    opened.settles = False
    before = stuck_now(opened.store.journal)
    settled = recover_dead(opened, stuck_too=True)
    retried(opened.store.journal, before)
    return settled


def settle_first(opened: OpenStore, calls: bool = False) -> None:
    """Called before a change: recover what a crash left, as far as no function must be called; with `calls` the rest,
    too. `recovered` lists the recovered effects. If recovery is not possible now (the disk is full), `unrecovered` says
    why."""
    opened.settles = False
    if not needs_recovery(opened):
        return
    try:
        opened.recovered = recover_dead(opened, stuck_too=False, calls=calls)
    except (Unavailable, InDoubt) as error:
        opened.unrecovered = str(error)


def before_change(opened: OpenStore, calls: bool = False) -> None:
    """Each verb that changes something comes here, once it knows that what it was asked for makes sense."""
    if opened.settles:
        settle_first(opened, calls)


def dead_runs(opened: OpenStore) -> "tuple[DeadRun, ...]":
    """Runs whose process died and that need recovery: their effects, those in doubt, and which functions recovery would
    call."""
    from takeback.audit.runs import dead_runs

    return dead_runs(opened.store, now())


def recover_dead(opened: OpenStore, stuck_too: bool, calls: bool = True) -> "tuple[Settled, ...]":
    from takeback.engine.recover import recover
    from takeback.runs.commands.merge import rescue

    parts, store = opened.parts._replace(leases=opened.store.leases_at_home), opened.store
    # What commands changed whose takeback was killed.
    dropped = rescue(parts, os.path.realpath(store.path), myself(), now(), opened.lease_lasts, opened.say)
    _clear(opened)
    finish_redaction(opened)
    settled = recover(
        parts, myself(), now(), opened.lease_lasts, stuck_too=stuck_too, calls=calls, tell=opened.say
    )
    return (*dropped, *settled)


def needs_recovery(opened: OpenStore) -> bool:
    """Whether a dead process left something; cheap, asked before the first change."""
    if opened.store.read_only or opened.store.suspect() or opened.store.retired:
        return False
    if os.path.lexists(os.path.join(opened.store.path, SANDBOX_TRIAL)):
        return True  # killed while it looked whether there can be a sandbox, before it began anything
    if opened.store.redacting() or something_left(opened.store.journal, opened.store.leases_at_home, now()):
        return True
    store = os.path.realpath(opened.store.path)
    if any(one.is_whole for one in killed_commands(store, (store,))):
        return True
    # Killed while it removed a layer: files of the world may still have a second name there.
    commands = os.path.join(store, "commands")
    if not os.path.isdir(commands) or not os.listdir(commands):
        return False
    from takeback.runs.commands.scratch import leftovers

    return any(leftovers(commands))


def verify(opened: OpenStore, read_data: bool = False) -> Verified:
    """Check the store and report all damage; with `read_data` every blob is read again. The findings are noted
    beside it, for alerts and metrics."""
    try:
        found = _verified(opened, read_data)
    except Corrupt as error:
        note_verified(opened.store.verify_note, LastVerified(now(), 1, str(error), read_data))
        raise
    first = str(found.findings[0]) if found.findings else ""
    note_verified(opened.store.verify_note, LastVerified(now(), len(found.findings), first, read_data))
    return found


def _verified(opened: OpenStore, read_data: bool) -> Verified:
    from takeback.audit.diff import lost_layers

    opened.store.read_anew()
    progress = opened.progress
    with progress.stage("Checking the journal", ticks=True):
        findings = list(opened.store.journal.check())
    if lost := opened.store.lost():
        findings.append(Flaw(lost))
    with progress.stage("Checking", "blob"):
        if progress.draws:
            sizes = [one.size for one in opened.store.blobs.info()]
            progress.expect(len(sizes), sum(sizes) if read_data else 0)
        findings += opened.store.blobs.check(read_data, progress)
    findings += _missing_blobs(opened)
    findings += lost_layers(opened.store.layers())
    if not findings and read_data:
        opened.store.trust_again()
    blobs = sum(1 for _ in opened.store.blobs.info())
    return Verified(tuple(findings), opened.store.journal.newest(), blobs)


def _missing_blobs(opened: OpenStore) -> Iterator[Flaw]:
    states = (State.DONE, State.UNDONE, State.INTENDED, State.DROPPED)
    for effect in opened.store.journal.effects(Query(states=states)):
        for digest in effect.remedy.blobs if effect.remedy and not effect.forgotten else ():
            if not opened.store.blobs.has(digest):
                done = "applied" if effect.state is State.DROPPED else "undone"
                text = f"Effect {short(effect.id)} cannot be {done}: blob {digest[:12]} is missing."
                yield Flaw(text, blob=digest, effect=effect.id)
    for digest in bodies.needed(opened.store.journal):
        if not opened.store.blobs.has(digest):
            text = f"The state of a checkpoint, or what a run remembered, is missing: blob {digest[:12]}."
            yield Flaw(text, blob=digest)


def forget(
    opened: OpenStore,
    what: "Sequence[Effect | str] | Effect | str | None" = None,
    *,
    dry_run: bool = False,
) -> "tuple[Verdict, ...]":
    """Delete the undo data of these effects, or by policy of effects accepted long enough ago."""
    from takeback.retention.forget import by_policy, forget, named

    if not dry_run:
        refuse_below_agent("tb.forget", opened.store, holding=False)
    if what is None:
        if opened.store.unclear:
            raise Misuse(
                f"What may be forgotten is not known: {opened.store.unclear}",
                hint="`takeback policy check` says what is wrong in the files.",
            )
        if not dry_run:
            before_change(opened)
        decisions = by_policy(opened.parts, opened.store.settings, now())
    else:
        # A damaged record is no reason to keep it: forgetting lets the store continue without it.
        ids = [id_of(opened.store.journal, name, scope=opened.scope_for(name)) for name in names_of(what)]
        if not dry_run:
            before_change(opened)
        found = list(opened.store.journal.effects(Query(ids=tuple(ids), damaged_too=True)))
        if runs := set(ids).difference(one.id for one in found):
            run = short(runs.pop())
            raise Misuse(
                f"{run} is a run, not an effect.", hint=f"`takeback log --run {run}` lists its effects."
            )
        decisions = named(opened.parts, found)
    if not dry_run:
        opened.store.use_spare()
        forget(opened.parts, decisions, _held(opened))
    return decisions


def unprotect(
    opened: OpenStore, address: str, tables: "Sequence[str]" = (), *, dry_run: bool = False
) -> "tuple[Cover, tuple[Verdict, ...]]":
    """Remove the protection of a database, or of these tables. Returns the remaining cover, and the effects whose undo
    data was deleted with it; they are recorded as forgotten."""
    from takeback.adapters.database import Databases
    from takeback.engine.parts import adapter_of
    from takeback.retention.forget import record_forgotten, release, with_its_database
    from takeback.runs.lease import held_back

    database = opened.parts.named(address)
    adapter = adapter_of(opened.parts, database.engine)
    assert isinstance(adapter, Databases)
    if not dry_run:
        before_change(opened)
    going = with_its_database(opened.parts, database, tables)
    if dry_run:
        return adapter.cover(database), going
    opened.store.use_spare()
    given_up = False
    with ExitStack() as rest:

        def give_up() -> None:
            """Recorded before they go: no way back may be promised that a kill has left without its log."""
            nonlocal given_up
            if not given_up:
                rest.enter_context(held_back())
                list(record_forgotten(opened.parts, going, _held(opened)))
                given_up = True

        try:
            cover = adapter.unprotect(database, tables, give_up)
        except TakebackError as error:
            if given_up and going:
                error.hint = "The ways back are given up. Run `takeback sql unprotect` again for the rest."
            raise
        give_up()
        release(opened.parts, [one.effect for one in going], _held(opened))
    return cover, going


def sweep(
    opened: OpenStore, grace: int | None = None, *, baselines: bool = False, dry_run: bool = False
) -> int:
    """Delete bytes that nothing needs any more; returns how many were freed. With `baselines` also the copies of
    watched directories: the next watch reads those directories again, and no undo data is lost. A dry run deletes
    nothing and counts only bytes outside boxes and copies of watched directories."""
    if grace is not None and grace < 0:
        raise Misuse(f"A grace period of {grace} seconds makes no sense.", hint="Give 0 or more.")
    if dry_run:
        from takeback.retention.space import live

        least = opened.store.settings.grace_seconds if grace is None else grace
        return opened.parts.blobs.sweep(lambda: live(opened.parts), least, dry_run=True)
    refuse_below_agent("tb.sweep", opened.store, holding=False)
    return _tidied(opened, grace, baselines)


def _tidied(opened: OpenStore, grace: int | None = None, baselines: bool = False) -> int:
    opened.store.use_spare()
    opened.store.refuse_if_suspect()
    return expire_drops(opened) + _swept(opened, grace, baselines)


def _swept(
    opened: OpenStore, grace: int | None = None, baselines: bool = False, erased: Sequence[Effect] = ()
) -> int:
    from takeback.retention.forget import release_forgotten
    from takeback.retention.layers import sweep_layers
    from takeback.retention.space import sweep
    from takeback.runs.watch_place import UNUSED, drop_unused

    opened.store.use_spare()
    opened.store.refuse_if_suspect()
    before_change(opened)
    _clear(opened)
    release_forgotten(opened.parts, _held(opened))
    finish_redaction(opened)
    grace = opened.store.settings.grace_seconds if grace is None else grace
    freed = drop_unused(opened.parts, now() / 1e6 - (0 if baselines else UNUSED))
    freed += sweep_layers(opened.parts, opened.store.layers(), grace)
    return freed + sweep(opened.parts, grace, erased)


def finish_redaction(opened: OpenStore) -> tuple[str, ...]:
    """Carry on with redactions that were begun, in this process or another. Returns sentences about what could not be
    reached."""
    if not opened.store.redacting():
        return ()
    from takeback.retention.forget import release_forgotten
    from takeback.retention.layers import sweep_layers
    from takeback.retention.redact import finish
    from takeback.runs.watch_place import drop_unused

    store, held = opened.store, _held(opened)

    def tidy() -> None:
        release_forgotten(opened.parts, held)
        # What was seen of watched directories has names and digests; the next watch reads them again.
        drop_unused(opened.parts, now() / 1e6)
        sweep_layers(opened.parts, store.layers(), store.settings.grace_seconds)

    return finish(opened.parts, store, held, tidy)


def expire_drops(opened: OpenStore) -> int:
    """Erase what was dropped too long ago, or is too much for its project; how many bytes were freed."""
    from takeback.retention.candidates import due, with_their_undos

    decisions = [] if opened.store.unclear else due(opened.parts, opened.store.settings, now())
    return _give_up(opened, with_their_undos(opened.parts, decisions)) if decisions else 0


def erase(opened: OpenStore, effects: Sequence[Effect]) -> None:
    """Erase dropped changes: they cannot be applied any more, and their bytes go."""
    from takeback.retention.candidates import Verdict, with_their_undos
    from takeback.retention.forget import forget

    dropped = [one for one in effects if one.state is State.DROPPED]
    decisions = [Verdict(one, True, "goes: someone asked for it") for one in dropped]
    going = with_their_undos(opened.parts, decisions)
    forget(opened.parts, going, _held(opened))
    # What was seen of a watched directory has the content too; the next watch reads that directory again.
    _swept(opened, baselines=len(going) > len(decisions), erased=[one.effect for one in going])


def _clear(opened: OpenStore) -> None:
    """Layers of commands, and of boxes put together, whose takeback was killed."""
    from takeback.runs.commands.scratch import clear
    from takeback.sandbox import ability

    ability.clear(opened.store.path)
    for name in ("commands", "wholes", "rehearsals"):
        clear(os.path.join(opened.store.path, name))


def keep_up(opened: OpenStore, run: str) -> None:
    """After a run ended well: give up what its time is over for, and bring the store under its limits."""
    from takeback.runs.watch_place import any_unused

    if opened.store.unclear:
        return
    crowding: list[Verdict] = []
    if opened.store.settings.versions_per_file:
        from takeback.retention import space

        ended = tuple(opened.store.journal.effects(Query(run=run, limit=50)))
        crowding = space.crowding(opened.parts, opened.store.settings, now(), ended)
    if crowding or not _within_limits(opened):
        _make_room(opened, crowding)
    elif any_unused(opened.store.path, now() / 1e6):
        _tidied(opened)
    expire_drops(opened)


def _within_limits(opened: OpenStore) -> bool:
    """Whether a look not long ago found so much room that no limit can be met by now."""
    looked = opened.looked
    if looked is None or not looked.at <= now() < looked.until:
        return False
    return opened.store.free_bytes() > looked.free - looked.room // 2


def _make_room(opened: OpenStore, also: "Sequence[Verdict]" = (), more: int = 0) -> None:
    """The oldest accepted effects go first, then the baselines of watched directories. `more`: for a capture."""
    from takeback.retention.space import due
    from takeback.runs.watch_place import any_unused, drop_unused

    if opened.store.unclear:
        return
    settings, limits, space = opened.store.settings, opened.store.limits(), _space(opened, more)
    found = (*due(opened.parts, settings, limits, now(), space), *also)
    if decisions := {one.effect.id: one for one in found}:
        _give_up(opened, tuple(decisions.values()))
        space = _space(opened, more)
    room = min(limits.store - space.taken, space.free - limits.free)
    lasts = min(_LOOK_LASTS, settings.accepted_seconds * 10_000)  # a hundredth of the term
    opened.looked = LimitsLook(now(), now() + lasts, space.free, room) if room > _MUCH_ROOM else None
    moment = now() / 1e6
    if (space.over(limits)[0] and drop_unused(opened.parts, moment)) or any_unused(opened.store.path, moment):
        _tidied(opened)


def stay_within_limits(opened: OpenStore) -> None:
    """Enforce the limits of the store, for a caller whose run does not end."""
    limits = opened.store.limits()
    if opened.store.bytes_kept() > limits.store or opened.store.free_bytes() < limits.free:
        _make_room(opened)


def _space(opened: OpenStore, more: int = 0) -> "Space":
    from takeback.retention.space import Space, pinned_bytes

    taken = opened.store.bytes_kept()
    return Space(taken + more - pinned_bytes(opened.parts), opened.store.free_bytes() - more)


def _give_up(opened: OpenStore, decisions: "Sequence[Verdict]") -> int:
    """How many bytes were freed. Noted first: a kill in between must not lose the line for the user."""
    from takeback.retention.forget import forget
    from takeback.storage.notes import Bound, GivenUp, note

    going = [
        GivenUp(one.effect.id, Bound(one.bound), one.effect.at, one.limit) for one in decisions if one.bound
    ]
    note(opened.store.path, going)
    forget(opened.parts, decisions, _held(opened))
    opened.given_up += going
    return _swept(opened)


def without_room(opened: OpenStore, more: int) -> None:
    try:
        opened.store.refuse_without_room(more)
    except StoreFull:
        if opened.store.retired or opened.store.suspect():
            raise
        _make_room(opened, more=more)
        opened.store.refuse_without_room(more)


def copy_to(opened: OpenStore, path: str, *, blobs: str = "", backup: bool = False) -> "Copied":
    """Copy this store to a directory or a `postgresql://` address where no store is yet. No process can write to this
    store during the copy. Calling it again resumes an interrupted copy. Afterwards this store accepts nothing
    new, because unfinished work must not continue in two places; after a `backup` the copy accepts nothing new."""
    from takeback.storage.copy import copy_store

    target = open_store(path, now, blobs, copying=opened.store.name)
    try:
        return copy_store(opened.store, target, backup, opened.progress)
    finally:
        target.close()


def _held(opened: OpenStore) -> str:
    return os.path.join(opened.store.path, "held")
