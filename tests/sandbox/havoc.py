"""Random changes to a tree, made inside; what the tree looks like afterwards is told as JSON. Run as a program."""

import contextlib
import json
import os
import random
import shutil
import stat
import sys
from typing import Any


def paths(root: str) -> tuple[list[str], list[str]]:
    """Directories and others."""
    directories, others = ["."], []
    for place, names, files in os.walk(root):
        at = os.path.relpath(place, root)
        directories += (os.path.normpath(os.path.join(at, name)) for name in names
                        if not os.path.islink(os.path.join(place, name)))  # fmt: skip
        others += (os.path.normpath(os.path.join(at, name)) for name in (*files, *names)
                   if name in files or os.path.islink(os.path.join(place, name)))  # fmt: skip
    return sorted(directories), sorted(others)


def one_change(rng: random.Random, number: int) -> None:  # noqa: C901 a list of things that happen to trees
    directories, others = paths(".")
    directory = rng.choice(directories)
    inner = [name for name in directories if name != "."]
    new = os.path.join(directory, rng.choice(("a", "b", "c", f"n{number}")))
    some = rng.choice(others) if others else new
    kind = rng.randrange(16)
    if kind <= 1:
        write(new, "w", f"new {number}\n")
    elif kind == 2:
        write(some, "a", f"more {number}\n")
    elif kind == 3:
        os.unlink(some)
    elif kind == 4:
        os.mkdir(new)
    elif kind == 5 and inner:
        shutil.rmtree(rng.choice(inner))
    elif kind == 6:
        os.rename(some, new)
    elif kind in (7, 8) and inner:
        shutil.move(rng.choice(inner), new)
    elif kind == 9:
        os.symlink(f"to-{number}", new)
    elif kind == 10:
        os.link(some, new, follow_symlinks=False)
    elif kind == 11:
        os.chmod(rng.choice((*directories, some)), rng.choice((0o700, 0o755, 0o711)))
    elif kind == 12:
        os.utime(some, (number, number), follow_symlinks=False)
    elif kind == 13:
        os.setxattr(rng.choice((*directories, some)), "user.mark", str(number).encode())
    elif kind == 14 and inner:
        swapped = rng.choice(inner)
        shutil.rmtree(swapped)
        write(swapped, "w", f"was a directory {number}\n")
    elif kind == 15:
        os.unlink(some)
        os.mkdir(some)
        write(os.path.join(some, "inside"), "w", f"was a file {number}\n")


def write(path: str, mode: str, text: str) -> None:
    if not os.path.islink(path):
        with open(path, mode) as file:
            file.write(text)


def look(root: str) -> dict[str, list[Any]]:
    """Everything but the times of directories."""
    found: dict[str, list[Any]] = {}
    directories, others = paths(root)
    for name in (*directories, *others):
        found[name] = seen(os.path.join(root, name))
    return found


def seen(path: str | bytes) -> list[Any]:
    status = os.lstat(path)
    told: list[Any] = [stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)]
    if stat.S_ISLNK(status.st_mode):
        return [*told, status.st_mtime_ns, os.fsdecode(os.readlink(path))]
    marks = [name for name in os.listxattr(path) if name == "user.mark"]
    told.append([os.getxattr(path, name).decode() for name in marks])
    if stat.S_ISREG(status.st_mode):
        with open(path) as file:
            told += [status.st_mtime_ns, file.read()]
    return told


def main(seed: str, changes: str) -> None:
    rng = random.Random(seed)
    for number in range(int(changes)):
        with contextlib.suppress(OSError, shutil.Error):
            one_change(rng, number)
    sys.stdout.write(json.dumps(look(".")))


if __name__ == "__main__":
    main(*sys.argv[1:])
