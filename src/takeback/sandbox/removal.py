"""Removing a tree that a command filled: directories may be closed to their own owner, and very deep."""

import os
import stat


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
    parent = os.open(os.path.dirname(raw) or b".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _remove_directory(parent, os.path.basename(raw))
    finally:
        os.close(parent)


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
            try:
                os.rmdir(own, dir_fd=above)
            except FileNotFoundError:
                continue
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
