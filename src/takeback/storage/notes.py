"""Notes beside a store: its identity, and which ways back were forgotten and not reported yet."""

import json
import os
import stat
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from threading import get_ident
from typing import Any, NamedTuple

from takeback.errors import ResourceUnreachable
from takeback.model.descriptor import Descriptor
from takeback.model.record import HASH, sha256_of
from takeback.storage import disk
from takeback.storage.owners import machine
from takeback.storage.tables import Reading

# A note beside the store of ways back, and of drops, that were given up by policy, until a person has seen it.
#
# It is written before they are forgotten, so that a kill in between loses no line. So it may name effects that were not
# forgotten after all: ask the journal before showing it.


NAME = "GIVEN_UP"
_MOST = 1_000  # effects that the note names; the journal has them all


class Bound(StrEnum):
    """The limit that was reached, so that a way back was forgotten; the value is in the record."""

    TIME = "time"
    STORE = "store"  # it is over its cap
    DISK = "disk"  # too little is free
    VERSIONS = "versions"  # of one file
    DROPS = "drops"  # too many of a project
    DROPPED = "dropped"  # too many bytes of them

    @property
    def setting(self) -> str:
        """The one that moves the limit."""
        return _SETTINGS[self]


_SETTINGS = {
    Bound.TIME: "accepted_seconds",
    Bound.STORE: "store_bytes",
    Bound.DISK: "free_bytes",
    Bound.VERSIONS: "versions_per_file",
    Bound.DROPS: "dropped_most",
    Bound.DROPPED: "dropped_bytes",
}


class GivenUp(NamedTuple):
    effect: str
    bound: Bound
    at: int  # when the effect was made
    limit: int  # the number that was reached: seconds, bytes or versions


def untold(path: str) -> tuple[GivenUp, ...]:
    try:
        with open(os.path.join(path, NAME), encoding="utf-8") as file:
            return tuple(GivenUp(one[0], Bound(one[1]), int(one[2]), int(one[3])) for one in json.load(file))
    except (OSError, ValueError, TypeError, IndexError):
        return ()  # only a note: the records tell as well


def note(path: str, more: Iterable[GivenUp]) -> None:
    known = {one.effect: one for one in (*untold(path), *more)}
    _write(path, list(known.values())[-_MOST:])


def _write(path: str, given_up: list[GivenUp]) -> None:
    disk.write_file(os.path.join(path, NAME), json.dumps(given_up).encode() + b"\n")


def was_told(path: str, effects: Iterable[str]) -> None:
    """A person has read of these."""
    told = set(effects)
    if left := [one for one in untold(path) if one.effect not in told]:
        _write(path, left)
    elif os.path.lexists(os.path.join(path, NAME)):
        disk.remove(os.path.join(path, NAME))


# Whether a store is this user's own, and what this user remembers of it outside of it.
#
# A store that was removed, cut or exchanged cannot tell that itself: a note outside remembers how far its
# journal had come. The note is only a witness: without it everything works, and nothing is noticed. That a
# store was made here stands in the store, as a digest of this machine, this user and its place, which a store
# from elsewhere cannot have.


DIRECTORY = "takeback-known"
OWNER = "OWNER"
_LONGEST = 4096
_LONGEST_OF_HOOKS = 1 << 20


class Note(NamedTuple):
    seq: int = 0  # of the newest record that was seen
    hash: str = ""
    at: int = 0  # when that one was written, microseconds since 1970

    def in_words(self) -> str:
        records = f"{self.seq:,} records"
        when = datetime.fromtimestamp(self.at / 1e6).astimezone()
        return f"{records}, the newest of {when:%Y-%m-%d %H:%M:%S}" if self.at else records


def _head(tables: Reading) -> Note:
    """Of the newest record there is."""
    rows = tables.read("SELECT seq, hash, at FROM records ORDER BY seq DESC LIMIT 1")
    return Note(rows[0][0], rows[0][1][:HASH].hex(), rows[0][2]) if rows else Note()


def _private(path: str, longest: int = _LONGEST) -> bytes | None:
    """The beginning of a file that is ours alone."""
    try:
        with Descriptor(disk.open_private(path)) as handle:
            return os.read(handle, longest) if stat.S_ISREG(os.fstat(handle).st_mode) else None
    except (OSError, disk.Refused):
        return None


class Witness:
    def __init__(self, state: str, store: str) -> None:
        """`state`: the directory in which this user's programs keep what they know."""
        self._store = os.path.realpath(store)
        self._directory = os.path.join(state, DIRECTORY)
        name = sha256_of(os.fsencode(self._store)).hex()[:32]
        self._path = os.path.join(self._directory, name)
        self._read: tuple[tuple[int, ...], Note | None] = (), None  # the note, and the file that it stands in

    @property
    def hooks(self) -> str:
        """The file of another note: what is known of the hooks that write into this store."""
        return f"{self._path}.hooks"

    @property
    def verified(self) -> str:
        """The file of another note: when the store was last verified."""
        return f"{self._path}.verified"

    def note(self) -> Note | None:
        """Read again if another file has its name: it is always replaced whole."""
        try:
            now = os.lstat(self._path)
        except OSError:
            return None
        mark = _mark(now)
        if mark != self._read[0]:
            self._read = mark, self._note()
        return self._read[1]

    def _note(self) -> Note | None:
        try:
            told: Any = json.loads(_private(self._path) or b"")
            return Note(int(told["seq"]), str(told["hash"]), int(told["at"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None  # a note that cannot be read is no note

    def made(self) -> None:
        """A new, empty store takes the place of whatever was known."""
        disk.write_file(os.path.join(self._store, OWNER), self._mark())
        self._write(Note())

    def is_mine(self) -> bool:
        return _private(os.path.join(self._store, OWNER)) == self._mark()

    def _mark(self) -> bytes:
        told = f"{machine()} {os.geteuid()} {self._store}".encode("utf-8", "surrogateescape")
        return sha256_of(told).hex().encode() + b"\n"

    def lost(self, tables: Reading) -> Note | None:
        """The note, if the store does not have the record that it names."""
        return self._lost(tables, self.note())

    def _lost(self, tables: Reading, note: Note | None) -> Note | None:
        if note is None or not note.seq:
            return None
        rows = tables.read("SELECT hash FROM records WHERE seq = ?", (note.seq,))
        return None if rows and rows[0][0][:HASH].hex() == note.hash else note

    def remember(self, tables: Reading) -> bool:
        """How far the journal has come, unless it has lost what was known: that stays known until `trust`. False if
        the note could not be written."""
        head, note = _head(tables), self.note()
        if head.seq and not (note and note.seq == head.seq) and not self._lost(tables, note):
            return self._write(head)
        return True

    def trust(self, tables: Reading) -> None:
        """A person said that this store, as it is, is their own."""
        disk.write_file(os.path.join(self._store, OWNER), self._mark())
        self._write(_head(tables))

    def _write(self, note: Note) -> bool:
        content = json.dumps({"store": self._store, **note._asdict()}).encode()
        written = _written_outside(self._path, content)
        self._read = (_mark(written), note) if written else ((), None)
        return written is not None


def _mark(status: os.stat_result) -> tuple[int, ...]:
    """Another one when the file is replaced, or opened to others; its name may change in between."""
    return (
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode, status.st_uid
    )  # fmt: skip


def write_outside(path: str, content: bytes) -> bool:
    """A note in a directory of this user's programs; whether it could be written. Not synced: a note that is lost is
    missed by no one."""
    return _written_outside(path, content) is not None


def _written_outside(path: str, content: bytes) -> os.stat_result | None:
    staged = f"{path}.{os.getpid()}.{get_ident()}.new"
    try:
        with Descriptor(_created(staged)) as handle:
            disk.write_fully(handle, content, staged)
            status = os.fstat(handle)
        os.rename(staged, path)
    except (OSError, ResourceUnreachable, disk.Refused):
        return None
    return status


def _created(staged: str) -> int:
    try:
        return disk.create_private(staged)
    except ResourceUnreachable as error:
        if isinstance(error.__cause__, FileNotFoundError) and has_home(os.path.dirname(staged)):
            os.makedirs(os.path.dirname(staged), disk.DIRECTORY_MODE, exist_ok=True)
        elif isinstance(error.__cause__, FileExistsError):
            os.unlink(staged)  # of a thread that was killed
        else:
            raise
    return disk.create_private(staged)


def read_outside(path: str) -> bytes | None:
    """A note that is this user's own."""
    return _private(path, _LONGEST_OF_HOOKS)


def has_home(place: str) -> bool:
    """No directory is made at the root of the filesystem for a user who has no place of their own."""
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    return place != "/"
