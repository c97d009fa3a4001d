"""A world with the file adapter at work in it; a new adapter for every step, as a new process would have."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from takeback.adapters.file import changes
from takeback.adapters.file.adapter import FileAdapter
from takeback.model.change import Change, OnConflict
from takeback.model.effect import Effect
from takeback.testing.adapter_suite import Desk, undo_of
from tests.memory import MemoryBlobs
from tests.world import World

SOURCE = str(Path(__file__).parents[1] / "src")
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


def as_an_ordinary_user(world: World, code: str, groups: tuple[int, ...] = ()) -> str:
    """What a child says that gave up its rights; `desk`, `blobs` and `changes` are at hand."""
    head = f"""
        import fcntl, os, sys
        sys.path.insert(0, {SOURCE!r})
        from takeback.adapters.file import changes, kernel
        from takeback.adapters.file.adapter import FileAdapter
        from takeback.adapters.file.paths import scratch
        from tests.memory import MemoryBlobs
        from takeback.testing.adapter_suite import Desk, settle, undo_of
        from takeback.model.change import OnConflict
        from takeback.errors import *
        blobs = MemoryBlobs(); desk = Desk(FileAdapter(blobs)); kernel.libc()
        # Everything is imported by now: the interpreter's own files may be closed to an ordinary user.
        os.setgroups({list(groups)}); os.setgid(65534); os.setuid(65534)
        os.chdir({str(world.root)!r})
    """
    for directory in [world.root, *world.root.parents]:
        directory.chmod(directory.stat().st_mode | 0o011) if str(directory).startswith("/tmp/") else None
    text = textwrap.dedent(head) + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
