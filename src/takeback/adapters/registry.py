"""Which adapter knows which kind of resource; each is loaded when it is first asked for."""

from collections.abc import Iterator, Mapping

from takeback.adapters.file.adapter import FileAdapter
from takeback.adapters.protocol import Adapter
from takeback.storage.protocols import Blobs

NAMES = ("file", "config")


class Registry(Mapping[str, Adapter]):
    def __init__(self, files: FileAdapter, blobs: Blobs) -> None:
        self._files = files
        self._blobs = blobs
        self._loaded: dict[str, Adapter] = {"file": files}

    def __getitem__(self, name: str) -> Adapter:
        if name not in self._loaded:
            if name != "config":
                raise KeyError(name)
            from takeback.adapters.config.adapter import ConfigAdapter

            self._loaded[name] = ConfigAdapter(self._files, self._blobs)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)
