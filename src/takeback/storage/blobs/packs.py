"""Files that hold many encoded blobs one after the other, each with a header that says what it is.

A pack is written by one process, which holds a lock on it while some of its entries are not committed yet. A process
that gets the lock may judge the pack by the rows that name it. Nothing inside a pack ever changes; only a tail that no
row names is cut off.
"""

import os
import stat
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from takeback.errors import ResourceUnreachable, StoreBusy
from takeback.model.descriptor import Descriptor, read_exactly
from takeback.storage import disk
from takeback.storage.tables import PackEntry, PackPlace

CAP = 32 << 20  # a pack beyond it gets no more entries, so that sweep can rewrite one pack at a time
OPENING = b"takeback pack 1\n"
HEADER = struct.Struct("<4sB3xQQ32s32sI")
MARK = b"TBe1"
NOTHING = bytes(32)
TOGETHER = 4 << 20  # bytes that the kernel is asked to write out at once
READ_HANDLES = 4


class EntryDamaged(Exception):
    """What stands at this place is not the entry that should."""


def to_bytes(entry: PackEntry) -> bytes:
    head = _head(entry)
    checksum = zlib.crc32(entry.data, zlib.crc32(head))
    return b"".join((head, checksum.to_bytes(4, "little"), entry.data))


def _head(entry: PackEntry) -> bytes:
    full = HEADER.pack(MARK, entry.form, entry.size, len(entry.data), entry.digest, entry.base or NOTHING, 0)
    return full[:-4]


def pack_path(directory: str, pack: int) -> str:
    return os.path.join(directory, f"{pack:012x}.pack")


def packs_in(directory: str) -> list[int]:
    if not os.path.isdir(directory):
        return []
    names = (name.partition(".") for name in os.listdir(directory))
    return sorted(int(stem, 16) for stem, _, ending in names if ending == "pack" and len(stem) == 12)


def read_header(handle: int, position: int) -> tuple[PackEntry, int, int]:
    """The entry without its data, the length of its data, the checksum; `EntryDamaged` if there is none."""
    return _parsed(read_exactly(handle, HEADER.size, position))


def _parsed(found: bytes) -> tuple[PackEntry, int, int]:
    """From a header, and the data behind it if there is any."""
    if len(found) < HEADER.size or not found.startswith(MARK):
        raise EntryDamaged("no entry begins there")
    _, form, size, length, digest, base, checksum = HEADER.unpack_from(found)
    data = found[HEADER.size : HEADER.size + length]
    return PackEntry(digest, b"" if base == NOTHING else base, form, size, data), length, checksum


def read_entry(handle: int, position: int, longest: int) -> PackEntry:
    """`longest` bounds the memory a damaged header may ask for."""
    _, length, _ = read_header(handle, position)
    found = read_exactly(handle, HEADER.size + min(length, longest), position)
    return sound_entry(found, longest, check=True)


def sound_entry(found: bytes, longest: int, check: bool) -> PackEntry:
    """From header and data together."""
    entry, length, checksum = _parsed(found)
    if length > longest:
        raise EntryDamaged("its length is wrong")
    if len(entry.data) != length:
        raise EntryDamaged("it is cut off")
    if check and zlib.crc32(entry.data, zlib.crc32(_head(entry))) != checksum:
        raise EntryDamaged("its checksum is wrong")
    return entry


def header_alone(found: bytes) -> PackEntry:
    return _parsed(found)[0]


def scan(handle: int) -> Iterator[tuple[int, PackEntry]]:
    """Every sound entry with its position, without asking any index; stops where the rest is torn."""
    position, end = len(OPENING), os.fstat(handle).st_size
    while position < end:
        try:
            entry = read_entry(handle, position, end - position)
        except EntryDamaged:
            return
        yield position, entry
        position += HEADER.size + len(entry.data)


class _Open(NamedTuple):
    pack: int
    handle: int
    end: int
    synced: int  # how far it is durable
    begun: int = 0  # how far the kernel was asked to write it out
    named: int = 0  # how far rows may name what is in it


class Packs:
    """The packs of one store, as one process sees them. Not thread-safe: the store's lock guards it."""

    def __init__(self, directory: str, on_io_error: Callable[[], None]) -> None:
        self.directory = directory
        self.on_io_error = on_io_error
        self._open: dict[int, _Open] = {}  # written by us, perhaps not committed
        self._current = 0
        self._new_names = False
        self._broken: set[int] = set()
        self._locked = False
        self._reading: dict[int, int] = {}

    def append(self, entries: Sequence[PackEntry]) -> list[PackPlace]:
        """Written and read back, but not durable before `sync`."""
        places: list[PackPlace] = []
        batch: list[bytes] = []
        pack = self._writable_pack()
        position = self._open[pack].end
        for entry in entries:
            written = to_bytes(entry)
            batch.append(written)
            places.append(PackPlace(pack, position, len(entry.data)))
            position += len(written)
            if position >= CAP:
                self._write(pack, b"".join(batch))
                batch = []
                pack = self._writable_pack()
                position = self._open[pack].end
        if batch:
            self._write(pack, b"".join(batch))
        return places

    def _write(self, pack: int, data: bytes) -> None:
        file = self._open[pack]
        path = pack_path(self.directory, pack)
        try:
            disk.write_fully(file.handle, data, path)
            with disk.reachable(path, "read back"):
                found = read_exactly(file.handle, len(data), file.end)
        except ResourceUnreachable as error:
            self._give_up(pack, suspect=disk.is_disk_error(error))
            raise
        if found != data:
            self._give_up(pack, suspect=True)
            raise ResourceUnreachable(
                f"{path} does not give back what was written to it.",
                hint="The disk cannot be trusted: check it, then run `takeback verify`.",
            )
        end = file.end + len(data)
        # The disk is at work while more is prepared, so that a sync does not wait for all of it.
        begun = file.begun
        if end - begun >= TOGETHER:
            disk.write_out(file.handle, begun, end - begun)
            begun = end
        self._open[pack] = file._replace(end=end, begun=begun)

    def _writable_pack(self) -> int:
        file = self._open.get(self._current)
        if file and file.end < CAP and self._holds(file):
            return file.pack
        # Bounds what the commit has to wait for, and the memory the kernel holds for it. Not the one that is full just
        # now: the disk is still busy with that.
        for older in [one for one in self._open.values() if one.pack != self._current]:
            self._sync(older)
        self._current = self._create()
        return self._current

    def _holds(self, file: _Open) -> bool:
        """Lock it again if a commit has released it; a sweep may have had it in between."""
        if self._locked:
            return True
        if not disk.try_lock(file.handle):
            return False
        self._locked = True
        status = os.fstat(file.handle)
        return bool(status.st_nlink) and status.st_size == file.end

    def _create(self) -> int:
        while True:
            pack = int.from_bytes(os.urandom(6), "big")
            path = pack_path(self.directory, pack)
            handle = self._create_file(path)
            # Between the two lines above and below a sweep may have taken it for an orphan.
            if disk.try_lock(handle) and os.fstat(handle).st_nlink:
                break
            os.close(handle)
        self._open[pack] = _Open(pack, handle, 0, 0)
        self._new_names = self._locked = True
        self._write(pack, OPENING)
        return pack

    def _create_file(self, path: str) -> int:
        try:
            return disk.create_private(path)
        except ResourceUnreachable as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
        # The first pack of a store, unless the store itself is gone: then this must not make it again.
        with disk.reachable(self.directory, "made"):
            os.stat(os.path.dirname(self.directory))
        disk.make_private_directory(self.directory)
        return disk.create_private(path)

    def sync(self) -> None:
        """Appended entries are durable when this returns, or the store is suspect: `ResourceUnreachable`. A commit that
        names it comes after."""
        for file in list(self._open.values()):
            self._sync(file)
            self._open[file.pack] = self._open[file.pack]._replace(named=file.end)
        if self._new_names:
            try:
                disk.sync_directory(self.directory)
            except ResourceUnreachable:
                for pack in list(self._open):
                    self._give_up(pack, suspect=True)
                raise
            self._new_names = False

    def _sync(self, file: _Open) -> None:
        if file.synced == file.end:
            return
        try:
            disk.sync_file(file.handle, pack_path(self.directory, file.pack))
        except ResourceUnreachable:
            self._give_up(file.pack, suspect=True)
            raise
        self._open[file.pack] = file._replace(synced=file.end)

    def _give_up(self, pack: int, suspect: bool) -> None:
        """Never write to it again, and let nothing in it count that is not committed."""
        self._broken.add(pack)
        file = self._open.pop(pack)
        if suspect:
            self.on_io_error()
        else:  # a full disk needs the room
            with suppress(OSError):
                if file.named:
                    os.ftruncate(file.handle, file.named)
                else:
                    os.unlink(pack_path(self.directory, pack))
        os.close(file.handle)

    def is_broken(self, pack: int) -> bool:
        return pack in self._broken

    def release(self, for_nothing: bool = False) -> None:
        """All that was appended is committed or given up: others may judge these packs by their rows. `for_nothing`:
        all of it is given up, and the disk gets its room back."""
        if not self._locked:
            return
        if for_nothing:
            for pack in list(self._open):
                self._give_up(pack, suspect=False)
        self._locked = False
        for file in list(self._open.values()):
            if file.pack == self._current:
                disk.unlock(file.handle)
            else:
                os.close(self._open.pop(file.pack).handle)

    def read(self, place: PackPlace, check: bool = False) -> PackEntry:
        """`EntryDamaged`, or plain OSError; the hash of the content is for the caller to check."""
        # Header and data in one call, because their length is known.
        found = read_exactly(self._reader(place.pack), HEADER.size + place.length, place.position)
        return sound_entry(found, place.length, check)

    def peek(self, place: PackPlace) -> PackEntry:
        """The header only, and that the file is long enough for the data."""
        handle = self._reader(place.pack)
        entry, length, _ = read_header(handle, place.position)
        if length != place.length or os.fstat(handle).st_size < place.position + HEADER.size + length:
            raise EntryDamaged("it is cut off")
        return entry

    def _reader(self, pack: int) -> int:
        if file := self._open.get(pack):
            return file.handle
        handle = self._reading.pop(pack, None)
        if handle is None:
            handle = disk.open_private(pack_path(self.directory, pack))
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                os.close(handle)
                raise EntryDamaged("its pack is not a file")
        self._reading[pack] = handle  # the one used last stands last
        if len(self._reading) > READ_HANDLES:
            os.close(self._reading.pop(next(iter(self._reading))))
        return handle

    def forget_handles(self) -> None:
        """A removed pack frees its space only when no process has it open."""
        for handle in self._reading.values():
            os.close(handle)
        self._reading.clear()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """For a sweep."""
        directory = os.path.dirname(self.directory)
        with disk.reachable(directory, "opened"):
            handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with Descriptor(handle):
            if not disk.try_lock(handle):
                raise StoreBusy("Another sweep is at work on this store.", hint="Try again when it is done.")
            yield

    def close(self) -> None:
        self.forget_handles()
        for file in self._open.values():
            os.close(file.handle)
        self._open.clear()
