"""A tree to watch and a store beside it, both in the test's own directory."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from takeback.adapters.file.states import FileState
from takeback.adapters.watch.roots import root_of
from takeback.adapters.watch.scan import Bounds
from takeback.adapters.watch.watched_root import Baseline, WatchedRoot, WatchPlace
from takeback.storage.sqlite.store import Store, open_store


class Scene:
    def __init__(self, directory: Path) -> None:
        self.tree = directory / "tree"
        self.tree.mkdir()
        self.store: Store = open_store(str(directory / "store"), lambda: time.time_ns() // 1000)
        self.place = WatchPlace(
            str(directory / "store" / "watch"), self.store.blobs, os.fsencode(directory / "store"), {}
        )
        self.watched = WatchedRoot(root_of(self.tree), self.place)

    def write(self, name: str, content: str = "x", mode: int | None = None) -> Path:
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        if mode is not None:
            path.chmod(mode)
        return path

    def settle(self) -> None:
        """Everything as old as files in a tree usually are: no longer too young to tell."""
        past = time.time_ns() - 10_000_000_000
        for directory, folders, names in os.walk(self.tree, topdown=False):
            for name in (*folders, *names):
                os.utime(os.path.join(directory, name), ns=(past, past), follow_symlinks=False)
        os.utime(self.tree, ns=(past, past))

    def begin(self, bounds: Bounds = Bounds()) -> Baseline:  # noqa: B008
        return self.watched.begin({}, bounds)

    def changes(self, baseline: Baseline) -> dict[str, tuple[FileState, FileState]]:
        """By path from the tree; directories of which only the time moved are left out."""
        found = self.watched.changes(baseline).targets
        cut = len(self.watched.root.resource) + 1
        return {
            one.resource[cut:]: (one.before, one.after)
            for one in found
            if not (
                one.before["type"] == one.after["type"] == "dir" and one.before["mode"] == one.after["mode"]
            )
        }

    def content(self, state: FileState) -> bytes:
        return b"".join(self.store.blobs.read(state["digest"]))

    def close(self) -> None:
        self.watched.close()
        self.store.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    try:
        yield made
    finally:
        made.close()
