"""Turn a layer into a change of the world: path by path, with every content in the store."""

import errno
import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.engine.drop import Final, drop, refusal
from takeback.engine.parts import Parts
from takeback.engine.settled import Settled
from takeback.engine.write import Terms
from takeback.errors import (
    Drifted,
    Failed,
    LeaseHeld,
    NoRemedy,
    Refused,
    ResourceUnreachable,
    StoreBusy,
    StoreFull,
    TakebackError,
)
from takeback.model.change import Change, Phase
from takeback.model.effect import DropReason, Effect
from takeback.model.ids import short
from takeback.model.plan import TargetOutcome
from takeback.model.progress import SILENT, Progress
from takeback.model.remedy import Target
from takeback.model.resource import display, file_resource
from takeback.model.run import Lease, Owner
from takeback.runs.commands.outcome import Changed, changed, why_final
from takeback.runs.commands.scratch import remove_all
from takeback.sandbox.probe_note import recall
from takeback.sandbox.protocol import Stack
from takeback.storage.owners import KilledCommand, is_busy, killed_commands
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from takeback.adapters.file.states import FileState
    from takeback.adapters.tree.targets import Rename
    from takeback.sandbox.differences import LeftPath
    from takeback.storage.protocols import Blobs


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
    changes = read_changes(layer)
    if not changes:
        return SavedDrop()
    size = sum(one.size for one in changes if one.kind != "deleted")
    if final := refusal(parts.drops, size):
        return SavedDrop(None, changes, final)
    found = None
    for _ in range(2):  # someone may change the same between the look and the record
        try:
            found = read_merge(
                parts.blobs, layer, since, what, found, parts.max_capture_bytes, parts.progress
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


def rescue(
    parts: Parts, store: str, me: Owner, now: int, lasts: int, tell: Callable[[str], None]
) -> list[Settled]:
    """What commands had changed whose takeback was killed becomes a drop of their run."""
    settled: list[Settled] = []
    trial = recall(store)
    places = (store, trial.layers_at) if trial else (store,)
    for one in killed_commands(store, places):
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
            f"The changes of the killed command of run {short(one.run)} ({one.change.summary}) are {lost}: "
            f"{why_final(saved.final)}."
        )
    if saved.effect is None:
        return []
    name = short(saved.effect.id)
    detail = f"takeback was killed before it was merged; dropped, and `takeback apply {name}` makes it"
    return [Settled(saved.effect.id, one.run, one.change.summary, "dropped", detail)]


ADAPTER = "command"
_LISTED = 5


class Merge(NamedTuple):
    change: Change
    changes: tuple[Changed, ...]
    conflicts: tuple[TargetOutcome, ...]  # what others changed at the same time
    sources: "Mapping[str, bytes]" = {}  # by resource: files of the layer itself
    before: "Mapping[str, FileState]" = {}
    after: "Mapping[str, FileState]" = {}

    def seen(self, resource: str, state: "FileState") -> bool:
        from takeback.adapters.file.states import same

        return resource in self.before and same(state, self.before[resource])


def read_merge(
    blobs: "Blobs",
    layer: str,
    since: int,
    what: Change,
    earlier: Merge | None = None,
    limit: int = 0,
    progress: Progress = SILENT,
) -> Merge:
    """`what` describes the command; its changes are added. `since`: when it began, in nanoseconds. A state that an
    `earlier` look saw is no conflict, though the path may have been moved aside and back since."""
    from takeback.adapters.tree.capture import is_timed
    from takeback.adapters.tree.layer import read_layer
    from takeback.adapters.tree.targets import put_targets
    from takeback.sandbox.differences import differences

    stack = Stack()
    try:
        with progress.stage("Reading"):
            found = read_layer(
                differences(layer, stack),
                stack.root,
                since,
                blobs,
                earlier.seen if earlier else None,
                limit=limit,
                progress=progress,
            )
    except TakebackError:
        blobs.disown()  # else the next record of any process would fail because of the loss
        raise
    except PermissionError as error:
        raise cannot_be_kept([f"{display(file_resource(error.filename or b'/'))} is not readable"]) from error
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise NoRemedy(
            "The command made or removed something at a path of more than 4,096 bytes, so nothing of it was made.",
            hint="Nothing was changed. `takeback run --in-place` and `takeback rm` take paths of any length.",
        ) from error
    if found.lost:
        raise cannot_be_kept(list(found.lost))
    before = {target.resource: target.before for target in found.targets}
    after = {target.resource: target.after for target in found.targets}
    inside = os.fsencode(layer) + b"/"
    sources = {one: path for one, path in found.sources.items() if path.startswith(inside)}
    args: dict[str, Any] = {**what.args, "targets": put_targets(blobs, found.targets)}
    facts = what.facts._replace(conflicts=[[one.resource, one.detail] for one in found.conflicts] or ())
    if not found.exact:
        args |= {"exact": False, "residue": found.residue}
    # A directory with only another time is restored with the rest, and is not worth a line.
    told = changed(target for target in found.targets if not is_timed(target))
    return Merge(what._replace(args=args, facts=facts), told, found.conflicts, sources, before, after)


def cannot_be_kept(lost: list[str]) -> NoRemedy:
    more = f" (and {len(lost) - _LISTED:,} more)" if len(lost) > _LISTED else ""
    return NoRemedy(
        f"The changes of the command could not be undone later, so none was made: {'; '.join(lost[:_LISTED])}{more}.",
        hint="Nothing was changed. Make the files readable (chmod u+rwX). For files of other users run it as root, or "
        "use `takeback run --in-place` (its undo does not restore the owner).",
    )


def read_changes(layer: str) -> tuple[Changed, ...]:
    """The list for the report of a drop: nothing is read and nothing kept. Entries of removed directories are not
    listed."""
    from takeback.sandbox.differences import differences

    found: list[Changed] = []
    for left in _readable(differences(layer, Stack())):
        resource = file_resource(left.path)
        there = os.path.lexists(left.path)
        if left.source is None:
            if there:
                found.append(Changed("deleted", resource, size_of(left.path)))
        else:
            found.append(Changed("modified" if there else "added", resource, size_of(left.source)))
    return tuple(found)


_MOST_COMPARED = 64 << 20  # bytes that the report of a dry run is worth


def read_moves(layer: str) -> "Sequence[Rename]":
    """What a command renamed, for the report of a dry run. Only files that agree in everything else are read."""
    from takeback.adapters.tree.targets import renames
    from takeback.sandbox.differences import differences

    went: dict[bytes, FileState] = {}
    came: dict[bytes, FileState] = {}
    sources: dict[bytes, bytes] = {}
    for left in _readable(differences(layer, Stack())):
        if left.source is None:
            went[left.path] = _at_a_glance(left.path)
        else:
            came[left.path], sources[left.path] = _at_a_glance(left.source), left.source
    both = {repr(one) for one in went.values()} & {repr(one) for one in came.values()}
    alike = [(path, one) for side in (went, came) for path, one in side.items() if repr(one) in both]
    if not both or sum(one.get("size", 0) for _, one in alike) > _MOST_COMPARED:
        return ()
    for path, one in alike:
        one["digest"] = _digest(sources.get(path, path)) if one["type"] == "file" else ""
    gone = [Target(file_resource(path), one, {"type": "absent"}) for path, one in went.items()]
    return renames(
        [*gone, *(Target(file_resource(path), _at_a_glance(path), one) for path, one in came.items())]
    )


def _at_a_glance(path: bytes) -> "FileState":
    """Without its content."""
    try:
        status = os.lstat(path)
    except OSError:
        return {"type": "absent"}
    state = {"mode": stat.S_IMODE(status.st_mode), "uid": status.st_uid, "gid": status.st_gid}
    if stat.S_ISDIR(status.st_mode):
        return {"type": "dir", **state}
    state |= {"mtime": status.st_mtime_ns, "nlink": status.st_nlink}
    if stat.S_ISREG(status.st_mode):
        return {"type": "file", **state, "size": status.st_size}
    if stat.S_ISLNK(status.st_mode):
        return {"type": "symlink", **state, "target": os.fsdecode(os.readlink(path))}
    return {"type": "other", **state, "rdev": status.st_rdev}


def _digest(path: bytes) -> str:
    import hashlib

    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return repr(path)  # like no other


def _readable(lefts: "Iterator[LeftPath]") -> "Iterator[LeftPath]":
    """As far as one may look; it is only told, and all of it is dropped."""
    try:
        yield from lefts
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG):
            raise


def size_of(path: bytes) -> int:
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
