"""The entries of one directory, as the index stores them: packed, because a tree has many and most never change."""

import json
import os
import stat
import struct
from collections.abc import Container, Iterator
from itertools import chain
from typing import Any, NamedTuple

from takeback.adapters.file.states import TYPES, FileState
from takeback.model.resource import quote

NO_DIGEST = bytes(32)
_FIELDS = "4I2Q3q32s"
_FORM = struct.Struct(f"={_FIELDS}")
_TOGETHER = 256  # entries that are packed by one call
_STAMP = struct.Struct("=2Q2q")
# A thing changed this shortly before it was looked at may change again without its times moving (clock ticks).
YOUNG = 50_000_000
_REMEMBERED = 1_500  # entries, some half a megabyte
_COARSE = 2_100_000_000  # on filesystems that know only whole seconds, or two


class ListingEntry(NamedTuple):
    mode: int
    uid: int
    gid: int
    nlink: int
    dev: int
    ino: int
    size: int
    mtime: int
    ctime: int  # 0: it was too young to trust, so it is read again next time
    digest: bytes  # of a file that was captured


class Stamp(NamedTuple):
    """Tells without listing that no name came or went, and that the directory itself is as it was."""

    dev: int
    ino: int
    mtime: int
    ctime: int


class Listing(NamedTuple):
    stamp: Stamp
    shell: FileState  # the directory itself
    names: tuple[bytes, ...]
    entries: tuple[ListingEntry, ...]  # one for each name
    folders: tuple[bytes, ...]  # directories that have a listing of their own
    extras: dict[str, dict[str, Any]]  # by quoted name: xattrs, holes, target, rdev, excluded

    @property
    def by_name(self) -> dict[bytes, ListingEntry]:
        return dict(zip(self.names, self.entries, strict=True))


class Row(NamedTuple):
    """A listing as it lies in the database."""

    stamp: bytes
    shell: str
    names: bytes
    entries: bytes
    folders: bytes
    extras: str


def packed(listing: Listing) -> Row:
    return Row(
        _STAMP.pack(*listing.stamp),
        json.dumps(listing.shell, separators=(",", ":")),
        b"\0".join(listing.names),
        _packed(listing.entries),
        b"\0".join(listing.folders),
        json.dumps(listing.extras, separators=(",", ":")) if listing.extras else "",
    )


def _packed(entries: tuple[ListingEntry, ...]) -> bytes:
    if len(entries) <= _TOGETHER:
        return struct.pack("=" + _FIELDS * len(entries), *chain.from_iterable(entries))
    return b"".join([_FORM.pack(*entry) for entry in entries])


def unpacked(row: Row) -> Listing:
    return Listing(
        stamp_of(row),
        json.loads(row.shell),
        names_of(row),
        tuple(map(ListingEntry._make, _FORM.iter_unpack(row.entries))),
        folders_of(row),
        json.loads(row.extras) if row.extras else {},
    )


class Lately:
    """Listings unpacked a moment ago: a scan, its record and the comparison need the same few."""

    def __init__(self) -> None:
        self._known: dict[Row, Listing] = {}  # the one used last stands last
        self._entries = 0

    def unpacked(self, row: Row) -> Listing:
        found = self._known.pop(row, None)
        if found is None:
            found = unpacked(row)
            self._entries += len(found.names) + 1
        self._known[row] = found
        self._forget_oldest()
        return found

    def remember(self, row: Row, listing: Listing) -> None:
        if row not in self._known:
            self._known[row] = listing
            self._entries += len(listing.names) + 1
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        while self._entries > _REMEMBERED and len(self._known) > 1:
            self._entries -= len(self._known.pop(next(iter(self._known))).names) + 1


def stamp_of(row: Row) -> Stamp:
    return Stamp(*_STAMP.unpack(row.stamp))


def names_of(row: Row) -> tuple[bytes, ...]:
    return tuple(row.names.split(b"\0")) if row.names else ()


def folders_of(row: Row) -> tuple[bytes, ...]:
    return tuple(row.folders.split(b"\0")) if row.folders else ()


def entries_of(row: Row) -> Iterator[tuple[Any, ...]]:
    """Plain tuples in the order of `Entry`: a scan compares fifty thousand of them."""
    return _FORM.iter_unpack(row.entries)


def digests_of(row: Row) -> Iterator[bytes]:
    for entry in _FORM.iter_unpack(row.entries):
        if entry[-1] != NO_DIGEST:
            yield entry[-1]


def trusted(ctime: int, looked: int) -> int:
    """The ctime if a later change would move it, else 0."""
    age = looked - ctime
    if age <= YOUNG or (age <= _COARSE and not ctime % 1_000_000_000):
        return 0
    return ctime


def distrusting(row: Row, names: Container[bytes]) -> Row:
    """With these names to be read again."""
    listing = unpacked(row)
    entries = zip(listing.names, listing.entries, strict=True)
    doubted = tuple(entry._replace(ctime=0) if name in names else entry for name, entry in entries)
    return packed(listing._replace(entries=doubted))


def stamped(status: os.stat_result, looked: int) -> Stamp:
    return Stamp(status.st_dev, status.st_ino, status.st_mtime_ns, trusted(status.st_ctime_ns, looked))


def entry_of(status: os.stat_result, looked: int) -> ListingEntry:
    return ListingEntry(
        status.st_mode,
        status.st_uid,
        status.st_gid,
        status.st_nlink,
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        trusted(status.st_ctime_ns, looked),
        NO_DIGEST,
    )


def is_directory(entry: ListingEntry) -> bool:
    return stat.S_ISDIR(entry.mode)


def state_of(entry: ListingEntry, extra: dict[str, Any]) -> FileState:
    """As looking at it would give it."""
    kind = TYPES[stat.S_IFMT(entry.mode)]
    state: FileState = {
        "type": kind,
        "mode": stat.S_IMODE(entry.mode),
        "uid": entry.uid,
        "gid": entry.gid,
        "mtime": entry.mtime,
        "dev": entry.dev,
        "ino": entry.ino,
    }
    if kind == "file" or "excluded" in extra:
        state["size"] = entry.size
    if kind == "file" and "excluded" not in extra:
        state |= {"digest": entry.digest.hex(), "nlink": entry.nlink}
        if entry.ctime:
            state["ctime"] = entry.ctime
    return state | extra


def states_of(path: str, listing: Listing | None, names: Container[bytes]) -> Iterator[tuple[str, FileState]]:
    """The directory and those of these names that are directly in it, by quoted path from the root."""
    if listing is None:
        return
    yield path, listing.shell
    inside = path + "/" if path else ""
    for name, entry in zip(listing.names, listing.entries, strict=True):
        if name in names:
            quoted = quote(name)
            yield inside + quoted, state_of(entry, listing.extras.get(quoted, {}))
