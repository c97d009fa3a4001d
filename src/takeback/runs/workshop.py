"""Where a command's layer lies while the command runs: a directory of its own, which says whose it is, so that what a
killed process left is cleared by whoever comes next."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from takeback.model.ids import new_id
from takeback.model.run import Owner
from takeback.storage.process import alive, myself

_OWNER = "owner"


@contextmanager
def workshop(place: str) -> Iterator[str]:
    """A new private directory below `place`; gone at the end."""
    os.makedirs(place, mode=0o700, exist_ok=True)
    clear(place)
    mine = os.path.join(place, new_id())
    os.mkdir(mine, 0o700)
    try:
        with open(os.path.join(mine, _OWNER), "w", encoding="utf-8") as file:
            file.write("\n".join(str(field) for field in myself()))
        yield mine
    finally:
        remove_all(mine)


def clear(place: str) -> int:
    """Remove what dead processes left; how many."""
    try:
        names = os.listdir(place)
    except FileNotFoundError:
        return 0
    dead = [name for name in names if _is_dead(os.path.join(place, name))]
    for name in dead:
        remove_all(os.path.join(place, name))
    return len(dead)


def _is_dead(path: str) -> bool:
    try:
        with open(os.path.join(path, _OWNER), encoding="utf-8") as file:
            boot, space, pid, started = file.read().split("\n")
        owner = Owner(boot, space, int(pid), started)
    except (FileNotFoundError, ValueError):
        return _is_old(path)  # between the making of the directory and the writing of its owner
    except OSError:
        return False
    living = alive(owner)
    # One of another boot or container has no mounts and no processes here; of a container it may still be alive.
    return living is False or (living is None and owner.boot != myself().boot)


def _is_old(path: str) -> bool:
    import time

    try:
        return time.time() - os.lstat(path).st_mtime > 60
    except OSError:
        return False


def remove_all(path: str) -> None:
    """The whole directory, without following links or crossing into anything mounted; overlay leaves directories that
    even their owner may not enter."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        _empty(fd, os.fstat(fd).st_dev)
    finally:
        os.close(fd)
    os.rmdir(path)


def _empty(fd: int, device: int) -> None:
    with os.scandir(fd) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in names:
        if not is_directory:
            os.unlink(name, dir_fd=fd)
            continue
        inner = _opened(fd, name)
        try:
            if os.fstat(inner).st_dev == device:
                _empty(inner, device)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=fd)


def _opened(fd: int, name: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    wanted = stat.S_IRWXU
    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
    if status.st_mode & wanted != wanted:
        os.chmod(name, stat.S_IMODE(status.st_mode) | wanted, dir_fd=fd)
    return os.open(name, flags, dir_fd=fd)
