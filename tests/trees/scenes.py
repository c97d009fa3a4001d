"""Three trees to destroy, an exact list of all that is in them, and a comparison that a person can read.

Every shape has the same core (a small project under git, beside some data), so that each destructive command finds
something to destroy in all of them; `odd` and `wide` have more around and inside it.
"""

import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import Any

from tests.world import Picture, picture

OLD = 1_500_000_000_000_000_000  # times in the trees lie shortly after this
NEVER_EQUAL = (b".git/index",)  # holds inode numbers and times: no two runs of git write the same

# What a command sees of its surroundings, however it is run: the same each time, so that git writes the same commits.
VARIABLES = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_AUTHOR_NAME": "someone",
    "GIT_AUTHOR_EMAIL": "someone@localhost",
    "GIT_AUTHOR_DATE": "1500000000 +0000",
    "GIT_COMMITTER_NAME": "someone",
    "GIT_COMMITTER_EMAIL": "someone@localhost",
    "GIT_COMMITTER_DATE": "1500000000 +0000",
}


def build_small(root: Path) -> None:
    """A small project with history, local changes, untracked and ignored files, and some data."""
    chance = Random(1)
    root.mkdir()
    _put(root / "README.md", b"# A project\n\nIt is small.\n")
    _put(root / "Makefile", b"all:\n\techo done > built\n")
    _put(root / "notes.txt", b"".join(b"line %d of the notes\n" % n for n in range(40)))
    for name in ("main", "list", "tree"):
        _put(root / f"src/{name}.c", b"/* %s */\nint %s(void) { return 0; }\n" % ((name.encode(),) * 2))
        _put(root / f"src/{name}.h", b"int %s(void);\n" % name.encode())
    _put(root / "src/lib/deep/er/leaf.txt", b"a leaf\n")
    _put(root / "run.sh", b"#!/bin/sh\necho run\n", mode=0o755)
    _put(root / ".gitignore", b"*.o\nobjs/\n*.log\n")
    _git(root, "init", "--quiet", "--initial-branch=main")
    _git(root, "add", "--all")
    _git(root, "commit", "--quiet", "--message=first")
    _put(root / "src/list.c", b"/* list */\nint list(void) { return 1; }\n")
    _put(root / "docs/guide.md", b"# Guide\n\nRead me.\n")
    _git(root, "add", "--all")
    _git(root, "commit", "--quiet", "--message=second")
    _git(root, "branch", "side", "HEAD~1")
    _git(root, "tag", "v1", "HEAD~1")
    _put(root / "src/tree.c", b"/* tree */\nint tree(void) { return 2; } /* not committed */\n")
    _put(root / "new.txt", b"untracked\n")
    _put(root / "trace.log", b"ignored\n" * 50)
    _put(root / "objs/main.o", chance.randbytes(3000))
    _put(root / "objs/cache/list.o", chance.randbytes(500))
    _put(root / "data/table.csv", b"".join(b"%d,%d\n" % (n, n * n) for n in range(200)))
    _put(root / "data/blob.bin", chance.randbytes(70_000))
    _put(root / "data/old/2019.csv", b"1,2\n")
    _put(root / "data/old/2020.csv", b"3,4\n")
    (root / "data/empty").mkdir()
    (root / "current").symlink_to("data/old")
    _put(root / "secret.txt", b"between us\n", mode=0o600)


def build_odd(root: Path) -> None:
    """The core, and in every corner of it what a careless copy loses."""
    build_small(root)
    src, data = root / "src", root / "data"
    # Commands meet either all names of a file or none; the others are in known_limits.
    _put(root / "links/one", b"two names, one file\n" * 50)
    (root / "links/deep").mkdir()
    os.link(root / "links/one", root / "links/deep/same")
    os.link(root / "links/one", root / "links/third name")
    (src / "dangling").symlink_to("nowhere/at all")
    (src / "to dir").symlink_to("lib")
    (src / "absolute").symlink_to("/nonexistent/place")  # never a real one: a command may go through it
    os.mkfifo(src / "pipe", 0o640)
    os.mkfifo(data / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:  # by a relative name: a long one is refused
        here = os.getcwd()
        os.chdir(data)
        try:
            bound.bind("socket")
        finally:
            os.chdir(here)
    with open(data / "sparse", "wb") as file:
        file.seek(1 << 20)
        file.write(b"in the middle" * 1000)
        file.truncate(4 << 20)
    (data / "hole").write_bytes(b"")
    os.truncate(data / "hole", 300_000)
    os.setxattr(root / "notes.txt", "user.origin", b"hand\0made")
    os.setxattr(src, "user.of directory", b"yes")
    _put(src / "suid", b"#!/bin/sh\n", mode=0o4755)
    _put(src / "sgid", b"#!/bin/sh\n", mode=0o2755)
    (root / "shared").mkdir()
    _put(root / "shared/by all.txt", b"all\n", mode=0o666)
    os.chmod(root / "shared", 0o3777)
    for place in (src, data):
        strange = os.fsencode(place) + b"/caf\xe9\xff name"
        with open(strange, "wb") as file:
            file.write(b"not UTF-8\n")
        _put(place / "with\nnew line", b"two lines\n")
        _put(place / "-rf", b"looks like an option\n")
        _put(place / "größe.txt", b"UTF-8\n")
    _put(data / "closed.txt", b"nobody may read this\n", mode=0o000)
    (data / "closed").mkdir()
    _put(data / "closed/inside.txt", b"inside\n")
    os.chmod(data / "closed", 0o000)
    (src / "void/in/void").mkdir(parents=True)
    _put(src / "void/.hidden/x", b"x")
    _put(data / "read only.txt", b"read only\n", mode=0o444)
    _put(data / ("n" * 250), b"long name\n")
    (data / "nothing.txt").write_bytes(b"")
    if os.geteuid() == 0:
        os.setxattr(data / "blob.bin", "trusted.mark", b"1")
        for path, uid, gid in (
            (data / "old", 1234, 4321),
            (data / "table.csv", 1234, 0),
            (src / "suid", 0, 4321),
        ):
            mode = path.stat().st_mode & 0o7777
            os.chown(path, uid, gid)
            os.chmod(path, mode)  # chown takes the set-user-id bit away
        os.chown(src / "dangling", 1234, 4321, follow_symlinks=False)


def build_wide(root: Path) -> None:
    """The core, with a directory of many entries and one that is deep."""
    build_small(root)
    chance = Random(2)
    for number in range(120):
        _put(root / f"src/many/{number:03}.txt", b"%d\n" % number * chance.randrange(1, 60))
    for number in range(40):
        _put(
            root / f"data/wide/{number % 12}/{number % 5}/{number}.bin",
            chance.randbytes(chance.randrange(200)),
        )
    deep = root / "src/lib"
    for level in range(20):
        deep = deep / f"level {level}"
        _put(deep / "here.txt", b"%d\n" % level)
    os.symlink("level 0/level 1", root / "src/lib/short cut")
    for number in range(12):
        os.link(
            root / f"data/wide/{number % 12}/{number % 5}/{number}.bin", root / f"data/wide/twin {number}"
        )


SHAPES: Mapping[str, Callable[[Path], None]] = {"small": build_small, "odd": build_odd, "wide": build_wide}


def _put(path: Path, content: bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def _git(root: Path, *words: str) -> None:
    # Without the sample hooks: fourteen files that are the same in every repository.
    template = VARIABLES | {"GIT_TEMPLATE_DIR": ""}
    subprocess.run(["git", *words], cwd=root, env=template, check=True, stdin=subprocess.DEVNULL)


class Trees:
    """One place where a tree is made anew from a template, as often as it is wanted."""

    def __init__(self, directory: Path, shape: str) -> None:
        self.root = directory / "tree"
        self._template = directory / "template"
        SHAPES[shape](self._template)
        make_old(self._template)
        _let_git_look(self._template)

    def renew(self) -> Picture:
        """The tree as it was, whatever has become of it."""
        self.remove()
        # By a copy that keeps links, attributes and holes; compared below, so that no one need believe it.
        subprocess.run(["cp", "-a", "--sparse=auto", self._template, self.root], check=True)
        return manifest(self.root)

    def template(self) -> Picture:
        return manifest(self._template)

    def remove(self) -> None:
        if self.root.is_dir() and not self.root.is_symlink():
            subprocess.run(["chmod", "-R", "u+rwX", self.root], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", self.root], check=True)


def make_old(root: Path) -> None:
    """A time of its own for everything, with nanoseconds."""
    every = [os.fsencode(root)]
    for directory, names, files in os.walk(every[0]):
        every += [os.path.join(directory, name) for name in names + files]
    for number, path in enumerate(sorted(every, reverse=True)):
        when = OLD + number * 1_000_000_007
        os.utime(path, ns=(when, when), follow_symlinks=False)


def _let_git_look(root: Path) -> None:
    # Git looks at times to know what has changed: let it look once now, so that it need not write later.
    subprocess.run(
        ["git", "-c", "core.checkStat=minimal", "status", "--short"],
        cwd=root, env=VARIABLES | {"GIT_OPTIONAL_LOCKS": "1"}, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    os.utime(root / ".git/index", ns=(OLD, OLD))
    os.utime(root / ".git", ns=(OLD, OLD))


def manifest(root: Path) -> Picture:
    """Everything that is promised to come back, by path; times of directories too."""
    return picture(os.fsencode(root))


_OBJECT = re.compile(rb"(^|/)objects/([0-9a-f]{2}|pack|info)(/|$)")


def without_directory_times(seen: Picture) -> Picture:
    return {
        path: {name: value for name, value in found.items() if name != "mtime"}
        if found["mode"].startswith("d")
        else found
        for path, found in seen.items()
    }


def but_for_git_objects(before: Picture, seen: Picture) -> tuple[Picture, Picture]:
    """Both without the git objects that an undo left, and without the times of those that git touched."""
    there = {path: found for path, found in seen.items() if path in before or not _OBJECT.search(path)}
    return _without_object_times(before), _without_object_times(there)


def _without_object_times(seen: Picture) -> Picture:
    return {
        path: {name: value for name, value in found.items() if name != "mtime"}
        if _OBJECT.search(path)
        else found
        for path, found in without_directory_times(seen).items()
    }


def comparable(seen: Picture, since: int, never_equal: Iterable[bytes] = NEVER_EQUAL) -> Picture:
    """What two runs of one command leave alike: a time after `since` is "now", whenever that was; and what holds
    inode numbers or chance is only there or not there."""
    loose: Picture = {}
    for path, found in without_directory_times(seen).items():
        # git touches an object that it would write again; whether it does depends on the second it runs in.
        if found.get("mtime", 0) >= since or path.startswith(b".git/objects/"):
            found = found | {"mtime": "now"}
        if "attributes" in found:
            # Those of the namespace trusted are for processes that may mount, which a sandboxed one may not.
            kept = {
                name: value for name, value in found["attributes"].items() if not name.startswith("trusted.")
            }
            found = found | {"attributes": kept}
        if any(fnmatchcase(os.fsdecode(path), os.fsdecode(pattern)) for pattern in never_equal):
            found = {name: found[name] for name in ("mode", "owner")}
        loose[path] = found
    return loose


def differences(wanted: Picture, found: Picture, limit: int = 12) -> str:
    """Empty if they are the same, else a line for each path and property."""
    lines: list[str] = []
    for path in sorted(wanted.keys() | found.keys()):
        if wanted.get(path) == found.get(path):
            continue
        lines.append(f"{os.fsdecode(path)!r}: {_told(wanted.get(path), found.get(path))}")
    more = [f"… and {len(lines) - limit} more"] if len(lines) > limit else []
    return "\n".join(lines[:limit] + more)


def _told(wanted: dict[str, Any] | None, found: dict[str, Any] | None) -> str:
    if wanted is None:
        assert found
        return f"is there and should not be ({found['mode']})"
    if found is None:
        return f"is missing ({wanted['mode']})"
    names = sorted(wanted.keys() | found.keys())
    return "; ".join(
        f"{name} is {found.get(name)!r}, not {wanted.get(name)!r}"
        for name in names
        if wanted.get(name) != found.get(name)
    )
