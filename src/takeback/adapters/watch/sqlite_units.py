"""A SQLite database is several files: itself, its write-ahead log and that one's index, or its rollback journal."""

from collections.abc import Collection, Iterable

_BESIDE = (b"-wal", b"-shm", b"-journal")


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
