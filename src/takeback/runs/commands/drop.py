"""What a command changed and takeback does not make: saved as a drop, if that can be done. Also for a command whose
takeback was killed."""

import os
from collections.abc import Callable
from typing import NamedTuple

from takeback.engine.drop import Final, drop, refusal
from takeback.engine.parts import Parts
from takeback.engine.settled import Settled
from takeback.engine.write import Terms
from takeback.errors import Drifted, Failed, LeaseHeld, Refused, ResourceUnreachable, StoreBusy, StoreFull
from takeback.model.change import Change, Phase
from takeback.model.effect import DropReason, Effect
from takeback.model.ids import short
from takeback.model.run import Lease, Owner
from takeback.runs.commands.merge import read_changes, read_merge
from takeback.runs.commands.outcome import Changed, why_final
from takeback.runs.commands.scratch import remove_all
from takeback.sandbox.probe_note import recall
from takeback.sandbox.protocol import Stack
from takeback.storage.owners import KilledCommand, is_busy, killed_commands
from takeback.storage.protocols import Query

# Why what a command did could not be saved, though nothing is wrong with the store.
UNSAVED = (Refused, Failed, ResourceUnreachable, StoreBusy, OSError)
_PATIENCE = 5.0  # seconds, for the processes of a killed takeback to end


class SavedDrop(NamedTuple):
    effect: Effect | None = None
    changes: tuple[Changed, ...] = ()
    final: Final | None = None  # why it could not be saved


def drop_layer(
    parts: Parts, layer: str, since: int, what: Change, dropped: Callable[[Change], Effect | None]
) -> SavedDrop:
    """`dropped` records the change that was read. An empty answer: nothing was changed."""
    stack = Stack()
    changes = read_changes(layer, stack)
    if not changes:
        return SavedDrop()
    size = sum(one.size for one in changes if one.kind != "deleted")
    if final := refusal(parts.drops, size):
        return SavedDrop(None, changes, final)
    found = None
    for _ in range(2):  # someone may change the same between the look and the record
        try:
            found = read_merge(
                parts.blobs, layer, stack, since, what, found, parts.max_capture_bytes, parts.progress
            )
            return SavedDrop(dropped(found.change), found.changes)
        except Drifted:
            parts.blobs.disown()
        except StoreFull:
            parts.blobs.disown()
            return SavedDrop(None, changes, Final.ROOM)
        except UNSAVED:
            parts.blobs.disown()
            break
    return SavedDrop(None, changes, Final.UNREADABLE)


def places_of(store: str) -> tuple[str, ...]:
    """Where layers of commands of this store may lie."""
    trial = recall(store)
    return (store, trial.layers_at) if trial else (store,)


def rescue(
    parts: Parts, store: str, me: Owner, now: int, lasts: int, tell: Callable[[str], None]
) -> list[Settled]:
    """What commands had changed whose takeback was killed becomes a drop of their run."""
    settled: list[Settled] = []
    for one in killed_commands(store, places_of(store)):
        if is_busy(one.path, _PATIENCE):
            tell(f"The command of run {short(one.run)} has not ended yet; `takeback recover` looks again.")
            continue
        if not one.is_whole or not any(parts.journal.runs((one.run,))):
            continue  # nothing was changed, or it is not known what; it is cleared
        try:
            lease = parts.leases.acquire(one.run, me, now, lasts)
        except LeaseHeld:
            continue
        try:
            settled += _rescued(parts, lease, one, tell)
        finally:
            parts.leases.release(lease)
    return settled


def _rescued(parts: Parts, lease: Lease, one: KilledCommand, tell: Callable[[str], None]) -> list[Settled]:
    if not os.path.isdir(one.layer):
        return []  # another process was quicker
    known = parts.journal.effects(Query(run=one.run))
    saved = SavedDrop()
    if all(effect.phase.workshop != one.id for effect in known):
        what = one.change._replace(phase=Phase(workshop=one.id))
        terms = Terms(agent=one.agent)
        saved = drop_layer(
            parts,
            one.layer,
            one.since,
            what,
            lambda change: drop(parts, lease, change, terms, DropReason.KILLED),
        )
    if saved.final is not Final.ROOM:  # when there is room again it can be saved
        remove_all(one.path)
    if saved.final:
        lost = "lost" if saved.final is not Final.ROOM else "not saved yet"
        tell(
            f"What the killed command of run {short(one.run)} ({one.change.summary}) had changed is {lost}: "
            f"{why_final(saved.final)}."
        )
    if saved.effect is None:
        return []
    name = short(saved.effect.id)
    detail = f"takeback was killed before it was merged; dropped, and `takeback apply {name}` makes it"
    return [Settled(saved.effect.id, one.run, one.change.summary, "dropped", detail)]
