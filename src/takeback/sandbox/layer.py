"""The form of a layer on disk, and removing a tree that a command filled."""

import json
import os
import stat
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from takeback.model.descriptor import Descriptor

_FORM = "layer.json"


class Mount(NamedTuple):
    """`upper` is the name of a directory in the layer."""

    point: str
    upper: str
    # How the topmost directory looked before the command: overlayfs has nothing to compare it with.
    first: tuple[int, int, int, int] = (0, 0, 0, 0)  # mode, uid, gid, mtime in nanoseconds


class LayerForm(NamedTuple):
    mounts: tuple[Mount, ...]
    userxattr: bool
    redirect: bool
    started_ns: int = 0
    # How the directories on the way to where it began looked before the command: changes of them by others are not
    # taken for its own.
    way: dict[str, tuple[int, int, int, int]] = {}


def mounts_of(layer: str) -> tuple[Mount, ...]:
    return read_form(layer).mounts


def read_form(layer: str) -> LayerForm:
    path = os.path.join(layer, _FORM)
    status = os.stat(path)
    return _read_form(path, status.st_ino, status.st_mtime_ns)


@lru_cache(maxsize=320)  # as many as can lie under one command, and a few
def _read_form(path: str, inode: int, mtime: int) -> LayerForm:
    with open(path, encoding="utf-8") as file:
        told: dict[str, Any] = json.load(file)
    mounts = tuple(
        Mount(one["point"], one["upper"], tuple(one.get("first", (0, 0, 0, 0)))) for one in told["mounts"]
    )
    way = {path: tuple(first) for path, first in told.get("way", {}).items()}
    return LayerForm(mounts, told["userxattr"], told["redirect"], told.get("started_ns", 0), way)


def write_form(layer: str, form: LayerForm) -> None:
    told = form._asdict() | {"mounts": [one._asdict() for one in form.mounts]}
    with open(os.path.join(layer, _FORM), "wb", buffering=0) as file:
        file.write(json.dumps(told).encode())


def prefix_of(userxattr: bool) -> str:
    return "user.overlay." if userxattr else "trusted.overlay."


def attribute_of_the_world(name: str, userxattr: bool) -> str | None:
    """An attribute found on a file in a layer, as it is called outside; None for those that overlayfs made itself."""
    prefix = prefix_of(userxattr)
    if not name.startswith(prefix):
        return name
    # The command's own attribute of such a name is kept under a longer one.
    escaped = prefix + "overlay."
    return prefix + name[len(escaped) :] if name.startswith(escaped) else None


def attributes(path: bytes, userxattr: bool) -> dict[str, bytes]:
    """Those that mean something outside."""
    found: dict[str, bytes] = {}
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:
        return found
    for name in names:
        known = attribute_of_the_world(name, userxattr)
        if known is not None:
            found[known] = os.getxattr(path, name, follow_symlinks=False)
    return found


def mark(path: bytes, name: str, userxattr: bool) -> bytes | None:
    """An attribute that overlayfs made itself."""
    try:
        return os.getxattr(path, prefix_of(userxattr) + name, follow_symlinks=False)
    except OSError:
        return None


def is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def is_opaque(path: bytes, userxattr: bool) -> bool:
    return mark(path, "opaque", userxattr) == b"y"


def first_look(status: os.stat_result) -> tuple[int, int, int, int]:
    return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, status.st_mtime_ns


def remove(path: str | bytes) -> None:
    """Nothing of it is there afterwards; links are not followed, and it does not matter when it was gone before."""
    raw = os.fsencode(path)
    try:
        status = os.lstat(raw)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(raw)
        return
    above = os.path.dirname(raw) or b"."
    with Descriptor(os.open(above, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as parent:
        _remove_directory(parent, os.path.basename(raw))


def _remove_directory(parent: int, name: bytes) -> None:
    """By handles: a path may be longer than the kernel takes."""
    stack: list[tuple[int, bytes, list[bytes]]] = [_entered(parent, name)]
    try:
        while stack:
            fd, own, inner = stack[-1]
            if inner:
                stack.append(_entered(fd, inner.pop()))
                continue
            os.close(fd)
            stack.pop()
            above = stack[-1][0] if stack else parent
            with suppress(FileNotFoundError):
                os.rmdir(own, dir_fd=above)
    finally:
        for fd, _, _ in stack:
            os.close(fd)


def _entered(parent: int, name: bytes) -> tuple[int, bytes, list[bytes]]:
    """The directory opened and emptied of all but directories."""
    fd = _open(parent, name)
    inner: list[bytes] = []
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                one = os.fsencode(entry.name)
                if entry.is_dir(follow_symlinks=False):
                    inner.append(one)
                else:
                    os.unlink(one, dir_fd=fd)
    except BaseException:
        os.close(fd)
        raise
    return fd, name, inner


def _open(parent: int, name: bytes) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    if os.geteuid() != 0:
        # Work directories of overlayfs have mode 000. chmod of a handle needs no right to read.
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode) and status.st_mode & 0o700 != 0o700:
            os.chmod(name, 0o700, dir_fd=parent)
    return os.open(name, flags, dir_fd=parent)
