"""Overlayfs in our own words: what a stack of directories shows together, without mounting it."""

import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

from takeback.sandbox.layer import is_opaque, is_whiteout, mark


class Ground(NamedTuple):
    """One directory of the stack. The lowest is the world itself: nothing in it is a mark of overlayfs."""

    root: bytes
    plain: bool = False
    userxattr: bool = False


class Node(NamedTuple):
    """What one name shows: a directory may be put together from several, newest first."""

    parts: tuple[tuple[int, bytes], ...]  # which ground, and the path there
    status: os.stat_result

    @property
    def top(self) -> bytes:
        return self.parts[0][1]

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)


class View:
    def __init__(self, grounds: Iterable[Ground], mount_points: frozenset[bytes] = frozenset()) -> None:
        self.grounds = tuple(grounds)
        self.mount_points = mount_points  # of the world: what is mounted there does not shine through

    def root(self, first: int = 0) -> Node | None:
        """What is shown when the grounds above `first` are taken away."""
        parts = tuple(
            (number, ground.root)
            for number, ground in enumerate(self.grounds)
            if number >= first and os.path.isdir(ground.root)
        )
        return Node(parts, os.lstat(parts[0][1])) if parts else None

    def find(self, node: Node | None, path: bytes) -> Node | None:
        for name in path.split(b"/"):
            if node and name:
                node = self.child(node, name)
        return node

    def child(self, node: Node, name: bytes) -> Node | None:
        found: list[tuple[int, bytes]] = []
        seen: os.stat_result | None = None
        for number, directory in node.parts:
            path = directory + b"/" + name
            status = self._look(number, directory, path)
            if status is None:
                continue
            ground = self.grounds[number]
            if not ground.plain and is_whiteout(status):
                break
            if not stat.S_ISDIR(status.st_mode):
                return Node(tuple(found), seen) if seen else Node(((number, path),), status)
            found.append((number, path))
            seen = seen or status
            if ground.plain:
                continue
            if is_opaque(path, ground.userxattr):
                break
            elsewhere = mark(path, "redirect", ground.userxattr)
            if elsewhere is not None and elsewhere.startswith(b"/"):
                moved = self.find(self.root(number + 1), elsewhere)
                found += moved.parts if moved and moved.is_dir else ()
                break
            name = elsewhere or name
        return Node(tuple(found), seen) if seen else None

    def _look(self, number: int, directory: bytes, path: bytes) -> os.stat_result | None:
        if (
            self.grounds[number].plain
            and directory in self.mount_points
            and directory != self.grounds[number].root
        ):
            return None
        try:
            return os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, node: Node) -> set[bytes]:
        """Every name that may be in a directory; `child` says whether it is."""
        found: set[bytes] = set()
        for number, directory in node.parts:
            found |= self.names_of_part(number, directory)
        return found

    def names_of_part(self, number: int, directory: bytes) -> set[bytes]:
        ground = self.grounds[number]
        if ground.plain and directory in self.mount_points and directory != ground.root:
            return set()
        try:
            return set(os.listdir(directory))
        except (FileNotFoundError, NotADirectoryError):
            return set()
        except PermissionError:
            if not ground.plain:
                raise
            return set()  # what we may not read of the world, the command could not change
