"""A small world, and what a command would make of it: the change is found by comparing the world with a copy in which
the command has run."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from takeback.adapters.file.directory import ReadScope
from takeback.adapters.file.states import ABSENT, FileState, lasting, same
from takeback.adapters.tree.adapter import TreeAdapter
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import see
from takeback.adapters.tree.targets import command_change
from takeback.model.change import Change
from takeback.model.remedy import Target
from takeback.model.resource import file_resource, quote
from takeback.storage.protocols import Blobs
from tests.memory import MemoryBlobs
from tests.world import Picture, World

OLD = 10**18 + 123_456_789


def quick_directory() -> str | None:
    """In memory where that keeps attributes: a sweep syncs thousands of times, and a kill is not a power cut."""
    try:
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
            os.setxattr(file.fileno(), "user.colour", b"blue")
        return "/dev/shm"
    except OSError:
        return None


class Story(NamedTuple):
    name: str
    begin: Callable[[Path], object]
    command: Callable[[Path], object]
    disturb: Callable[[Path], object]


class TreeScene:
    def __init__(self, directory: Path, story: Story) -> None:
        self.root = directory / "world"
        self.copy = directory / "copy"
        self.held = directory / "held"
        self.blobs: Blobs = MemoryBlobs()
        self.story = story
        self._after: dict[str, FileState] = {}
        self.reset()

    def adapter(self) -> TreeAdapter:
        return TreeAdapter("command", self.blobs, held=str(self.held))

    def change(self) -> Change:
        if not self._after:
            shutil.rmtree(self.copy, ignore_errors=True)
            subprocess.run(["cp", "-a", self.root, self.copy], check=True)
            self.story.command(self.copy)
            self._after = states_in(self.copy, self.blobs)
        targets = compared(self.root, states_in(self.root, self.blobs), self._after)
        return command_change(self.blobs, str(self.root), "a command", targets)

    def world(self) -> Picture:
        seen = World(self.root).picture()
        for path, properties in seen.items():
            if not properties["mode"].startswith("d"):
                properties["names"] = os.lstat(self.root / os.fsdecode(path)).st_nlink
        return seen

    def reset(self) -> None:
        for directory in (self.root, self.held):
            if directory.exists():
                shutil.rmtree(directory)
            directory.mkdir()
        self.story.begin(self.root)
        for path in [*self.root.rglob("*"), self.root]:
            os.utime(path, ns=(10**18, OLD), follow_symlinks=False)

    def disturb(self) -> None:
        self.story.disturb(self.root)


def states_in(root: Path, blobs: Blobs) -> dict[str, FileState]:
    """Everything below, by quoted path."""
    found: dict[str, FileState] = {}
    names: dict[tuple[int, int], str] = {}
    with Places() as places:
        for directory, inner, files in os.walk(os.fsencode(root)):
            for name in sorted(inner + files):
                path = os.path.join(directory, name)
                inside = quote(os.path.relpath(path, os.fsencode(root)))
                state = see(places.at(file_resource(path)), ABSENT, ReadScope(blobs))
                if state.get("nlink", 1) > 1:
                    first = names.setdefault((state["dev"], state["ino"]), inside)
                    if first != inside:
                        state["twin"] = first
                found[inside] = state
    return found


def compared(root: Path, before: dict[str, FileState], after: dict[str, FileState]) -> list[Target]:
    targets: list[Target] = []
    for path in sorted({*before, *after}):
        old, new = before.get(path, ABSENT), lasting(after.get(path, ABSENT))
        if same(old, new) and old.get("mtime") == new.get("mtime") and old.get("twin") == new.get("twin"):
            continue
        targets.append(Target(at(root, path), absolute(root, old), absolute(root, new)))
    return targets


def at(root: Path, path: str) -> str:
    return f"{file_resource(os.fsencode(root))}/{path}"


def absolute(root: Path, state: FileState) -> dict[str, Any]:
    return state | {"twin": at(root, state["twin"])} if "twin" in state else state
