"""A store on disk: made whole, opened with suspicion."""

import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from takeback.errors import Corrupt, FormatTooNew, Misuse, Refused, ResourceUnreachable, TakebackError
from takeback.model.descriptor import Descriptor
from takeback.model.mounts import COVER, SANDBOX_NOTE, SANDBOX_TRIAL
from takeback.model.record import Record
from takeback.model.resource import home
from takeback.model.settings import given_settings
from takeback.storage import disk, tables
from takeback.storage.bodies import shortened
from takeback.storage.leases import SqliteLeases
from takeback.storage.notes import OWNER, Witness
from takeback.storage.owners import alive_beside
from takeback.storage.sqlite.database import SCHEMAS, SqliteDatabase, schema
from takeback.storage.sqlite.journal import SqliteJournal
from takeback.storage.sqlite.older_format import VERSION, OlderFormat
from takeback.storage.store import SUSPECT, Store, unfinished

if TYPE_CHECKING:
    from takeback.storage.blobs.stored import StoredBlobs

FORMAT_LINE = "takeback store "
POLL_SECONDS = 0.2
SETTINGS_FILE = "settings.json"
COPYING = "COPYING"  # names the store that this one is being filled from


class DiskStore(Store):
    _RETIRE, _REOPEN = tables.SQLITE, tables.SQLITE_AGAIN

    def __init__(
        self, path: str, database: SqliteDatabase, own: dict[str, int], now: Callable[[], int]
    ) -> None:
        super().__init__(path, path, database, own, _retired(database))
        self.journal = SqliteJournal(database, now)
        self.leases = SqliteLeases(database, alive_beside)
        self._sqlite = database
        self._journal_path = os.path.join(path, "journal.db")
        self._witness = witness(path)
        self._opened = _file(self._journal_path)
        self._packs: dict[str, int] = {}  # those that were seen, with their sizes
        self._changed = False

    def _retired_by_now(self) -> str:
        return _retired(self._sqlite)

    def _make_blobs(self) -> "StoredBlobs":
        from takeback.storage.blobs.stored import StoredBlobs

        return StoredBlobs(self.database, os.path.join(self.path, "blobs"))

    def wait_for_work(self, seconds: float) -> None:
        """A file sends no notification: poll it."""
        time.sleep(min(seconds, POLL_SECONDS))

    def close(self) -> None:
        if self._blobs:
            self._blobs.close()
        if not self.read_only:
            with suppress(TakebackError):  # closed already, or its disk failed
                self.remember()
        self._sqlite.close()
        if self._changed:
            disk.keep_spare(self.path)

    @property
    def made_here(self) -> bool:
        return self._witness.is_mine()

    def shrink(self) -> None:
        self._sqlite.read("PRAGMA cache_size=-2000")
        self._sqlite.read("PRAGMA shrink_memory")
        if self._blobs:
            self._blobs.shrink()

    def lost(self) -> str:
        note = self._witness.lost(self._sqlite)
        if note is None:
            return ""
        return (
            f"The store at {self.path} has lost records: it had {note.in_words()}, and that one is not in it."
        )

    def remember(self) -> bool:
        """Not for one whose files were exchanged: the note is about the files, and not about what we hold open."""
        return self.is_replaced or self._witness.remember(self._sqlite)

    @property
    def is_replaced(self) -> bool:
        return _file(self._journal_path) != self._opened

    def altered(self) -> Iterator[str]:
        if self.is_replaced:
            there = os.path.exists(self._journal_path)
            yield f"The store at {self.path} was {'replaced' if there else 'removed'} while it was in use."
            return
        try:
            disk.check_private(self.path)
        except TakebackError as error:
            yield str(error)
        yield from self._lost_packs()

    def _lost_packs(self) -> Iterator[str]:
        """Packs only grow. Those that were seen before are looked for, and the one of the newest large blob."""
        newest = self._sqlite.read("SELECT pack, position + length FROM blob_places ORDER BY id DESC LIMIT 1")
        wanted = dict(self._packs)
        for pack, end in newest:
            name = f"{pack:012x}.pack"
            wanted[name] = max(end, wanted.get(name, 0))
        place = os.path.join(self.path, "blobs", "packs")
        self._packs = _sizes(place)
        for name, size in wanted.items():
            if self._packs.get(name, -1) >= size:
                continue
            pack = int(name.partition(".")[0], 16)
            if self._sqlite.read("SELECT 1 FROM blob_places WHERE pack = ? LIMIT 1", (pack,)):
                yield f"{place}/{name} was removed or cut: contents for undo are missing."

    @property
    def hook_note(self) -> str:
        return self._witness.hooks

    @property
    def verify_note(self) -> str:
        return self._witness.verified

    def trust(self) -> None:
        self._witness.trust(self._sqlite)

    def adopting(self, original: Callable[[], Record]) -> SqliteJournal:
        return SqliteJournal(self._sqlite, lambda: original().at, original)

    def redacting(self) -> tuple[bytes, ...]:
        return () if self._sqlite.is_older else super().redacting()

    def kept_body(self, body: bytes) -> str | bytes:
        return shortened(body)

    def rewrite(self) -> tuple[str, ...]:
        self._sqlite.rewrite()
        return ()

    def keep_settings(self, settings: dict[str, int]) -> None:
        if settings:
            content = json.dumps(settings, indent=2).encode() + b"\n"
            disk.write_file(os.path.join(self.path, SETTINGS_FILE), content)

    def finish_copying(self) -> None:
        disk.remove(os.path.join(self.path, COPYING))

    def read_anew(self) -> None:
        self._sqlite.read_anew()

    def trust_again(self) -> None:
        """Sound data may be only in the kernel's memory, so write it once more."""
        if self.suspect() and not self.read_only:
            self._sqlite.fold_in()
            super().trust_again()

    def refuse_if_suspect(self) -> None:
        """After a failed write to its disk a store is not trusted with anything new until `verify` has passed."""
        if self.read_only:
            if disk.is_full(self.path):
                raise disk.full(self.path)
            raise ResourceUnreachable(
                f"The store at {self.path} is read-only, so no way back could be kept.",
                hint="Make it writable, or choose another with --store. Looking still works.",
            )
        self.refuse_if_retired()
        if self.suspect():
            raise ResourceUnreachable(
                "The disk under the store failed earlier, so the store is not trusted with new changes.",
                hint="Run `takeback verify --read-data`; when it finds nothing wrong, the store is trusted again.",
            )
        if not os.path.exists(self._journal_path):
            raise ResourceUnreachable(
                f"The store at {self.path} was deleted while in use.",
                hint="Open it again to start a new one.",
            )
        self._changed = True

    def use_spare(self) -> None:
        self._changed = True
        disk.give_up_spare(self.path)
        if self.read_only and not disk.is_full(self.path):
            self._sqlite.open_again()


def _file(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _sizes(directory: str) -> dict[str, int]:
    """Of the packs in it."""
    try:
        with os.scandir(directory) as found:
            return {one.name: one.stat().st_size for one in found if one.name.endswith(".pack")}
    except OSError:
        return {}


def default_path() -> str:
    return meant_path(os.environ.get("TAKEBACK_STORE", "")) or usual_path()


def usual_path() -> str:
    return os.path.join(_state(), "takeback")


def meant_path(path: str) -> str:
    """With `~` as the home directory: in a file of settings no shell has replaced it."""
    return os.path.expanduser(path) if path.startswith("~") else path


def is_remote(path: str) -> bool:
    return path.startswith(("postgresql://", "postgres://"))


def remote_directory() -> str:
    """Below it is what stores on servers have on this machine, each its own directory."""
    return os.path.join(_state(), "takeback-remote")


def local_path(path: str) -> str:
    """Our local directory, which no effect may touch: the store itself, or the local part of a store on a server."""
    return remote_directory() if is_remote(path) else path


def _state() -> str:
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # as its specification says: a relative one is invalid and to be ignored
        mine = home()
        if not os.path.isabs(mine):
            raise Misuse(
                "Your home directory is unknown, so there is no place for a store.",
                hint="Set TAKEBACK_STORE, or HOME.",
            )
        state = os.path.join(mine, ".local", "state")
    return state


def exists(path: str) -> bool:
    """Raises as opening it would where that cannot be known: what may not be looked at is not absent."""
    if is_remote(path):
        from takeback.storage.postgres.store import is_made

        return is_made(path)
    try:
        if any(_is_there(os.path.join(path, name)) for name in ("FORMAT", "journal.db")):
            return True
    except PermissionError as error:
        disk.check_private(path)
        raise disk.unreachable(path, "looked at", error) from error
    _refuse_covered(path)
    return False


def witness(path: str) -> Witness:
    return Witness(_state(), path)


def was_there(path: str) -> str:
    """Of a store that is not there: a sentence, if this user knows that there was one."""
    note = None if is_remote(path) else witness(path).note()
    if note is None or not note.seq:
        return ""
    return f"The store at {path} was removed. It had {note.in_words()}."


def _refuse_covered(path: str) -> None:
    """By the sandbox we are in: then it is not absent, and must not be made a second time."""
    if not os.path.isdir(path):
        return
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            mounts = [line.split() for line in file]
    except OSError:
        return
    here = os.fsencode(os.path.realpath(path))
    for _, _, _, _, point, *rest in mounts:
        if COVER.encode() in rest and point.decode("unicode_escape").encode("latin-1") == here:
            raise Refused(
                f"The store at {path} is out of reach here: this runs inside `takeback run` or `takeback shell`.",
                hint="Call takeback outside of it. Changes made in here are recorded when the command ends; "
                "--store or TAKEBACK_STORE name another store.",
            )


def _is_there(path: str) -> bool:
    try:
        os.stat(path)
    except PermissionError:
        raise
    except (OSError, ValueError):
        return False
    return True


def open_store(path: str, now: Callable[[], int], blobs: str = "", copying: str = "") -> Store:
    """Made if it is not there. `blobs`: the object store where a store in PostgreSQL has its large blobs. `copying`:
    the store that it is filled from; until that is finished it is of no use for anything else."""
    if is_remote(path):
        from takeback.storage.postgres.store import open_remote

        return open_remote(path, remote_directory(), blobs, copying)
    if "://" in path:
        raise Misuse(
            f"A store cannot be at {path.partition('://')[0]}://…", hint="Give a directory, or postgresql://…"
        )
    if blobs:
        raise Misuse(
            "A store on disk keeps its blobs itself.",
            hint="Only a store in PostgreSQL takes --blobs s3://bucket/…",
        )
    path = os.path.abspath(path)
    there = exists(path)
    removed = "" if there else was_there(path)
    if not there or _half_made(path):
        _create(path)
    disk.check_private(path)
    _check_format(path)
    _check_copied(path, copying, there)
    own = own_settings(path)
    database = _opened(path)
    database.on_io_error = lambda: _mark_suspect(path)
    store = DiskStore(path, database, own, now)
    store.replaces = removed
    return store


def _opened(path: str) -> SqliteDatabase:
    name = os.path.join(path, "journal.db")
    _refuse_links(name)
    older = OlderFormat(lambda: _write_format(path), lambda: schema("journal.sql") + schema("projects.sql"))
    try:
        return SqliteDatabase(name, older, read_only=not os.access(path, os.W_OK, effective_ids=True))
    except ResourceUnreachable:
        if not disk.is_full(path):
            raise
    return SqliteDatabase(name, older, full=True)  # looking works without room


def _refuse_links(journal: str) -> None:
    """SQLite follows a link, and makes and writes files beside its target."""
    for name in (journal, f"{journal}-wal", f"{journal}-shm"):
        try:
            mode = os.lstat(name).st_mode
        except OSError:
            continue
        if not stat.S_ISREG(mode):
            raise Corrupt(
                f"{name} is a {'symbolic link' if stat.S_ISLNK(mode) else 'special file'}, not a file of the store.",
                hint="Nothing was touched. Put the file itself there, or restore the store from a backup.",
            )


def _retired(database: SqliteDatabase) -> str:
    there = database.read("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'retired'")
    return database.read("SELECT words FROM retired")[0][0] if there else ""


def is_half_made(path: str) -> bool:
    """Whether someone began to make a store there and was killed: it has recorded nothing, and the first change makes
    the rest of it."""
    if is_remote(path) or os.path.exists(os.path.join(path, "journal.db")):
        return False
    try:
        names = os.listdir(path)
    except OSError:
        return False
    return "lock" in names and (not _strange(names)) and ("FORMAT" not in names or _half_made(path))


def _strange(names: list[str]) -> bool:
    """Whether there is something that the making of a store does not put there."""
    ours = ("lock", "blobs", "held", COPYING, SANDBOX_TRIAL, SANDBOX_NOTE)
    return not all(
        name in ours or name.startswith(("journal.db", "FORMAT", OWNER, SETTINGS_FILE)) for name in names
    )


def _half_made(path: str) -> bool:
    """Its maker was killed before the last step, which gives the journal its name."""
    return not os.path.exists(os.path.join(path, "journal.db")) and os.path.exists(_staged(path))


def _staged(path: str) -> str:
    return os.path.join(path, "journal.db.new")


def refuse_unfit(path: str) -> None:
    """Raise unless a store may be made there. Of a directory with other files it is not advised to close it to
    others: it may be someone's project."""
    if not os.path.isdir(path):
        return
    if os.access(path, os.R_OK | os.X_OK, effective_ids=True):
        with disk.reachable(path, "looked at"):
            names = os.listdir(path)
        if _strange(names):
            raise Refused(
                f"{path} holds other files and is not a takeback store.",
                hint="Give --store or TAKEBACK_STORE an empty or new directory, or leave them out for the usual one.",
            )
    disk.check_private(path)


def _create(path: str) -> None:
    if os.path.lexists(path) and not os.path.isdir(path):
        raise Misuse(f"{path} is not a directory.", hint="Give a directory for the store.")
    disk.make_private_directory(path)
    refuse_unfit(path)
    with disk.reachable(path, "locked"):
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(os.path.join(path, "lock"), flags, disk.FILE_MODE)
    with Descriptor(handle) as lock:
        disk.lock(lock)
        if exists(path) and not _half_made(path):
            return
        disk.make_private_directory(os.path.join(path, "blobs"))
        disk.make_private_directory(os.path.join(path, "held"))
        _create_database(path)
        _write_format(path)
        witness(path).made()  # before it exists: a store without such a line was made elsewhere
        disk.rename(_staged(path), os.path.join(path, "journal.db"))


def _write_format(path: str) -> None:
    disk.write_file(os.path.join(path, "FORMAT"), f"{FORMAT_LINE}{VERSION}\n".encode())


def _create_database(path: str) -> None:
    """Under another name until it is whole: a process killed in the middle leaves no half-made journal."""
    import sqlite3

    staged = _staged(path)
    for leftover in (staged, f"{staged}-journal"):
        disk.remove(leftover)
    os.close(disk.create_private(staged))
    try:
        connection = sqlite3.connect(staged, isolation_level=None)
        for name in SCHEMAS:
            connection.executescript(schema(name))
        # Here, before another process has it open: of several that change the mode at once, all but one get "busy".
        connection.execute("PRAGMA journal_mode=WAL")
        connection.close()
    except sqlite3.Error as error:
        raise ResourceUnreachable(
            f"The store could not be made: {error}.",
            hint="Check free space and rights, or choose another with --store.",
        ) from error


def _check_format(path: str) -> None:
    name = os.path.join(path, "FORMAT")
    try:
        with open(name, encoding="utf-8", errors="replace") as file:
            line = file.read(100)
    except FileNotFoundError:
        raise Corrupt(
            f"The store at {path} has a journal but no FORMAT file.",
            hint="It was damaged or only partly made. If you know that takeback made it: "
            f"printf 'takeback store {VERSION}\\n' > {name}",
        ) from None
    except OSError as error:
        raise disk.unreachable(name, "read", error) from error
    version = line.removeprefix(FORMAT_LINE).strip()
    if not line.startswith(FORMAT_LINE) or not version.isdigit():
        raise Corrupt(f"{name} does not say that this is a takeback store.", hint="Is the path right?")
    if int(version) > VERSION:
        raise FormatTooNew(
            f"The store at {path} was written by a newer takeback (format {version}, this one knows {VERSION}).",
            hint="Upgrade takeback; nothing was touched.",
        )
    if not os.path.exists(os.path.join(path, "journal.db")):
        raise Corrupt(
            f"The store at {path} has lost its journal.",
            hint="Restore journal.db from a backup, or move the directory away to start a new store.",
        )


def _check_copied(path: str, copying: str, there: bool) -> None:
    name = os.path.join(path, COPYING)
    try:
        with open(name, encoding="utf-8", errors="surrogateescape") as file:
            source = file.read().strip()
    except FileNotFoundError:
        if not copying:
            return
        if there:
            raise Refused(
                f"There is a store at {path} already.", hint="Copy to a place where there is none yet."
            ) from None
        disk.write_file(name, f"{copying}\n".encode("utf-8", "surrogateescape"))
        return
    if source != copying:
        raise unfinished(path, source, f"remove {path}")


def own_settings(path: str) -> dict[str, int]:
    """Of a store on disk: what its `settings.json` says, as long as `takeback config` has not moved that."""
    return given_settings(said_settings(path), os.path.join(path, SETTINGS_FILE))


def said_settings(path: str) -> Any:
    """As they were written; nothing where there is no such file."""
    name = os.path.join(path, SETTINGS_FILE)
    try:
        # O_NONBLOCK: a FIFO must not make us wait.
        handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise disk.unreachable(name, "read", error) from error
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise Misuse(f"{name} is not a file.", hint="Remove it to use the defaults.")
        with disk.reachable(name, "read"), open(handle, encoding="utf-8", closefd=False) as file:
            return json.load(file)
    except (ValueError, RecursionError) as error:
        raise Misuse(
            f"{name} is not JSON: {error}.", hint="Correct it, or remove it to use the defaults."
        ) from error
    finally:
        os.close(handle)


def _mark_suspect(path: str) -> None:
    # On a disk that fails this may fail too; the error that brought us here is raised all the same.
    name = os.path.join(path, SUSPECT)
    flags = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(OSError), Descriptor(os.open(name, flags, disk.FILE_MODE)) as handle:
        os.fsync(handle)
