"""Which adapter knows which kind of resource; each is loaded when it is first asked for."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from takeback.adapters.file.adapter import FileAdapter
from takeback.adapters.protocol import Adapter
from takeback.storage.protocols import Blobs

if TYPE_CHECKING:
    from takeback.adapters.box.adapter import Heads

NAMES = ("file", "config", "command", "tree", "box")


class Registry(Mapping[str, Adapter]):
    def __init__(
        self, files: FileAdapter, blobs: Blobs, held: str = "", heads: "Callable[[], Heads] | None" = None
    ) -> None:
        """`held` is the directory in the store where inodes with several names wait for their undo."""
        self._files = files
        self._blobs = blobs
        self._held = held
        self._heads = heads
        self._loaded: dict[str, Adapter] = {"file": files}

    def __getitem__(self, name: str) -> Adapter:
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> Adapter:
        if name == "config":
            from takeback.adapters.config.adapter import ConfigAdapter

            return ConfigAdapter(self._files, self._blobs)
        if name == "tree" and self._held:
            from takeback.adapters.watch.adapter import WatchedTree

            return WatchedTree(self._blobs, self._held)
        if name in ("command", "tree"):
            from takeback.adapters.tree.adapter import TreeAdapter

            return TreeAdapter(name, self._blobs, self._held)
        if name == "box" and self._heads:
            from takeback.adapters.box.adapter import BoxAdapter

            return BoxAdapter(self._heads())
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)
