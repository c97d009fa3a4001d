"""A world of its own below a test's directory, and commands that run over the machine's root with it inside."""

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from takeback.sandbox.differences import Left, differences
from takeback.sandbox.order import Ended, Order, Stack
from takeback.sandbox.sandbox import Running, Sandbox

ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}


class Scene:
    def __init__(self, directory: Path) -> None:
        self.world = directory / "world"
        self.world.mkdir()
        self.out = directory / "out"
        self.layers = directory / "layers"
        self.layers.mkdir()
        self.place = directory / "place"
        self.sandbox = Sandbox(str(self.place))
        self.count = 0
        self.layer = ""
        self.stack = Stack()

    def order(self, *argv: str, env: Mapping[str, str] = ENV, **more: Any) -> Order:
        """argv of one word is a script."""
        whole = ("/bin/sh", "-c", argv[0]) if len(argv) == 1 else argv
        return Order(whole, str(more.pop("cwd", self.world)), env, more.pop("stdio", (0, 1, 2)), **more)

    def start(self, *argv: str, stack: Stack | None = None, **more: Any) -> Running:
        self.count += 1
        self.layer = str(self.layers / str(self.count))
        self.stack = stack or Stack()
        return self.sandbox.start(self.order(*argv, **more), self.stack, self.layer)

    def run(self, *argv: str, **more: Any) -> Ended:
        """What it says is in `out` afterwards."""
        nothing = os.open("/dev/null", os.O_RDONLY)
        out = os.open(self.out, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            return self.start(*argv, stdio=(nothing, out, out), **more).wait()
        finally:
            os.close(out)
            os.close(nothing)

    def said(self) -> str:
        return self.out.read_text(errors="surrogateescape")

    def lefts(self) -> list[Left]:
        return list(differences(self.layer, self.stack))

    def left(self) -> dict[str, tuple[str, bool]]:
        """Name in the world: what is there now, whether something lay below; the world only."""
        found: dict[str, tuple[str, bool]] = {}
        for one in self.lefts():
            path = os.fsdecode(one.path)
            if path == str(self.world) or path.startswith(f"{self.world}/"):
                found[path[len(str(self.world)) + 1 :] or "."] = (shown(one.source), one.below)
        return found

    def outside(self) -> list[str]:
        """Changed paths that are not in the world."""
        return [
            os.fsdecode(one.path)
            for one in self.lefts()
            if not os.fsdecode(one.path).startswith(f"{self.world}/")
            and os.fsdecode(one.path) != str(self.world)
        ]

    def picture(self) -> dict[str, tuple[Any, ...]]:
        return picture(self.world)

    def close(self) -> None:
        self.sandbox.close()


def shown(source: bytes | None) -> str:
    if source is None:
        return "gone"
    status = os.lstat(source)
    if stat.S_ISLNK(status.st_mode):
        return "-> " + os.fsdecode(os.readlink(source))
    if stat.S_ISREG(status.st_mode):
        return Path(os.fsdecode(source)).read_text(errors="surrogateescape")
    return {stat.S_IFDIR: "dir", stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket"}.get(
        stat.S_IFMT(status.st_mode), "device"
    )


def picture(root: Path) -> dict[str, tuple[Any, ...]]:
    """Everything in a tree that a command could have changed."""
    found: dict[str, tuple[Any, ...]] = {}
    for directory, names, files in os.walk(root):
        for name in (*names, *files, "."):
            path = os.path.normpath(os.path.join(directory, name))
            status = os.lstat(path)
            content: Any = None
            if stat.S_ISREG(status.st_mode):
                content = Path(path).read_bytes()
            elif stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            found[os.path.relpath(path, root)] = (
                status.st_mode, status.st_uid, status.st_gid, status.st_ino, status.st_mtime_ns, content
            )  # fmt: skip
    return found


@contextlib.contextmanager
def scene_in(directory: Path) -> Iterator[Scene]:
    scene = Scene(directory)
    try:
        yield scene
    finally:
        scene.close()
