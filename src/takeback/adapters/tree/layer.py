"""From what a command left in its layer to what it would change in the world: each path with before and after, all
contents in the store. Concurrent changes by others are conflicts."""

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from takeback.adapters.file.assess import may_own
from takeback.adapters.file.content import overlay_origin
from takeback.adapters.file.directory import ReadScope
from takeback.adapters.file.kernel import born
from takeback.adapters.file.os_errors import CannotCapture, in_our_words
from takeback.adapters.file.paths import Place
from takeback.adapters.file.sqlite_files import HAD_OPEN, in_use
from takeback.adapters.file.states import ABSENT, FileState, lasting, same
from takeback.adapters.tree.git.layout import with_meaning
from takeback.adapters.tree.hard_links import Inode, LayerRow, Linked, is_unchanged
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import is_dir, see
from takeback.errors import NoRemedy
from takeback.model.plan import Outcome, TargetOutcome
from takeback.model.progress import SILENT, Progress
from takeback.model.remedy import Target
from takeback.model.resource import display, file_resource, path_of
from takeback.storage.protocols import Blobs

if TYPE_CHECKING:
    from takeback.sandbox.differences import LeftPath

# Holes that a layer does not show: a file that is copied up to be changed gets its smaller holes filled
# with zeros.


_BLOCK = 4096  # what a hole is made of, on any filesystem with files of this size
_PIECE = 256 * _BLOCK
_MANY = 64
_ZEROS = bytes(_BLOCK)

Ranges = list[list[int]]


def still_sparse(before: FileState, after: FileState, source: bytes, blobs: Blobs) -> FileState:
    """Where the file had a hole, and there is nothing but zeros still, it has one."""
    if before["type"] != "file" or after["type"] != "file" or "holes" not in before or "meta" in after:
        return after
    try:
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return after  # the bytes are exact without them
    try:
        if overlay_origin(fd) is None:
            return after  # a file of its own, in which zeros were written
        holes = _ranges(after.get("holes", []), blobs)
        for start, length in _ranges(before["holes"], blobs):
            stop = start + length
            stop += -stop % _BLOCK  # the end of the file was no end of a block
            holes += _filled(fd, start, min(stop, after["size"]))
    finally:
        os.close(fd)
    if not holes:
        return after
    joined = _joined(holes)
    return after | {"holes": joined if len(joined) <= _MANY else blobs.put(json.dumps(joined).encode())}


def _ranges(holes: "Ranges | str", blobs: Blobs) -> Ranges:
    return json.loads(b"".join(blobs.read(holes))) if isinstance(holes, str) else [*holes]


def _filled(fd: int, start: int, stop: int) -> Ranges:
    """Of a stretch that was a hole: what is data now, and zeros."""
    found: Ranges = []
    at = start
    while at < stop:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
            end = min(os.lseek(fd, at, os.SEEK_HOLE), stop)
        except OSError:
            break  # nothing but a hole up to the end, or a filesystem that does not know holes
        at += -at % _BLOCK
        while at < end:
            piece = os.pread(fd, min(_PIECE, end - at), at)
            if not piece:
                return found
            for offset in range(0, len(piece), _BLOCK):
                block = piece[offset : offset + _BLOCK]
                if block == _ZEROS[: len(block)]:
                    found.append([at + offset, len(block)])
            at += len(piece)
    return found


def _joined(holes: Ranges) -> Ranges:
    found: Ranges = []
    for start, length in sorted(holes):
        if found and found[-1][0] + found[-1][1] == start:
            found[-1][1] += length
        else:
            found.append([start, length])
    return found


Known = Callable[[str, FileState], bool]

_WHILE = "while the command ran"
_TAKEN_AWAY = f"was removed or moved away by someone else {_WHILE}"


class LayerTargets(NamedTuple):
    targets: tuple[Target, ...]
    conflicts: tuple[TargetOutcome, ...] = ()  # changed by others at the same time
    lost: tuple[str, ...] = ()  # what could not be brought back, or not be made, in whole sentences
    exact: bool = True
    residue: str = ""
    sources: Mapping[str, bytes] = {}  # by resource: where the content of a file is


def read_layer(
    lefts: "Iterable[LeftPath]",
    root: str,
    since_ns: int,
    blobs: Blobs,
    known: Known | None = None,
    stacked: bool = False,
    limit: int = 0,
    progress: Progress = SILENT,
) -> LayerTargets:
    """`since_ns`: a moment that the command began after (`Order.after`). `known` says whether a state is our own doing.
    `stacked`: several commands left it, each a layer. `limit`: how many bytes may be captured; 0 is any number."""
    reading = _Reading(root, since_ns, blobs, known, stacked)
    reading.limit = limit
    with Places() as reading.world, Places() as reading.layer:
        for left in lefts:
            reading.take(left)
            progress.moved(items=1)
        return reading.result()


class _Reading:
    def __init__(self, root: str, since: int, blobs: Blobs, known: Known | None, stacked: bool) -> None:
        self._root = os.fsencode(root).rstrip(b"/")
        self._since = since
        self._blobs = blobs
        self._known = known
        self._stacked = stacked
        self.world = Places()
        self.layer = Places()
        self._read: list[LayerRow] = []
        self._coming: set[str] = set()  # directories that the command made
        self._parents: dict[str, str] = {}
        self._conflicts: list[TargetOutcome] = []
        self._missing: dict[str, Inode] = {}  # what the layer has of names that are not there
        self._lost: list[str] = []
        self._residue: list[str] = []
        self.limit = 0
        self._captured = 0  # bytes

    def take(self, left: "LeftPath") -> None:
        path = self._root + left.path if left.path != b"/" else self._root
        resource = file_resource(path or b"/")
        if not path:
            self._residue.append("what the command changed of the root directory itself was left out")
            return
        try:
            before = self._before(resource)
            after = self._after(resource, left.source) if left.source is not None else ABSENT
            if left.source is not None and "holes" in before:
                after = still_sparse(before, after, left.source, self._blobs)
        except CannotCapture as trouble:
            self._lost.append(f"{display(trouble.resource)} cannot be kept: {trouble.reason}")
            return
        except OSError as error:
            self._lost.append(str(in_our_words(error, resource)))
            return
        if is_dir(after) and not is_dir(before):
            self._coming.add(resource)
            self.world.note_link(resource)
        self._note_lost(left.lost)
        if same(before, after) and before["type"] == "absent":
            return  # made and removed again, or removed by someone else as well
        if is_dir(before) and same(before, after) and before["mtime"] > self._since:
            return  # names came and went in it since, which is no change of its own
        if why := self._conflict(resource, left, before, after):
            # It stays part of the work: who decides about the conflict decides about all of it.
            self._conflicts.append(TargetOutcome(resource, Outcome.CONFLICT, why))
            if before["type"] == "absent" and "ino" in after:
                self._missing[resource] = (after["dev"], after["ino"])
        if _is_only_closed(before, after):
            before, after = ({"type": "file", "meta": True, "mode": one["mode"]} for one in (before, after))
        if why := _impossible(before, after):
            self._lost.append(f"{display(resource)} {why}")
            return
        self._read.append(LayerRow(resource, before, after, left.source))

    def _note_lost(self, path: bytes) -> None:
        if path:
            gone = file_resource(self._root + path)
            self._conflicts.append(TargetOutcome(gone, Outcome.CONFLICT, _TAKEN_AWAY))

    def _count(self, place: Place) -> None:
        status = place.stat()
        if self.limit and status is not None and stat.S_ISREG(status.st_mode):
            self._captured += status.st_size
            if self._captured > self.limit:
                raise NoRemedy(
                    f"The command changed or removed more than {self.limit:,} bytes, which is all that may be captured "
                    "for one change.",
                    hint="Nothing was changed. `takeback config set max_capture_bytes` changes it.",
                )

    def _before(self, resource: str) -> FileState:
        place = self.world.if_there(resource)
        if place is None:
            return ABSENT
        self._count(place)
        before = see(place, ABSENT, ReadScope(self._blobs))
        if is_dir(before) and not os.access(
            place.name, os.R_OK | os.X_OK, dir_fd=place.fd, effective_ids=True
        ):
            # Inside, its owner could open it; here its content cannot be seen.
            raise CannotCapture(resource, "its entries are not readable")
        return before

    def _after(self, resource: str, source: bytes) -> FileState:
        place = self._source(source)
        place.resource = resource
        status = place.stat()
        if status is None:
            raise CannotCapture(resource, "what the command left of it vanished")
        try:
            return see(place, ABSENT, ReadScope(self._blobs))
        except CannotCapture:
            if os.geteuid() == 0 or not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                raise
        # Closed even to its owner; in the layer, which is ours, it may be opened to be read.
        os.chmod(source, stat.S_IMODE(status.st_mode) | stat.S_IRUSR)
        try:
            return see(place, ABSENT, ReadScope(self._blobs)) | {"mode": stat.S_IMODE(status.st_mode)}
        finally:
            os.chmod(source, stat.S_IMODE(status.st_mode))

    def _source(self, source: bytes) -> Place:
        try:
            return self.layer.at(file_resource(source))
        except OSError:
            # The way to the store may lead through links; inside a layer none is followed.
            parent, name = os.path.split(source)
            return self.layer.at(file_resource(os.path.join(os.path.realpath(parent), name)))

    def _conflict(self, resource: str, left: "LeftPath", before: FileState, after: FileState) -> str:
        if same(before, after):
            return ""
        if before["type"] == "absent":
            if left.below and not (self._known and self._known(resource, before)):
                return _TAKEN_AWAY
            return self._parent_conflict(resource)
        if not left.below:
            return f"was made by someone else {_WHILE}"
        place = self.world.at(resource)
        status = place.stat()
        if status is None:
            return _TAKEN_AWAY
        is_newer = self._is_newer(place, status, before, after)
        if not is_newer or (self._known is not None and self._known(resource, before)):
            return ""
        return f"was changed by someone else {_WHILE}"

    def _is_newer(self, place: Place, status: os.stat_result, before: FileState, after: FileState) -> bool:
        if status.st_ctime_ns <= self._since:
            return False
        if not is_dir(before) or is_dir(after):
            return True  # of a directory that stays the properties differ, and it cannot be known who changed them
        # Of one that goes: its ctime and mtime move with every name in it, and names are conflicts by themselves.
        return status.st_mtime_ns <= self._since or born(place.fd, place.name) > self._since

    def _parent_conflict(self, resource: str) -> str:
        """Something new: the directory it goes to must be the one that was there."""
        parent = resource.rpartition("/")[0]
        if parent in self._coming or parent == "file://":
            return ""
        if parent not in self._parents:
            self._parents[parent] = self._directory_conflict(parent)
        return self._parents[parent]

    def _directory_conflict(self, resource: str) -> str:
        place = self.world.if_there(resource)
        status = place.stat() if place else None
        if place is None or status is None or not stat.S_ISDIR(status.st_mode):
            return f"has no directory any more: someone else took it away {_WHILE}"
        if born(place.fd, place.name) > self._since and not (
            self._known and self._known(resource, see(place))
        ):
            return f"would go to a directory that someone else made {_WHILE}"
        return ""

    def result(self) -> LayerTargets:
        self._bring_holes_along()
        linked = Linked(self._blobs, self.world, self._stacked)
        joined = [target._replace(after=lasting(target.after)) for target in linked.joined(self._read)]
        targets = with_meaning(joined, self._blobs)
        self._residue += linked.residue
        changed = [target.resource for target in targets if target.before["type"] == "file"]
        for resource, why in in_use(changed, HAD_OPEN).items():
            self._conflicts.append(TargetOutcome(resource, Outcome.CONFLICT, why))
        return LayerTargets(
            targets=tuple(target for target in targets if not is_unchanged(target)),
            conflicts=tuple(self._true_conflicts()),
            lost=tuple(self._lost),
            exact=not self._residue,
            residue="; ".join(dict.fromkeys(self._residue)),
            sources={one.resource: one.source for one in self._read if one.source and "digest" in one.after},
        )

    def _bring_holes_along(self) -> None:
        """To where a file with holes was moved; its filesystem's handle for it tells which it was."""
        from takeback.sandbox.differences import HANDLE, file_handle

        with_holes = [one for one in self._read if "holes" in one.before]
        by_handle = {file_handle(path_of(one.resource)): one.before for one in with_holes}
        for index, one in enumerate(self._read if by_handle else ()):
            if one.source is not None and one.after["type"] == "file" and "holes" not in one.before:
                origin = overlay_origin(one.source) or b""
                moved = by_handle.get(origin[HANDLE:] or b"-", ABSENT)
                after = still_sparse(moved, one.after, one.source, self._blobs)
                self._read[index] = one._replace(after=after)

    def _true_conflicts(self) -> Iterator[TargetOutcome]:
        """Another name of something that is there was made by the command, though the layer knows of a file below."""
        there = {
            (one.after["dev"], one.after["ino"])
            for one in self._read
            if one.before["type"] != "absent" and "ino" in one.after
        }
        for one in self._conflicts:
            is_new_name = self._missing.get(one.resource) in there
            if not is_new_name or self._parent_conflict(one.resource):
                yield one


def _is_only_closed(before: FileState, after: FileState) -> bool:
    """A file that an ordinary user could not read again afterwards, and of which only the mode is another."""
    if os.geteuid() == 0 or before["type"] != "file" or after["type"] != "file" or _is_open(after):
        return False
    return same(before | {"mode": 0}, after | {"mode": 0})


def _is_open(state: FileState) -> bool:
    return "meta" in state or bool(state["mode"] & stat.S_IRUSR)


def _impossible(before: FileState, after: FileState) -> str:
    """Why an ordinary user could not make it, or not bring it back; empty if that is possible."""
    if os.geteuid() == 0:
        return ""
    if "meta" in after:
        return ""
    if after["type"] != "absent" and not may_own(after["uid"], after["gid"]):
        return f"would belong to user {after['uid']}, group {after['gid']}, which takes root"
    stays = before["type"] == after["type"] and before.get("digest") == after.get("digest")
    if before["type"] != "absent" and not stays and not may_own(before["uid"], before["gid"]):
        return f"belongs to user {before['uid']}, group {before['gid']}, so it could not be brought back"
    if after["type"] == "file" and not _is_open(after):
        return f"could not be read again with mode {after['mode']:04o} to see that it was written"
    return ""
