"""One git directory as the undo of an effect finds it: the planned steps, its refs, which objects it has."""

import hashlib
import mmap
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from takeback.adapters.file.build import Tools
from takeback.adapters.file.directory import ReadScope
from takeback.adapters.file.states import ABSENT, FileState, lasting
from takeback.adapters.tree.git.layout import GitPart, Spot, content_at, content_of
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import see
from takeback.adapters.tree.undo import PathStep
from takeback.model.content import name_of
from takeback.model.plan import Obstacle, Outcome, TargetOutcome
from takeback.model.remedy import Target, doubt_of
from takeback.model.resource import path_of

_DEEPEST = 5  # as git: so many alternates of alternates
_VERSION_2 = b"\xfftOc\0\0\0\x02"
_LISTED = 1 << 20  # a longer list of alternates is not read to its end
_MOST = 64 << 20  # a loose object up to this size is read to see that it is whole


class GitObjects:
    """The object directories of one repository, at one moment."""

    def __init__(self, directory: bytes, coming: Iterable[str] = (), indexes: Iterable[bytes] = ()) -> None:
        """`coming`: object ids that an undo is about to bring back; `indexes`: contents of such indexes of packs."""
        self._directories = list(_with_alternates(directory))
        self._coming = frozenset(coming)
        self._indexes: list[bytes | mmap.mmap] = list(indexes)
        self._read = False
        self._blind = False  # a partial clone, or an index of a pack that is not understood: unknown

    def has(self, oid: str) -> bool:
        loose = os.path.join(oid[:2].encode(), oid[2:].encode())
        if oid in self._coming or any(os.path.isfile(os.path.join(one, loose)) for one in self._directories):
            return True
        self._read_packs()
        raw = bytes.fromhex(oid)
        return self._blind or any(_in_pack(index, raw) for index in self._indexes)

    def missing(self, oids: Iterable[str]) -> str:
        """The first that is not there; empty if all are."""
        return next((oid for oid in dict.fromkeys(oids) if not self.has(oid)), "")

    def _read_packs(self) -> None:
        if self._read:
            return
        self._read = True
        for directory in self._directories:
            packs, names = os.path.join(directory, b"pack"), list[bytes]()
            with suppress(OSError):
                names = os.listdir(packs)
            for name in names:
                if name.endswith(b".promisor"):
                    self._blind = True
                if name.endswith(b".idx"):
                    index = _mapped(os.path.join(packs, name))
                    self._blind = self._blind or index[:8] != _VERSION_2
                    self._indexes.append(index)


def is_whole(oid: str, content: bytes) -> bool:
    """Whether these are the bytes of a loose object of this name, however they were compressed."""
    try:
        raw = zlib.decompressobj().decompress(content, _MOST)
    except zlib.error:
        return False
    name = hashlib.sha1(raw, usedforsecurity=False) if len(oid) == 40 else hashlib.sha256(raw)
    return name.hexdigest() == oid


def _with_alternates(directory: bytes, depth: int = 0) -> Iterable[bytes]:
    yield directory
    if depth >= _DEEPEST:
        return
    for line in _content(os.path.join(directory, b"info", b"alternates")).splitlines():
        if line and not line.startswith((b"#", b'"')):
            yield from _with_alternates(os.path.join(directory, line), depth + 1)


def _content(path: bytes) -> bytes:
    try:
        handle = _opened(path)
    except OSError:
        return b""
    try:
        return os.read(handle, _LISTED)
    finally:
        os.close(handle)


def _mapped(path: bytes) -> bytes | mmap.mmap:
    """An index of a pack may be large, and little of it is read."""
    try:
        handle = _opened(path)
    except OSError:
        return b""
    try:
        return mmap.mmap(handle, 0, prot=mmap.PROT_READ)
    except (OSError, ValueError):
        return b""
    finally:
        os.close(handle)


def _opened(path: bytes) -> int:
    """Only a regular file: opening a FIFO would block."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise FileNotFoundError(path)


def _in_pack(index: bytes | mmap.mmap, oid: bytes) -> bool:
    """By bisection in an index of version 2."""
    if index[:8] != _VERSION_2:
        return False
    size, table = len(oid), 8 + 256 * 4
    low = int.from_bytes(index[8 + (oid[0] - 1) * 4 : 8 + oid[0] * 4]) if oid[0] else 0
    high = int.from_bytes(index[8 + oid[0] * 4 : 12 + oid[0] * 4])
    if table + high * size > len(index):
        return False
    while low < high:
        middle = (low + high) // 2
        found = index[table + middle * size : table + (middle + 1) * size]
        if found == oid:
            return True
        low, high = (middle + 1, high) if found < oid else (low, middle)
    return False


_LOST = "would name {oid}, which this repository no longer has"


class GitDesk:
    """One git directory. Steps are taken from and put back to the plan of the whole undo."""

    def __init__(
        self,
        home: str,
        spots: Mapping[str, Spot],
        targets: Mapping[str, Target],
        steps: dict[str, PathStep],
        places: Places,
        tools: Tools,
        scope: ReadScope,
        force: bool,
    ) -> None:
        self.home = home
        self.spots = {resource: spot for resource, spot in spots.items() if spot.home == home}
        self.targets = targets
        self.steps = steps
        self.places = places
        self.force = force
        self.blobs = tools.blobs
        self._scope = scope
        self._objects: GitObjects | None = None

    def of(self, *parts: GitPart) -> list[tuple[str, Spot]]:
        return [(resource, spot) for resource, spot in self.spots.items() if spot.part in parts]

    def now(self, resource: str) -> FileState:
        """The present state, captured if the undo is about to be made."""
        place = self.places.within_reach(resource)
        if place is None or place.stat() is None:
            return ABSENT
        target = self.targets.get(resource)
        return see(place, target.after if target else ABSENT, self._scope)

    def content_now(self, resource: str) -> bytes | None:
        return content_at(self.places, resource)

    def content(self, state: FileState) -> bytes | None:
        return content_of(state, self.blobs)

    def written(self, content: bytes, like: FileState, resource: str) -> FileState:
        """A file with this content, and the owner and mode of another."""
        if self._scope.keep:
            self._scope.keep.put(content, like=resource)
        kept = {key: like[key] for key in ("mode", "uid", "gid", "xattrs", "owner_lost") if key in like}
        digest = name_of(content).hex()
        return {"type": "file", "digest": digest, "size": len(content), "mtime": time.time_ns(), **kept}

    def outcome(self, resource: str) -> Outcome | None:
        step = self.steps.get(resource)
        return step.outcome.outcome if step else None

    def is_doubted(self, resource: str) -> bool:
        """Whether it stays, because someone else may have had a part in it."""
        return self.outcome(resource) is Outcome.EXCLUDED and bool(doubt_of(self.targets[resource]))

    def is_plain(self, resource: str) -> bool:
        """Whether its bytes are unchanged since the effect, and it goes back to its earlier state."""
        step, target = self.steps.get(resource), self.targets[resource]
        if step is None or step.target is None or step.outcome.outcome is not Outcome.UNDONE:
            return False
        now, after = step.target.before, target.after
        return now["type"] == after["type"] and now.get("digest") == after.get("digest")

    def goes(self, resource: str) -> bool:
        """Whether the undo removes it."""
        step = self.steps.get(resource)
        return step is not None and step.target is not None and step.target.after["type"] == "absent"

    def stay(self, resource: str, why: str) -> None:
        told = TargetOutcome(resource, Outcome.ALREADY, why, obstacle=Obstacle.OTHER)
        self.steps[resource] = PathStep(told)

    def refuse(self, resource: str, why: str) -> None:
        self.steps[resource] = PathStep(TargetOutcome(resource, Outcome.CONFLICT, why))

    def change(self, resource: str, now: FileState, goal: FileState, detail: str) -> None:
        target = Target(resource, now, lasting(goal))
        self.steps[resource] = PathStep(TargetOutcome(resource, Outcome.UNDONE, detail), target)

    def missing(self, oids: Iterable[str]) -> str:
        """What to say if the repository lacks one of these objects; else empty."""
        lost = self.objects().missing(oids)
        return _LOST.format(oid=lost[:10]) if lost else ""

    def demand(self, resource: str, oids: Iterable[str]) -> bool:
        """Whether the repository has these objects; if not, the path is refused."""
        if lost := self.missing(oids):
            self.refuse(resource, lost)
        return not lost

    def objects(self) -> GitObjects:
        if self._objects is None:
            there = [
                (spot, target)
                for resource, spot in self.of(GitPart.OBJECT)
                if (step := self.steps.get(resource))
                and (target := step.target)
                and target.after["type"] == "file"
            ]
            indexes = (self.content(one.after) for _, one in there if one.resource.endswith(".idx"))
            path = path_of(self.home)
            shared = content_at(self.places, f"{self.home}/commondir")
            if shared is not None:
                path = os.path.normpath(os.path.join(path, shared.rstrip(b"\n")))
            self._objects = GitObjects(
                os.path.join(path, b"objects"),
                (spot.name for spot, _ in there if spot.name),
                (content for content in indexes if content),
            )
        return self._objects

    def each(self, part: GitPart, judge: Callable[[str, Spot], None]) -> None:
        for resource, spot in self.of(part):
            if resource in self.steps:
                judge(resource, spot)
