"""A world of its own below a test's directory, and commands that run over the machine's root with it inside."""

import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from takeback.sandbox.differences import LeftPath, differences
from takeback.sandbox.protocol import Ended, Order, Stack
from takeback.sandbox.sandbox import Running, Sandbox

ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
SOURCE = Path(__file__).parents[2] / "src" / "takeback"
USER = 1000


class Scene(Protocol):
    """Both kinds of users."""

    world: Path
    layers: Path
    place: Path
    out: Path
    layer: str

    def run(self, *argv: str, **more: Any) -> Ended: ...
    def lefts(self) -> list[LeftPath]: ...
    def close(self) -> None: ...
    def said(self) -> str: ...
    def left(self) -> dict[str, tuple[str, bool]]: ...
    def outside(self) -> list[str]: ...


class _Told:
    world: Path
    out: Path

    def lefts(self) -> list[LeftPath]:
        raise NotImplementedError

    def said(self) -> str:
        return self.out.read_text(errors="surrogateescape")

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
        paths = [os.fsdecode(one.path) for one in self.lefts()]
        return [path for path in paths if not f"{path}/".startswith(f"{self.world}/")]


class RootScene(_Told):
    """In this process."""

    def __init__(self, directory: Path) -> None:
        self.world = directory / "world"
        self.world.mkdir(exist_ok=True)
        self.out = directory / "out"
        self.layers = directory / "layers"
        self.layers.mkdir()
        self.place = directory / "place"
        self.sandbox = Sandbox(str(self.place))
        self.count = 0
        self.layer = ""
        self.stack = Stack()

    def order(self, *argv: str, **more: Any) -> Order:
        """argv of one word is a script."""
        whole = ("/bin/sh", "-c", argv[0]) if len(argv) == 1 else argv
        env = more.pop("env", ENV)
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
            return self.start(*argv, **{"stdio": (nothing, out, out)} | more).wait()
        finally:
            os.close(out)
            os.close(nothing)

    def lefts(self) -> list[LeftPath]:
        return list(differences(self.layer, self.stack))

    def close(self) -> None:
        self.sandbox.close()


class UserScene(_Told):
    """In a process that gave up being root; it is told what to do line by line."""

    def __init__(self, home: "Home", user: int = USER, above: Path | None = None) -> None:
        self.user = user
        self.directory = Path(tempfile.mkdtemp(dir=above or home.directory))
        os.chown(self.directory, user, user)
        self.world = self.directory / "world"
        self.world.mkdir()
        self.out = self.directory / "out"
        self.layers = self.directory / "layers"
        self.place = self.directory / "place"
        self.layer = ""
        self.process = subprocess.Popen(
            ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", home.python, "-I", "-B", "-c",
             f"import sys; sys.path[:0] = [{str(home.library)!r}]; import driver; driver.main(sys.argv[1])",
             str(self.directory)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", text=True,
        )  # fmt: skip

    def ask(self, **question: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline() or '{"error": "The driver has ended."}')
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer["answer"]

    def run(self, *argv: str, **more: Any) -> Ended:
        give(self.world, self.user)
        if "stack" in more:
            more["stack"] = list(more["stack"])
        told = self.ask(what="run", argv=argv, more=more)
        self.layer = told.pop("layer")
        return Ended(**told)

    def lefts(self) -> list[LeftPath]:
        return [
            LeftPath(os.fsencode(path), None if source is None else os.fsencode(source), below)
            for path, source, below in self.ask(what="lefts")
        ]

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.close()
            self.process.wait(120)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()


class Home(NamedTuple):
    """Where an ordinary user finds the package and may work: pytest's own directories are closed to others."""

    directory: Path
    library: Path
    python: str


def make_home() -> Home:
    directory = Path(tempfile.mkdtemp(prefix="takeback-user-"))
    directory.chmod(0o755)
    library = directory / "library"
    shutil.copytree(SOURCE, library / "takeback", ignore=shutil.ignore_patterns("__pycache__"))
    found = importlib.util.find_spec("backports")  # the library for compression
    for place in found.submodule_search_locations or () if found else ():
        shutil.copytree(place, library / "backports", dirs_exist_ok=True)
    shutil.copy(Path(__file__).parent / "driver.py", library)
    shutil.copy(__file__, library)
    for path in (library, *library.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    python = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
    return Home(directory, library, python)


def give(path: Path, user: int = USER) -> None:
    """To the ordinary user, with all in it that belongs to root."""
    for directory, names, files in os.walk(path):
        for name in (".", *names, *files):
            one = os.path.join(directory, name)
            if os.lstat(one).st_uid == 0:
                os.lchown(one, user, user)


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
                status.st_mode, status.st_ino, status.st_mtime_ns, content
            )  # fmt: skip
    return found
