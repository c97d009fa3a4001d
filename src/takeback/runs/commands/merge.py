"""What a layer would do to the world, as a change: path by path, with every content in the store."""

import errno
import os
import stat
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.errors import NoRemedy, TakebackError
from takeback.model.change import Change
from takeback.model.plan import TargetOutcome
from takeback.model.progress import SILENT, Progress
from takeback.model.resource import display, file_resource
from takeback.runs.commands.outcome import Changed, changed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from takeback.adapters.file.states import FileState
    from takeback.sandbox.differences import LeftPath
    from takeback.sandbox.protocol import Stack
    from takeback.storage.protocols import Blobs

ADAPTER = "command"
_LISTED = 5


class Merge(NamedTuple):
    change: Change
    changes: tuple[Changed, ...]
    conflicts: tuple[TargetOutcome, ...]  # what others changed meanwhile
    sources: "Mapping[str, bytes]" = {}  # by resource: files of the layer itself
    before: "Mapping[str, FileState]" = {}

    def seen(self, resource: str, state: "FileState") -> bool:
        from takeback.adapters.file.states import same

        return resource in self.before and same(state, self.before[resource])


def read_merge(
    blobs: "Blobs",
    layer: str,
    stack: "Stack",
    since: int,
    what: Change,
    earlier: Merge | None = None,
    limit: int = 0,
    progress: Progress = SILENT,
) -> Merge:
    """`what` tells of the command; what it changed is added. `since` is when it began, in nanoseconds. What was there
    at an `earlier` look is no conflict, though it may have been moved aside and back since."""
    from takeback.adapters.tree.capture import is_timed
    from takeback.adapters.tree.layer import read_layer
    from takeback.adapters.tree.targets import put_targets
    from takeback.sandbox.differences import differences

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
        blobs.disown()  # else the next record, whoever's it is, would fail for what is lost of it
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
    inside = os.fsencode(layer) + b"/"
    sources = {one: path for one, path in found.sources.items() if path.startswith(inside)}
    args: dict[str, Any] = {**what.args, "targets": put_targets(blobs, found.targets)}
    if found.conflicts:
        args["conflicts"] = [[one.resource, one.detail] for one in found.conflicts]
    if not found.exact:
        args |= {"exact": False, "residue": found.residue}
    # A directory whose time alone moved is put right with the rest, and is nothing to tell of.
    told = changed(target for target in found.targets if not is_timed(target))
    return Merge(what._replace(args=args), told, found.conflicts, sources, before)


def cannot_be_kept(lost: list[str]) -> NoRemedy:
    more = f" (and {len(lost) - _LISTED:,} more)" if len(lost) > _LISTED else ""
    return NoRemedy(
        f"The changes of the command could not be undone later, so none was made: {'; '.join(lost[:_LISTED])}{more}.",
        hint="Nothing was changed. Make what cannot be read readable first (chmod u+rwX); what belongs to others takes "
        "root, or `takeback run --in-place`, whose undo leaves the owner behind.",
    )


def read_changes(layer: str, stack: "Stack") -> tuple[Changed, ...]:
    """Only told, for what will be dropped: nothing is read and nothing kept. What was in a directory that went is not
    listed."""
    from takeback.sandbox.differences import differences

    found: list[Changed] = []
    root = os.fsencode(stack.root.rstrip("/"))
    for left in _readable(differences(layer, stack)):
        resource = file_resource(root + left.path)
        there = os.path.lexists(root + left.path)
        if left.source is None:
            if there:
                found.append(Changed("deleted", resource, _size(root + left.path)))
        else:
            found.append(Changed("modified" if there else "added", resource, _size(left.source)))
    return tuple(found)


def _readable(lefts: "Iterator[LeftPath]") -> "Iterator[LeftPath]":
    """As far as one may look; it is only told, and all of it is dropped."""
    try:
        yield from lefts
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG):
            raise


def _size(path: bytes) -> int:
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
