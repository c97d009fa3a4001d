"""SQLite databases that a living process has open. Put aside under it, the database would lose what that process writes
next, and what is in its write-ahead log would be read together with other pages."""

import os
from collections.abc import Iterable, Iterator

from takeback.errors import Conflict
from takeback.model.remedy import Target
from takeback.model.resource import display, path_of

_HEADER = b"SQLite format 3\0"
_BESIDE = (b"-wal", b"-shm", b"-journal")

Inode = tuple[int, int]


def in_use(resources: Iterable[str]) -> dict[str, str]:
    """Of these paths, those that belong to a database which someone has open; with words for who it is."""
    found: dict[Inode, list[str]] = {}
    for resource in resources:
        for inode in _database(path_of(resource)):
            found.setdefault(inode, []).append(resource)
    if not found:
        return {}
    told: dict[str, str] = {}
    for pid, inode in _open_files():
        for resource in found.get(inode, ()):
            told.setdefault(resource, f"is part of a database that process {pid} has open")
    return told


def refuse_in_use(targets: Iterable[Target]) -> None:
    found = in_use(target.resource for target in targets if target.before["type"] == "file")
    for resource, why in found.items():
        raise Conflict(
            f"{display(resource)} {why}.",
            hint="Nothing was changed. Have it closed, then try again.",
            resources=tuple(found),
        )


def _database(path: bytes) -> Iterator[Inode]:
    """The inodes that make up the database this path belongs to; nothing if it belongs to none."""
    base = next((path.removesuffix(end) for end in _BESIDE if path.endswith(end)), path)
    if not _is_database(base):
        return
    for part in (base, *(base + end for end in _BESIDE)):
        try:
            status = os.stat(part, follow_symlinks=False)
        except OSError:
            continue
        yield status.st_dev, status.st_ino


def _is_database(path: bytes) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(fd, len(_HEADER)) == _HEADER
    except OSError:
        return False
    finally:
        os.close(fd)


def _open_files() -> Iterator[tuple[int, Inode]]:
    """What other processes have open, as far as we may look."""
    me = os.getpid()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == me:
            continue
        try:
            with os.scandir(f"/proc/{name}/fd") as entries:
                for entry in entries:
                    status = os.stat(entry.path)
                    yield int(name), (status.st_dev, status.st_ino)
        except OSError:
            continue  # it ended, or is someone else's
