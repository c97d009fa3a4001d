"""Which adapter knows which kind of resource; each is loaded when it is first asked for."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from takeback.adapters.database import USUAL, Waiting
from takeback.adapters.protocol import Adapter
from takeback.model.progress import SILENT, Progress
from takeback.storage.protocols import Blobs

if TYPE_CHECKING:
    from takeback.adapters.box import Heads
    from takeback.adapters.call.ask import Processes
    from takeback.adapters.database import Keyring
    from takeback.adapters.file.adapter import FileAdapter

DATABASES = ("postgres", "sqlite", "mariadb", "redis")
NAMES = ("file", "config", "command", "tree", "box", "call", *DATABASES)


class Registry(Mapping[str, Adapter]):
    def __init__(
        self,
        files: "Callable[[], FileAdapter]",
        blobs: Blobs,
        held: str = "",
        heads: "Callable[[], Heads] | None" = None,
        keyring: "Keyring | None" = None,
        waiting: Waiting = USUAL,
        processes: "Processes | None" = None,
        progress: Progress = SILENT,
    ) -> None:
        """`held` is the directory in the store where inodes with several names wait for their undo."""
        self._files = cache(files)
        self._blobs = blobs
        self._held = held
        self._heads = heads
        self._keyring = keyring
        self._waiting = waiting
        self._processes = processes
        self._progress = progress
        self._loaded: dict[str, Adapter] = {}

    def __getitem__(self, name: str) -> Adapter:
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> Adapter:
        if name == "file":
            return self._files()
        if name == "config":
            from takeback.adapters.config.adapter import ConfigAdapter

            return ConfigAdapter(self._files(), self._blobs)
        if name == "tree" and self._held:
            from takeback.adapters.watch.adapter import WatchedTree

            return WatchedTree(self._blobs, self._held, self._progress)
        if name in ("command", "tree"):
            from takeback.adapters.tree.adapter import TreeAdapter

            return TreeAdapter(name, self._blobs, self._held, progress=self._progress)
        if name == "box" and self._heads:
            from takeback.adapters.box import BoxAdapter

            return BoxAdapter(self._heads())
        if name == "call" and self._processes:
            from takeback.adapters.call.adapter import CallAdapter

            return CallAdapter(self._processes)
        if name in DATABASES and self._keyring:
            return _for_database(name, self._blobs, self._keyring, self._waiting)
        raise KeyError(name)

    def close(self) -> None:
        """Close idle connections; the next use opens another."""
        for name in DATABASES:
            if close := getattr(self._loaded.get(name), "close", None):
                close()

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


def _for_database(name: str, blobs: Blobs, keyring: "Keyring", waiting: Waiting) -> Adapter:
    if name == "postgres":
        from takeback.adapters.postgres.adapter import PostgresAdapter

        return PostgresAdapter(blobs, keyring, waiting)
    if name == "sqlite":
        from takeback.adapters.sqlite.adapter import SqliteAdapter

        return SqliteAdapter(blobs, keyring, waiting)
    if name == "redis":
        from takeback.adapters.redis.adapter import RedisAdapter

        return RedisAdapter(blobs, keyring)
    from takeback.adapters.mariadb.adapter import MariaAdapter

    return MariaAdapter(blobs, keyring, waiting)
