"""A world with the file adapter at work in it; a new adapter for every step, as a new process would have."""

import os
from pathlib import Path

from takeback.adapters.file import changes
from takeback.adapters.file.adapter import FileAdapter
from takeback.model.change import Change
from takeback.model.effect import Effect
from takeback.model.plan import OnConflict
from takeback.storage.memory_blobs import MemoryBlobs
from takeback.testing.adapter_desk import Desk, undo_of
from tests.world import World

OLD = 1_234_567_890_123_456_789


class Files:
    def __init__(self, world: World, held: Path) -> None:
        self.world = world
        self.held = held
        self.blobs = MemoryBlobs()

    def __truediv__(self, name: str | bytes) -> Path:
        return self.world / name

    def desk(self) -> Desk:
        return Desk(FileAdapter(self.blobs, held=str(self.held)))

    def do(self, change: Change) -> Effect:
        return self.desk().do(change)

    def undo(self, effect: Effect, on_conflict: OnConflict = OnConflict.REFUSE) -> Effect:
        return self.desk().undo(effect, on_conflict)

    def told(self, effect: Effect, on_conflict: OnConflict = OnConflict.REFUSE) -> str:
        """What an undo would say of its one target."""
        [outcome] = self.desk().adapter.assess(undo_of(effect, on_conflict), effect).outcomes
        return outcome.detail

    def write(self, name: str | bytes, content: bytes = b"after", mode: int | None = None) -> Effect:
        return self.do(changes.write_change(self / name, self.blobs.put(content), len(content), mode))

    def delete(self, name: str | bytes) -> Effect:
        return self.do(changes.delete_change(self / name))

    def make(self, name: str = "file", content: bytes = b"before\n") -> Path:
        """A file that was there long before."""
        (self / name).write_bytes(content)
        os.utime(self / name, ns=(OLD, OLD))
        return self / name


def write(blobs: MemoryBlobs, path: Path, content: bytes = b"after") -> Change:
    return changes.write_change(path, blobs.put(content), len(content))


def leftovers(world: World) -> list[str]:
    """Scratch that should be gone."""
    return [str(path) for path in world.root.rglob(".takeback-*")]
