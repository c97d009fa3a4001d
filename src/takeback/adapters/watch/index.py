"""The state of a watched tree at the last look: a small database for each root.

Every look makes a generation. During a watch its generation stays readable, however often others look.
"""

import fcntl
import hashlib
import json
import os
import sqlite3
from _thread import RLock
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from takeback.adapters.watch.listings import Lately, Listing, Row, digests_of, packed, unpacked
from takeback.errors import ResourceUnreachable
from takeback.model.ids import new_id
from takeback.model.resource import quote

VERSION = "1"
_COLUMNS = "stamp, shell, names, entries, folders, extras"
_SUFFIX = ".db"
_FILES = ("", "-wal", "-shm")
Seen = Listing | Row | None  # a directory as it is now, None if it is gone
_SCARCE = 128 << 10  # bytes

# Kinds of holes.
UNREADABLE = "unreadable"
MOUNT = "mount"
STORE = "store"
REGENERABLE = "regenerable"
MOUNTED = "mounted"  # a file that another one is mounted on
CHANGING = "changing"


class Hole(NamedTuple):
    """Something that is there and was not captured."""

    path: str  # quoted, from the root
    reason: str
    kind: str


class WatchClaim(NamedTuple):
    """Someone needs what was seen in that generation."""

    token: str
    generation: int
    owner: dict[str, Any]


def index_name(root: str, whole: bool = False) -> str:
    """Of a root's index file, from its resource. `whole`: what could be made again is in it too."""
    name = f"{root} whole" if whole else root
    return hashlib.sha256(name.encode("ascii")).hexdigest()[:24]


class Index:
    """Open one at a time in a process, and hold `looking` around everything that writes."""

    def __init__(self, directory: str, name: str, root: str = "") -> None:
        """`root` is recorded in a new index, because its file name does not say whose it is."""
        self.name = name
        self._root = root
        self._path = os.path.join(directory, name + _SUFFIX)
        self._lock_path = os.path.join(directory, name + ".lock")
        self._directory = directory
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self._turn = RLock()
        self._generation = -1  # known while we look, when no one else writes
        self._any_links = False
        self._awaited: dict[str, None] = {}  # directories whose new content is recorded with the effect
        self._unkept = ""  # how that was written down, or what another process wrote and is true by now
        self._doubted = ""
        # Directories whose content another process had yet to record; it may have been killed before.
        self.in_doubt: tuple[str, ...] = ()
        self._claimed: set[str] = set()  # tokens of watches that began here and have not ended
        self._ended: dict[str, None] = {}  # of those that have; they go with the next transaction
        self._is_durable: bool | None = None  # how the connection syncs now
        self.lately = Lately()

    def exists(self) -> bool:
        """One that is open is checked again with each look."""
        return self._connection is not None or os.path.exists(self._path)

    @contextmanager
    def looking(self) -> Generator[None, None, None]:
        """One process at a time looks at a tree and writes down what it saw; a killed one lets go."""
        lock = self._locked(fcntl.LOCK_EX)
        try:
            os.utime(lock)  # when it was used last
            if self._is_another():
                self.close()  # no watch was active, so it was dropped
            self._generation = -1
            if self.exists():
                self._look_up()
            yield
        except sqlite3.Error as error:
            raise _unreachable(self._path, error) from error
        finally:
            self._generation = -1
            os.close(lock)

    def _look_up(self) -> None:
        """What nearly every look asks for."""
        sql = (
            "SELECT value, EXISTS (SELECT 1 FROM links), (SELECT value FROM meta WHERE key = 'unkept') FROM meta"
            " WHERE key = 'generation'"
        )
        generation, any_links, unkept = self._db.execute(sql).fetchone()
        self._generation, self._any_links = int(generation), bool(any_links)
        self.in_doubt = tuple(json.loads(unkept)[1:]) if unkept and unkept != self._unkept else ()
        self._doubted = unkept or ""

    def believe(self) -> None:
        """That content was found to be there."""
        self._unkept, self.in_doubt = self._doubted, ()

    def is_kept(self) -> None:
        """All content that was written down as not kept yet is durable now."""
        self._awaited.clear()

    def _locked(self, how: int) -> int:
        """`BlockingIOError` if someone else is looking, and `how` says not to wait."""
        while True:
            lock = self._lock_opened()
            try:
                fcntl.flock(lock, how)
                if os.fstat(lock).st_nlink:
                    return lock
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)  # dropped while we waited for it

    def _lock_opened(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(self._lock_path, flags, 0o600)
        except OSError:
            with _reachable(self._directory):
                make_directory(self._directory)
                return os.open(self._lock_path, flags, 0o600)

    def _is_another(self) -> bool:
        if self._connection is None:
            return False
        try:
            return os.stat(self._path).st_ino != self._inode
        except FileNotFoundError:
            return True

    def drop(self, unused: Callable[[str, float], bool]) -> int:
        """Unless someone looks or watches. `unused` is asked with the root, "" if that is not known, and the time of
        the last use. How many bytes were freed."""
        try:
            lock = self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        try:
            used = os.fstat(lock).st_mtime
            if not self.exists() or self.watches() or not unused(_meta(self._db, "root"), used):
                return 0
            self.close()
            return sum(_removed(self._path + end) for end in _FILES) + _removed(self._lock_path)
        finally:
            self.close()
            os.close(lock)

    @property
    def _db(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._opened()
        return self._connection

    def _opened(self) -> sqlite3.Connection:
        try:
            return self._connected()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise _unreachable(self._path, error) from error
        # Damaged. It only repeats what is in the world, so it is made again; a watch in progress finds its token gone.
        for end in _FILES:
            _removed(self._path + end)
        return self._connected()

    def _connected(self) -> sqlite3.Connection:
        with _reachable(self._path):
            # Made by us, because SQLite would give it the mode that the umask allows.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=60, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA cache_size=-4000")
            if not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
                _create(connection, self._root)
            elif _meta(connection, "version") != VERSION:
                raise sqlite3.DatabaseError("of another version")
        except sqlite3.Error:
            connection.close()
            raise
        self._inode = os.stat(self._path).st_ino
        return connection

    def close(self) -> None:
        with self._turn:
            if self._connection is None:
                return
            if self._ended and not self._is_another():
                with suppress(ResourceUnreachable):  # a claim of a process that has ended holds nothing back
                    self.release(())
            self._connection.close()
            self._connection, self._is_durable = None, None
            self._ended.clear()
            self._claimed.clear()

    @property
    def generation(self) -> int:
        return self._generation if self._generation >= 0 else int(_meta(self._db, "generation"))

    # Reading.

    def rows(self) -> dict[str, Row]:
        found = self._db.execute(f"SELECT path, {_COLUMNS} FROM dirs")
        return {path: Row(*rest) for path, *rest in found}

    def row(self, path: str) -> Row | None:
        found = self._db.execute(f"SELECT {_COLUMNS} FROM dirs WHERE path = ?", (path,)).fetchone()
        return Row(*found) if found else None

    def inside(self, path: str) -> list[str]:
        """The directory and every one below it that the index knows."""
        if not path:
            return [one for (one,) in self._db.execute("SELECT path FROM dirs")]
        below = (path, f"{path}/", f"{path}0")  # "0" is what follows "/"
        query = "SELECT path FROM dirs WHERE path = ? OR (path > ? AND path < ?)"
        return [one for (one,) in self._db.execute(query, below)]

    def changed_since(self, generation: int) -> dict[str, Listing | None]:
        """The directories that were seen to differ after that generation, as they were then."""
        query = (
            f"SELECT path, {_COLUMNS} FROM past AS one WHERE until = "
            "(SELECT min(until) FROM past WHERE path = one.path AND until >= ?1)"
        )
        found = self._db.execute(query, (generation,))
        return {path: self.lately.unpacked(Row(*row)) if row[0] is not None else None for path, *row in found}

    def listing(self, path: str) -> Listing | None:
        row = self.row(path)
        return self.lately.unpacked(row) if row else None

    def names_of_inode(self, ino: int) -> list[tuple[str, bytes]]:
        return self._db.execute("SELECT path, name FROM links WHERE ino = ?", (_signed(ino),)).fetchall()

    def has_any_links(self) -> bool:
        """Whether any file has several names: mostly none has, and then nothing more needs to be asked."""
        if self._generation >= 0:
            return self._any_links
        return bool(self._db.execute("SELECT 1 FROM links LIMIT 1").fetchone())

    def twins_of(self, path: str, name: bytes) -> list[tuple[str, bytes]]:
        """Every name of the file that has this one, if it has several."""
        query = (
            "SELECT path, name FROM links WHERE ino IN (SELECT ino FROM links WHERE path = ? AND name = ?)"
        )
        return self._db.execute(query, (path, name)).fetchall()

    def has_links(self, paths: Iterable[str]) -> bool:
        """Whether a file with several names has one in any of these directories."""
        query = "SELECT 1 FROM links WHERE path = ? LIMIT 1"
        return any(self._db.execute(query, (path,)).fetchone() for path in paths)

    def linked_elsewhere(self) -> list[tuple[str, bytes]]:
        """Names of files that have further names outside the tree: no feed reports changes through those."""
        query = (
            "SELECT path, name FROM links JOIN (SELECT ino AS one, count(*) AS known FROM links GROUP BY ino) "
            "ON one = ino WHERE nlink > known"
        )
        return self._db.execute(query).fetchall()

    def shrink(self) -> None:
        """After a look at the whole tree: what follows asks for a few directories."""
        if self._connection is not None:
            self._connection.execute("PRAGMA cache_size=-1000")
            self._connection.execute("PRAGMA shrink_memory")

    def holes(self) -> tuple[Hole, ...]:
        found = self._db.execute("SELECT path, name, reason, kind FROM holes ORDER BY path, name")
        return tuple(Hole(f"{path}/{name}".lstrip("/"), reason, kind) for path, name, reason, kind in found)

    def digests(self) -> Iterator[bytes]:
        """Every blob that it needs."""
        for table in ("dirs", "past"):
            for row in self._db.execute(f"SELECT {_COLUMNS} FROM {table} WHERE entries IS NOT NULL"):
                yield from digests_of(Row(*row))
                if '"holes"' in row[-1]:
                    extras: dict[str, dict[str, Any]] = json.loads(row[-1])
                    for extra in extras.values():
                        if isinstance(extra.get("holes"), str):
                            yield bytes.fromhex(extra["holes"])

    # Writing.

    def write(
        self,
        seen: Mapping[str, Seen],
        register: tuple[str, dict[str, Any]] | None = None,
        kept: bool = True,
    ) -> int:
        """The next generation: these directories are like this now, or gone. `register` is the token and owner of a
        watch that begins with it. Not `kept`: their content is recorded next, and until then may be lost."""
        generation = self.generation
        if not seen and not register:
            return generation
        # A watch must find its beginning again whatever happens. What was seen without one is seen again.
        with self._transaction(durable=bool(register)) as db:
            query = "SELECT 1 FROM watches WHERE generation <= ? LIMIT 1"
            needed = db.execute(query, (generation,)).fetchone()
            for path, listing in seen.items():
                if needed:
                    self._keep(db, path, generation)
                self._put(db, path, listing)
            if seen and not kept:
                self._awaited.update(dict.fromkeys(seen))
                self._unkept = json.dumps([new_id(), *self._awaited])
                db.execute("INSERT OR REPLACE INTO meta VALUES ('unkept', ?)", (self._unkept,))
            if seen:
                generation += 1
                db.execute("UPDATE meta SET value = ? WHERE key = 'generation'", (str(generation),))
            if register:
                _claim(db, register, generation)
        if register:
            self._claimed.add(register[0])
        if self._generation >= 0:
            self._generation = generation
        return generation

    def claim(self, claim: tuple[str, dict[str, Any]], generation: int) -> None:
        """For a watch that begins with that generation, which another one still needs."""
        with self._transaction(durable=True) as db:
            _claim(db, claim, generation)
        self._claimed.add(claim[0])

    def _keep(self, db: sqlite3.Connection, path: str, generation: int) -> None:
        # What is not there yet is kept as nothing at all.
        db.execute(
            f"INSERT OR IGNORE INTO past (path, until, {_COLUMNS}) SELECT ?1, ?2, {_COLUMNS} "
            "FROM (SELECT 1) LEFT JOIN dirs ON path = ?1",
            (path, generation),
        )

    def _put(self, db: sqlite3.Connection, path: str, seen: Seen) -> None:
        for table in ("links", "holes"):
            db.execute(f"DELETE FROM {table} WHERE path = ?", (path,))
        if seen is None:
            db.execute("DELETE FROM dirs WHERE path = ?", (path,))
            return
        if isinstance(seen, Row):
            row, listing = seen, unpacked(seen)  # of a large tree: most of it is not needed again
        else:
            row, listing = packed(seen), seen
            self.lately.remember(row, listing)
        db.execute(
            f"INSERT OR REPLACE INTO dirs (path, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", (path, *row)
        )
        several = [
            (_signed(entry.ino), path, name, entry.nlink)
            for name, entry in zip(listing.names, listing.entries, strict=True)
            if entry.nlink > 1 and listing.extras.get(quote(name), {}).get("excluded") is None
        ]
        if several:
            db.executemany("INSERT INTO links (ino, path, name, nlink) VALUES (?, ?, ?, ?)", several)
            self._any_links = True
        left_out = [(name, more) for name, more in listing.extras.items() if "excluded" in more]
        holes = [(path, name, more["excluded"], more.get("hole", UNREADABLE)) for name, more in left_out]
        db.executemany("INSERT INTO holes (path, name, reason, kind) VALUES (?, ?, ?, ?)", holes)

    # Who needs the past.

    def watches(self) -> tuple[WatchClaim, ...]:
        found = self._db.execute("SELECT token, generation, owner FROM watches ORDER BY generation")
        return tuple(
            WatchClaim(token, generation, json.loads(owner))
            for token, generation, owner in found
            if token not in self._ended
        )

    def is_claimed(self, token: str) -> bool:
        if token in self._ended:
            return False
        known = token in self._claimed  # no one else releases what a living process has claimed
        return known or bool(self._db.execute("SELECT 1 FROM watches WHERE token = ?", (token,)).fetchone())

    def release(self, tokens: Iterable[str], soon: bool = False) -> None:
        """These watches have ended: remove generations that no other watch needs. `soon`: while another one of this
        process continues, with its next transaction, or when the index is closed."""
        if self._is_another():
            self.close()
        if not self.exists():
            return
        self._ended.update(dict.fromkeys(tokens))
        self._claimed.difference_update(self._ended)
        if not (soon and self._claimed):
            with self._transaction(durable=False):
                pass

    @contextmanager
    def _transaction(self, durable: bool) -> Generator[sqlite3.Connection, None, None]:
        """Always whole and in order; `durable`: when this is left, and not only with the next one that is."""
        with self._turn:
            db = self._db
            try:
                if durable is not self._is_durable:
                    db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                    self._is_durable = durable
                db.execute("BEGIN IMMEDIATE")
                try:
                    if self._ended:
                        _release(db, self._ended)
                    yield db
                    db.execute("COMMIT")
                    self._ended.clear()
                finally:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
            except sqlite3.Error as error:
                raise _unreachable(self._path, error) from error


def _release(db: sqlite3.Connection, tokens: Iterable[str]) -> None:
    db.executemany("DELETE FROM watches WHERE token = ?", [(token,) for token in tokens])
    needed = "coalesce((SELECT min(generation) FROM watches), until + 1)"
    db.execute(f"DELETE FROM past WHERE until < {needed}")


def _claim(db: sqlite3.Connection, claim: tuple[str, dict[str, Any]], generation: int) -> None:
    values = (claim[0], generation, json.dumps(claim[1]))
    db.execute("INSERT OR REPLACE INTO watches (token, generation, owner) VALUES (?, ?, ?)", values)


def _create(connection: sqlite3.Connection, root: str) -> None:
    with open(os.path.join(os.path.dirname(__file__), "schema.sql"), encoding="utf-8") as schema:
        # In one transaction: a process killed in the middle leaves an empty file, which is begun again.
        connection.executescript(
            f"BEGIN IMMEDIATE; {schema.read()} "
            # Two that watch a tree for the first time at once: the second finds it made.
            f"INSERT OR IGNORE INTO meta VALUES ('version', '{VERSION}'), ('generation', '0'); COMMIT;"
        )
    if root:
        connection.execute("INSERT OR IGNORE INTO meta VALUES ('root', ?)", (root,))


def _meta(connection: sqlite3.Connection, key: str) -> str:
    found = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return found[0] if found else ""


def _signed(number: int) -> int:
    """SQLite's whole numbers have a sign."""
    return number - (1 << 64) if number >= 1 << 63 else number


def make_directory(path: str) -> None:
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)  # a umask may have taken even our own bits


def _removed(path: str) -> int:
    try:
        size = os.lstat(path).st_size
        os.unlink(path)
    except FileNotFoundError:
        return 0
    return size


def indexes_in(directory: str) -> list[str]:
    try:
        return [name.removesuffix(_SUFFIX) for name in os.listdir(directory) if name.endswith(_SUFFIX)]
    except FileNotFoundError:
        return []


def last_used(directory: str) -> Iterator[float]:
    """When each index in this directory was."""
    for name in indexes_in(directory):
        with suppress(FileNotFoundError):
            yield os.stat(os.path.join(directory, f"{name}.lock")).st_mtime


def digests_in(directory: str) -> Iterator[str]:
    """The blobs that the indexes in this directory need; a sweep must leave them."""
    for name in indexes_in(directory):
        index = Index(directory, name)
        try:
            for digest in index.digests():
                yield digest.hex()
        finally:
            index.close()


@contextmanager
def _reachable(path: str) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise ResourceUnreachable(
            f"{path} cannot be written: {os.strerror(error.errno or 0)}.",
            hint="Check free space and the rights on the store.",
        ) from error


def _unreachable(path: str, error: sqlite3.Error) -> ResourceUnreachable:
    if _is_full(path):  # SQLite may call that an error of the disk, or a database that cannot be written
        return ResourceUnreachable(
            "The disk of the store has no room for the index of a watched directory.",
            hint="Free some space, or choose another store with --store.",
        )
    return ResourceUnreachable(
        f"The index at {path} could not be written: {error}.",
        hint="Check free space and the disk; the index is built again if it is removed.",
    )


def _is_full(path: str) -> bool:
    """Whether there is no room for the few pages that SQLite needs beside a database."""
    try:
        now = os.statvfs(os.path.dirname(path))
    except OSError:
        return False
    return now.f_bavail * now.f_frsize < _SCARCE or (now.f_files > 0 and not now.f_favail)
