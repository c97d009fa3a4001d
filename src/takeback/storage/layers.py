"""The layers of boxes on disk, and where each box stands."""

import json
import os
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from takeback.errors import Corrupt, Misuse, StoreBusy
from takeback.model.boot_clock import boot_id
from takeback.model.box import Link, Point, point_from_json, point_to_json
from takeback.model.descriptor import Descriptor, read_exactly
from takeback.storage import disk
from takeback.storage.layer_archive import (
    is_packed,
    packed_name,
    sync_filesystem,
    sync_if_small,
    unpack_in_place,
)

# A file whose last whole line is what holds: one write and one sync to replace it, where a renamed file
# needs three.
#
# The file has its full length from the start, and lines are written over the zeros after the last one. So the
# sync writes this one page: where a file grows, a filesystem with a journal may have to write first what
# others have written to it. A line that was cut off by a kill or a full disk is as if it had never been
# written.


_LENGTH = 1 << 15  # bytes; when it is full it starts again with its last line


def read_last(path: str) -> dict[str, Any]:
    """FileNotFoundError if there is none, ValueError if no line of it is whole."""
    with Descriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as handle:
        data = read_exactly(handle, os.fstat(handle).st_size, 0)
    end = data.rfind(b"\n")  # what comes after it was cut off
    while end >= 0:
        start = data.rfind(b"\n", 0, end)
        with suppress(ValueError):
            told = json.loads(data[start + 1 : end])
            if isinstance(told, dict):
                return told  # pyright: ignore[reportUnknownVariableType]
        end = start
    raise ValueError("no line of it is whole")


def write_last(path: str, told: dict[str, Any]) -> None:
    """Durable when this returns. One writer at a time."""
    line = json.dumps(told, separators=(",", ":")).encode() + b"\n"
    try:
        with disk.reachable(path, "written"):
            handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except disk.ResourceUnreachable as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        disk.write_file(path, _padded(line))
        return
    with Descriptor(handle):
        with disk.reachable(path, "read"):
            data = read_exactly(handle, os.fstat(handle).st_size, 0)
        used = len(data.rstrip(b"\0"))
        if used and data[used - 1 : used] != b"\n":
            line = b"\n" + line
        if used + len(line) <= len(data):
            with disk.reachable(path, "written"):
                os.lseek(handle, used, os.SEEK_SET)
            disk.write_fully(handle, line, path)
            with disk.reachable(path, "synced"):
                os.fdatasync(handle)
            return
    disk.write_file(path, _padded(line.lstrip(b"\n")))


def _padded(line: bytes) -> bytes:
    return line.ljust(_LENGTH, b"\0")


# The layers of boxes on disk, and where each box stands.
#
#     layers/BOX/box.json    what the box is over; written once
#     layers/BOX/HEAD        where it stands: the last line; moved by compare and swap
#     layers/BOX/chain       one line for each layer, added before the layer counts: on which one it lies
#     layers/BOX/LAYER/      what one command left, or a squash: a layer that stands for several
#     layers/BOX/LAYER.packed  the same in one file, while it is only kept for undo
#     layers/BOX/open, work  locks: someone has the box open; a command runs in it
#
# A layer counts when the journal or HEAD names it. A small layer is durable at that time. A larger one is recorded
# together with the boot of the machine, and a second line says when it is on the disk. If the machine stops between the
# two, the layer is lost, with all layers above it. A layer without a name or a line is scratch. A squash stands for the
# layer of its `top` and those below it down to `parent`; the layers themselves stay as long as an undo could come back
# to one of them, so every point of a long chain is reached over a short stack.


class _Chain:
    """The part of a chain that was read so far."""

    def __init__(self) -> None:
        self.read = 0
        self.plain: dict[str, Link] = {}
        self.squashed: dict[str, Link] = {}  # by top: the one that reaches deepest
        self.settled: set[str] = set()

    def add(self, link: Link) -> None:
        if not link.top:
            self.plain[link.layer] = link
            return
        known = self.squashed.get(link.top)
        if known is None or reach(link, self) >= reach(known, self):
            self.squashed[link.top] = link


def reach(link: Link, chain: _Chain) -> int:
    """How many layers it stands for, as far as its own box knows; deeper parents are always better."""
    parent = chain.plain.get(link.parent)
    return link.depth - (parent.depth if parent else 0)


class Layers:
    def __init__(self, path: str) -> None:
        self.path = path
        self._chains: dict[str, _Chain] = {}
        self._places: dict[str, str] = {}
        self._lock = threading.RLock()

    # Boxes.

    def make(self, box: str, about: Mapping[str, Any], point: Point) -> None:
        """`about` may name another place for the layers with `at`."""
        disk.make_private_directory(self._in(box))
        write_last(self._in(box, "HEAD"), point_to_json(point))
        disk.write_file(self._in(box, "box.json"), _line(dict(about)))  # last: with it the box exists

    def boxes(self) -> list[str]:
        try:
            names = sorted(os.listdir(self.path))
        except FileNotFoundError:
            return []
        return [name for name in names if os.path.exists(self._in(name, "box.json"))]

    def half_made(self) -> list[str]:
        """Where their makers were killed, or are still at it."""
        whole = set(self.boxes())
        names = os.listdir(self.path) if os.path.isdir(self.path) else []
        return [self._in(name) for name in names if name not in whole]

    def about(self, box: str) -> dict[str, Any]:
        return self._read(box, "box.json")

    def base_of(self, box: str) -> str:
        """The base of the box: "/" or a directory."""
        return self.about(box)["base"]

    def head(self, box: str) -> Point:
        return point_from_json(self._read(box, "HEAD"))

    def exists(self, box: str) -> bool:
        return bool(box) and "/" not in box and os.path.exists(self._in(box, "box.json"))

    def move(self, box: str, expected: Point, to: Point) -> bool:
        """Durable when this returns; False, and nothing changed, if the box stands elsewhere."""
        with self._lock_file(box, "moving") as handle:
            disk.lock(handle)
            now = self.head(box)
            if now == to:
                return True
            if now != expected:
                return False
            write_last(self._in(box, "HEAD"), point_to_json(to))
            return True

    def complete(self, point: Point) -> bool:
        """Whether every layer of it is still there and whole: they may lie where a restart clears them away, or the
        machine may have stopped before one was on the disk."""
        return all(self.is_whole(link) and self._is_there(link.layer) for link in self.chain(point.layer))

    def _is_there(self, layer: str) -> bool:
        place = self.place_of(layer)
        return os.path.isdir(place) or os.path.isfile(packed_name(place))

    def is_whole(self, link: Link) -> bool:
        chain = self._chain(link.layer.partition("/")[0], link.layer)
        return not link.boot or link.layer in chain.settled or link.boot == boot_id()

    def place_of(self, layer: str) -> str:
        """Where it is on disk."""
        box, _, name = layer.partition("/")
        with self._lock:
            if box not in self._places:
                self._places[box] = self.about(box).get("at") or self._in(box)
            return os.path.join(self._places[box], name)

    def sync(self, layer: str) -> None:
        """The layer and its records are durable when this returns."""
        sync_filesystem(self.place_of(layer))

    def sync_if_small(self, link: Link) -> bool:
        """A small layer is recorded and durable when this returns; otherwise nothing was done."""
        path = self.place_of(link.layer)
        if not sync_if_small(path, lambda: self._told(link.layer.partition("/")[0], _told(link))):
            return False
        with disk.reachable(path, "synced"):
            disk.sync_directory(os.path.dirname(path))
        return True

    def unsettled(self, box: str) -> list[Link]:
        """Layers recorded before they were durable."""
        chain = self._chain(box)
        return [one for one in chain.plain.values() if one.boot and one.layer not in chain.settled]

    def settle(self, box: str) -> None:
        """All of them are durable when this returns. Of those that the machine did not survive nothing is said."""
        links = [link for link in self.unsettled(box) if self.is_whole(link)]
        if not links:
            return
        self.sync(links[-1].layer)
        self._append(box, b"".join(_line({"settled": link.layer}) for link in links), sync=True)

    # Chains.

    def add(self, link: Link) -> None:
        """Record a layer. Durable with the next sync of the layer."""
        box = link.layer.partition("/")[0]
        elsewhere = os.path.dirname(self.place_of(link.layer)) != self._in(box)
        self._append(box, _told(link), elsewhere)  # its layers may be synced on another disk

    def _append(self, box: str, told: bytes, sync: bool) -> None:
        handle, path = self._told(box, told)
        with Descriptor(handle):
            if sync:
                disk.sync_file(handle, path)

    def _told(self, box: str, told: bytes) -> tuple[int, str]:
        """The chain, still open, after something was added to it."""
        path = self._in(box, "chain")
        with disk.reachable(path, "written"):
            handle = os.open(
                path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, disk.FILE_MODE
            )
        try:
            disk.write_fully(handle, told, path)  # in one piece, also if another process adds a line
        except BaseException:
            os.close(handle)
            raise
        return handle, path

    def chain(self, layer: str, until: str = "") -> Iterator[Link]:
        """What to stack for a layer, newest first, as few as there are squashes for."""
        while layer and layer != until:
            link = self.link(layer)
            yield link
            layer = link.parent

    def stack(self, layer: str) -> tuple[str, ...]:
        """Directories, newest first."""
        return tuple(self.unpacked(link.layer) for link in self.chain(layer))

    def unpacked(self, layer: str) -> str:
        """Where it is on disk, as a directory."""
        place = self.place_of(layer)
        if not os.path.isdir(place):
            unpack_in_place(place)
        return place

    def depth(self, layer: str) -> int:
        return self.link(layer).depth if layer else 0

    def link(self, layer: str) -> Link:
        """The layer itself, or the squash that stands for it and most of those below."""
        chain = self._chain(layer.partition("/")[0], layer)
        found = chain.squashed.get(layer) or chain.plain.get(layer)
        if found is None:
            raise Corrupt(
                f"The box has lost its layer {layer}.", hint="Its content is gone; undo to an earlier point."
            )
        return found

    def own_link(self, layer: str) -> Link:
        """Of the layer itself, never of a squash."""
        found = self._chain(layer.partition("/")[0], layer).plain.get(layer)
        if found is None:
            raise Corrupt(f"Layer {layer} is not there any more.", hint="It was swept.")
        return found

    def links(self, box: str) -> tuple[Link, ...]:
        with self._lock:
            chain = self._chain(box)
            return (*chain.plain.values(), *chain.squashed.values())

    def keep_only(self, box: str, links: Iterable[Link]) -> None:
        """The chain without the others. Their directories are then scratch."""
        with self._lock:
            settled = self._chain(box).settled
            kept = (link._replace(boot="") if link.layer in settled else link for link in links)
            disk.write_file(self._in(box, "chain"), b"".join(map(_told, kept)))
            self._chains.pop(box, None)

    def scratch(self, box: str) -> Iterator[str]:
        """Directories without a record, or present in two forms; only while the caller holds the box alone."""
        known = {link.layer.partition("/")[2] for link in self.links(box)}
        place = os.path.dirname(self.place_of(f"{box}/x"))
        try:
            with os.scandir(place) as entries:
                found = {one.name: one.is_dir(follow_symlinks=False) for one in entries}
        except FileNotFoundError:
            return
        directories = {name for name, is_directory in found.items() if is_directory}
        packed = {packed_name(name) for name in known - directories}
        for name in found:
            if name in directories - known or (is_packed(name) and name not in packed):
                yield os.path.join(place, name)

    def _chain(self, box: str, wanted: str = "") -> _Chain:
        """Read on from where reading stopped; other processes add to it too."""
        with self._lock:
            chain = self._chains.setdefault(box, _Chain())
            if wanted in chain.plain or wanted in chain.squashed:
                return chain
            try:
                with open(self._in(box, "chain"), "rb") as file:
                    file.seek(chain.read)
                    data = file.read()
            except FileNotFoundError:
                return chain
            whole = data[: data.rfind(b"\n") + 1]  # a line that was cut off does not count
            for line in whole.splitlines():
                with suppress(ValueError, TypeError):  # of a kill or a full disk; its layer never counted
                    told = json.loads(line)
                    if "settled" in told:
                        chain.settled.add(told["settled"])
                    else:
                        chain.add(Link(**told))
            chain.read += len(whole)
            return chain

    def reread(self, box: str) -> None:
        """Look for what others have added or taken away."""
        with self._lock:
            self._chains.pop(box, None)

    # Locks.

    @contextmanager
    def opened(self, box: str) -> Generator[None, None, None]:
        """A box that is open is not removed."""
        import fcntl

        with self._lock_file(box, "open") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH)
            yield

    @contextmanager
    def alone(self, box: str, name: str = "open") -> Generator[bool, None, None]:
        """Whether no other process has it open; if so, none can open it during the block."""
        with self._lock_file(box, name) as handle:
            yield disk.try_lock(handle)

    @contextmanager
    def working(self, box: str) -> Generator[None, None, None]:
        """One command at a time."""
        with self.alone(box, "work") as mine:
            if not mine:
                raise StoreBusy(
                    "Another command is running in this box.",
                    hint="Wait until it has ended, or work in a branch of the box.",
                )
            yield

    @contextmanager
    def _lock_file(self, box: str, name: str) -> Generator[int, None, None]:
        """Let go at the end; not by closing alone: a process that is just being started has a copy of the descriptor
        for a moment. A child that was forked in between has one too, and does not release the lock of its parent."""
        path, mine = self._in(box, name), os.getpid()
        with disk.reachable(path, "locked"):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, disk.FILE_MODE)
        try:
            yield handle
        finally:
            if os.getpid() == mine:
                disk.unlock(handle)
            os.close(handle)

    def _read(self, box: str, name: str) -> dict[str, Any]:
        path = self._in(box, name)
        try:
            return read_last(path)
        except FileNotFoundError:
            raise Misuse(
                f"There is no box {box!r}.", hint="`takeback log` names the boxes there were."
            ) from None
        except ValueError:
            raise Corrupt(f"{path} is damaged.", hint="Restore it from a backup.") from None
        except OSError as error:
            raise disk.unreachable(path, "read", error) from error

    def _in(self, box: str, *names: str) -> str:
        return os.path.join(self.path, box, *names)


def _told(link: Link) -> bytes:
    told = link._asdict()
    return _line(
        {name: value for name, value in told.items() if value or name in ("layer", "parent", "depth")}
    )


def _line(told: Mapping[str, Any]) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"
