"""The world that agents play in: a project as people have them, and an own look at it. No code of takeback is used."""

import hashlib
import os
import signal
import stat
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_GIT = ("git", "-c", "user.name=user", "-c", "user.email=user@localhost", "-c", "init.defaultBranch=main")


class Entry(NamedTuple):
    """All of a path that an undo must bring back."""

    kind: str
    mode: int
    owner: tuple[int, int]
    content: str  # a hash; the target of a link
    size: int
    mtime: int
    links: int
    attributes: tuple[tuple[str, bytes], ...]


Manifest = Mapping[str, Entry]


def look(root: Path, start: Path | None = None, without: tuple[str, ...] = (".git",)) -> Manifest:
    """Every path below the root, by its name from `start`; `without` are such names, with all below them."""
    found: dict[str, Entry] = {}
    for directory, names, files in os.walk(root):
        inside = {
            name: os.path.relpath(os.path.join(directory, name), start or root) for name in (*names, *files)
        }
        names[:] = [name for name in names if inside[name] not in without]
        for name, inner in inside.items():
            if inner not in without:
                found[inner] = _entry(os.path.join(directory, name))
    return found


def _entry(path: str) -> Entry:
    status = os.lstat(path)
    kind, content, size = "other", "", 0
    if stat.S_ISREG(status.st_mode):
        with open(path, "rb") as file:
            kind, content, size = "file", hashlib.file_digest(file, "sha256").hexdigest(), status.st_size
    elif stat.S_ISLNK(status.st_mode):
        kind, content = "link", os.readlink(path)
    elif stat.S_ISDIR(status.st_mode):
        kind = "directory"
    elif stat.S_ISFIFO(status.st_mode):
        kind = "pipe"
    attributes = tuple(
        (name, os.getxattr(path, name, follow_symlinks=False))
        for name in sorted(os.listxattr(path, follow_symlinks=False))
    )
    links = 1 if kind == "directory" else status.st_nlink
    owner = status.st_uid, status.st_gid
    return Entry(
        kind, stat.S_IMODE(status.st_mode), owner, content, size, status.st_mtime_ns, links, attributes
    )


def differences(before: Manifest, after: Manifest, times: bool = True) -> dict[str, str]:
    """Path by path: `added`, `gone`, or the fields that differ. Without `times` only what is in the paths counts."""
    found: dict[str, str] = {}
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old is None or new is None:
            found[path] = "added" if old is None else "gone"
            continue
        fields = [name for name in Entry._fields if getattr(old, name) != getattr(new, name)]
        if fields := [name for name in fields if times or name != "mtime"]:
            found[path] = ", ".join(fields)
    return found


class Place(NamedTuple):
    """Where a scene is played: all that it may change is below `top`."""

    top: Path
    project: Path
    home: Path
    records: Path

    def look(self) -> Manifest:
        """Of the project and what is beside it, by names from the project. Of git's own state: see `git`."""
        return look(self.top, self.project)


def set_out(directory: Path) -> Place:
    place = Place(directory / "top", directory / "top/project", directory / "home", directory / "records")
    lay_out(place.project)
    (place.top / "other").mkdir()
    (place.top / "other/config.toml").write_text("port = 1\n")
    place.home.mkdir()
    place.records.mkdir()
    return place


def clear(home: Path) -> None:
    """Ends every process that still has this home: what an agent left running."""
    mark = f"HOME={home}".encode()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                os.kill(int(name), signal.SIGKILL)


def lay_out(project: Path) -> None:
    """A repository with work in every state: committed, staged, changed, untracked, ignored."""
    project.mkdir(parents=True)
    for name in ("src", "docs/empty", "build", "node_modules/left"):
        (project / name).mkdir(parents=True)
    for name, text in _COMMITTED.items():
        (project / name).write_text(text)
    (project / "run.sh").chmod(0o755)
    os.symlink("README.md", project / "link")
    git(project, "init", "--quiet")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", "first")
    for name, text in _FURTHER.items():
        (project / name).write_text(text)
    git(project, "add", "src/staged.py")
    (project / ".env").chmod(0o600)
    os.link(project / "notes.txt", project / "twin.txt")
    for directory, _, files in os.walk(project):
        for name in files if "/.git" not in directory else ():
            os.utime(os.path.join(directory, name), (1_700_000_000, 1_700_000_000), follow_symlinks=False)
    git(project, "status")


def git(project: Path, *words: str) -> str:
    done = subprocess.run([*_GIT, *words], cwd=project, capture_output=True, text=True, check=True)
    return done.stdout


_COMMITTED = {
    ".gitignore": ".env\nbuild/\nnode_modules/\n",
    "README.md": "# project\nline two\n",
    "src/app.py": "def main():\n    return 1\n",
    "src/tool.py": "def tool():\n    return 1\n",
    "src/old.py": "OLD = True\n",
    "docs/a.md": "a\n",
    "docs/b.md": "b\n",
    "run.sh": "#!/bin/sh\necho run\n",
}
_FURTHER = {
    "src/tool.py": "def tool():\n    return 2  # not committed\n",
    "src/staged.py": "STAGED = True\n",
    "notes.txt": "my notes\nsecond\n",
    "docs/note.txt": "untracked in docs\n",
    ".env": "SECRET=one\n",
    "build/out.o": "object\n",
    "node_modules/left/index.js": "module.exports = 1\n",
}
