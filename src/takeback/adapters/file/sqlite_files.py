"""SQLite databases that a living process has open. Put aside under it, the database would lose what that process writes
next, and what is in its write-ahead log would be read together with other pages."""

import os
from collections.abc import Collection, Iterable, Iterator

from takeback.errors import Conflict
from takeback.model.resource import display, path_of

_HEADER = b"SQLite format 3\0"
_BESIDE = (b"-wal", b"-shm", b"-journal")
_BESIDE_NAMES = tuple(end.decode() for end in _BESIDE)
_PAGES = 512  # a database is made of pages of this size or a multiple of it
HAS_OPEN = "is part of a database that process {} has open"
# For what is read later, when that process may have ended.
HAD_OPEN = "was part of a database that process {} had open"

Inode = tuple[int, int]


def may_be_database(name: str, size: int) -> bool:
    """Told without a look into it, so that ordinary files cost nothing."""
    return (size > 0 and size % _PAGES == 0) or name.endswith(_BESIDE_NAMES)


def in_use(resources: Iterable[str], words: str = HAS_OPEN) -> dict[str, str]:
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
            if resource not in told:
                told[resource] = words.format(f"{pid}{_called(pid)}")
    return told


def _called(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return f" ({file.read().strip()})"
    except OSError:
        return ""


def refuse_in_use(resources: Iterable[str]) -> None:
    found = in_use(resources)
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
    """By its first bytes; an encrypted one by the index of its write-ahead log, which is there while it is open."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(fd, len(_HEADER)) == _HEADER or os.path.lexists(path + b"-shm")
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
                paths = [entry.path for entry in entries]
        except OSError:
            continue  # it ended, or is someone else's
        for path in paths:
            try:
                status = os.stat(path)
            except OSError:
                continue  # closed in between
            yield int(name), (status.st_dev, status.st_ino)


# A SQLite database is several files: itself, its write-ahead log and that one's index, or its rollback journal.


def database_of(name: bytes, names: Collection[bytes]) -> bytes | None:
    """The database that a name in a directory belongs to; None if it stands alone."""
    for suffix in _BESIDE:
        if name.endswith(suffix) and name[: -len(suffix)] in names:
            return name[: -len(suffix)]
    return name if any(name + suffix in names for suffix in _BESIDE) else None


def unit_of(database: bytes, names: Collection[bytes]) -> tuple[bytes, ...]:
    return (database, *(database + suffix for suffix in _BESIDE if database + suffix in names))


def units_in(names: Collection[bytes], touched: Iterable[bytes]) -> list[tuple[bytes, ...]]:
    """The databases of which something was touched, each with all its files."""
    together = b"\0".join(names)
    if not any(suffix in together for suffix in _BESIDE):
        return []
    known = set(names)
    found = {one for name in touched if (one := database_of(name, known))}
    return [unit_of(database, known) for database in sorted(found)]
