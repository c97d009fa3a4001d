"""A store, wherever its tables are: what all others need of it. Some of it is always on this machine."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from takeback.errors import Corrupt, StoreFull
from takeback.model.record import Record
from takeback.model.settings import MB, Limits, Settings, bytes_in_words, limits
from takeback.storage import disk
from takeback.storage.protocols import Journal, Leases
from takeback.storage.tables import refused

if TYPE_CHECKING:
    from takeback.storage.blobs.stored import StoredBlobs
    from takeback.storage.layers import Layers
    from takeback.storage.tables import Tables


SUSPECT = "SUSPECT"  # is in the directory after a write to its disk has failed
_SMALL = MB  # a capture of so few bytes may use what is kept free for others


class Store(ABC):
    """`path` is a directory of ours on this machine: layers of boxes, held files and scratch are there."""

    journal: Journal
    leases: Leases
    _RETIRE: Sequence[str]
    REDACTED_COLUMNS = ""  # of a record, beside its body, as an UPDATE empties them
    _REOPEN: Sequence[str]

    def __init__(
        self, name: str, path: str, database: "Tables", own: dict[str, int], retired: str = ""
    ) -> None:
        self.name = name  # as it is opened again, without a password
        self.path = path
        self.database = database
        self.own_settings = own  # those that the store itself holds
        self.settings = Settings(**own)  # with those of files, once someone has read them
        self.unclear = ""  # why it is not known what counts; until it is, nothing is forgotten by policy
        self.retired = retired  # what became of it, if it takes nothing new any more
        self._blobs: StoredBlobs | None = None
        self._layers: Layers | None = None
        self._suspect_path = os.path.join(path, SUSPECT)

    @property
    def blobs(self) -> "StoredBlobs":
        """Made when first needed: looking at the journal needs none, and loading them takes a sixth of `log`."""
        if self._blobs is None:
            with self.database.lock:
                self._blobs = self._blobs or self._make_blobs()
        return self._blobs

    @abstractmethod
    def shrink(self) -> None:
        """Let go of what is kept in memory only to be quick."""
        ...

    @abstractmethod
    def _make_blobs(self) -> "StoredBlobs": ...

    def layers(self) -> "Layers":
        """Those of boxes; few commands need them."""
        from takeback.storage.layers import Layers

        with self.database.lock:
            self._layers = self._layers or Layers(os.path.join(self.path, "layers"))
        return self._layers

    @property
    def role(self) -> str:
        """As whom the server of the store knows this process; "" where it has none."""
        return ""

    @property
    def read_only(self) -> bool:
        return self.database.read_only

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """For what is counted and compared, in words that every database of ours takes."""
        return self.database.read(sql, values)

    def together(self) -> AbstractContextManager[Any]:
        """All writes in the block are one transaction, and no other process writes in between."""
        return self.database.write()

    @property
    def leases_at_home(self) -> Leases:
        """The leases as recovery sees them: this machine does not settle runs of another one."""
        return self.leases

    def elsewhere(self, run: str) -> bool:
        """Whether the run was held last on another machine."""
        return False

    @abstractmethod
    def wait_for_work(self, seconds: float) -> None:
        """Returns when a run may have become due for a worker, at the latest after that time."""
        ...

    @abstractmethod
    def refuse_if_suspect(self) -> None:
        """Raises while the store cannot be trusted with anything new."""
        ...

    def refuse_without_room(self, more: int) -> None:
        """Refuse before the disk fills, so that undo and its records still fit. A capture that is not small leaves
        more free than that."""
        disk_now = self._disk()
        free = disk_now.f_bavail * disk_now.f_frsize
        reserve = self.settings.reserve_bytes
        reserve = max(reserve, self.limits().free) if more > _SMALL else reserve
        inodes = disk_now.f_files and not disk_now.f_favail
        if free - more < reserve or inodes:
            if self._blobs:
                self._blobs.disown()
            if inodes:
                raise StoreFull(
                    "The disk under the store has no inodes left: it takes no more files.",
                    hint="Nothing was changed. Delete files you no longer need, or choose another store with --store.",
                )
            needs = f"this change needs {bytes_in_words(more)} for its way back, and " if more else ""
            raise StoreFull(
                f"The disk under the store has {bytes_in_words(free)} free; {needs}"
                f"{bytes_in_words(reserve)} must stay free.",
                hint="Nothing was changed. Free some space: `takeback sweep` deletes what nothing needs (with "
                "--grace 0, for when no other process is at work, the youngest too). Or choose another store with "
                "--store; `free_bytes` and `reserve_bytes` in the settings lower what must stay free.",
            )

    def use_spare(self) -> None:
        """Before a change that frees space: on a full disk, let it use the room that is kept for this."""
        return

    def _disk(self) -> os.statvfs_result:
        with disk.reachable(self.path, "looked at"):
            return os.statvfs(self.path)

    def free_bytes(self) -> int:
        """Of the disk under the store."""
        now = self._disk()
        return now.f_bavail * now.f_frsize

    def limits(self) -> Limits:
        now = self._disk()
        return limits(self.settings, now.f_blocks * now.f_frsize)

    def bytes_kept(self) -> int:
        """What forgetting can make smaller: no layers of boxes, nothing that is kept aside, and not the write-ahead
        file, which is used again."""
        try:
            ahead = os.stat(os.path.join(self.path, "journal.db-wal")).st_blocks * 512
        except OSError:
            ahead = 0
        return self.bytes_on_disk(without=("layers", disk.SPARE)) - ahead

    def bytes_on_disk(self, without: Sequence[str] = ()) -> int:
        """But for those directories of the store."""
        total = 0
        seen: set[int] = set()  # what has several names is there once
        for directory, inside, names in os.walk(self.path):
            if directory == self.path:
                inside[:] = [name for name in inside if name not in without]
            for name in names:
                try:
                    status = os.lstat(os.path.join(directory, name))
                except FileNotFoundError:
                    continue  # a write-ahead file that another process has just folded in
                if status.st_nlink > 1 and status.st_ino in seen:
                    continue
                seen.update((status.st_ino,) if status.st_nlink > 1 else ())
                total += status.st_blocks * 512
        return total

    def suspect(self) -> bool:
        return os.path.lexists(self._suspect_path)

    # What this user remembers of it, outside of it.

    replaces = ""  # a sentence, if it was made in the place of one that was removed

    @property
    def made_here(self) -> bool:
        """Whether this user made it, or said that it is theirs. A store on a server was named with its credentials."""
        return True

    def lost(self) -> str:
        """A sentence, if it has lost a record that was seen in it."""
        return ""

    def remember(self) -> bool:
        """Note outside of it how far it has come; False if that note cannot be written."""
        return True

    def altered(self) -> Iterator[str]:
        """A sentence for each thing that someone did to its files, as far as that shows at a quick look."""
        return iter(())

    @property
    def is_replaced(self) -> bool:
        """Whether its files are not the ones that we have open."""
        return False

    @property
    def hook_note(self) -> str:
        """The file outside of it that says which hooks write into it; empty if none can."""
        return ""

    @property
    def verify_note(self) -> str:
        """The file outside of it that says when it was last verified."""
        return os.path.join(self.path, "VERIFIED")  # of a store on a server: its part on this machine

    def trust(self) -> None:
        """A person said that it is theirs, as it is."""
        return

    def read_anew(self) -> None:
        """Look at what the disk holds, not at what this process remembers of it."""
        return

    def trust_again(self) -> None:
        if self.suspect():
            disk.remove(self._suspect_path)

    def retire(self, words: str) -> None:
        """From now on, for everybody: it can be looked at, and nothing else."""
        with self.together() as connection:
            self.retired = self._retired_by_now()
            if self.retired != words:
                self.refuse_if_retired()
            if not self.retired:
                for sql in self._RETIRE:
                    connection.execute(sql)
                connection.execute("INSERT INTO retired VALUES (?)", (words,))
        self.retired = self.retired or words

    @abstractmethod
    def _retired_by_now(self) -> str:
        """As the store says itself; another process may have been quicker."""
        ...

    def reopen(self) -> None:
        if self.retired:
            with self.together() as connection:
                for sql in self._REOPEN:
                    connection.execute(sql)
        self.retired = ""

    def refuse_if_retired(self) -> None:
        if self.retired:
            raise refused(self.name, self.retired)

    # For erasing.

    def redacting(self) -> tuple[bytes, ...]:
        """Blobs that are being erased; an empty name while anything of a redaction is left to do."""
        return tuple(digest for (digest,) in self.read("SELECT digest FROM redacting WHERE seq = 0"))

    @abstractmethod
    def kept_body(self, body: bytes) -> str | bytes:
        """As its table has it."""
        ...

    def rename_signal(self, connection: Any, seq: int, name: str) -> None:
        """In the tables that are made from records."""
        return

    @abstractmethod
    def rewrite(self) -> tuple[str, ...]:
        """Rewrite all tables, so that nothing is left of what was deleted in them; a sentence for each place that it
        cannot reach."""
        ...

    # For filling it with a copy of another store.

    @abstractmethod
    def adopting(self, original: Callable[[], Record]) -> Journal:
        """Its journal, for a copy: what is appended next gets the time, the seal and the hash of that record."""
        ...

    @abstractmethod
    def keep_settings(self, settings: dict[str, int]) -> None:
        """Those that are not as usual."""
        ...

    @abstractmethod
    def finish_copying(self) -> None:
        """It can be used from now on."""
        ...

    @abstractmethod
    def close(self) -> None: ...


def unfinished(name: str, source: str, way_out: str) -> Corrupt:
    return Corrupt(
        f"The store at {name} is a copy of {source} that was never finished.",
        hint=f"Continue with `takeback store copy {source} {name}`, or {way_out} and copy it again.",
    )
