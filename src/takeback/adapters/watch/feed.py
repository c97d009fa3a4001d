"""Reports of the kernel about changes below a root: a hint where to look. A feed must say if it lost some."""

import os
from collections.abc import Iterable, Mapping
from typing import Protocol

from takeback.adapters.file.kernel import libc
from takeback.model.remedy import Target
from takeback.model.resource import ancestors

_MOST_OUTSIDE = 20_000
_BUFFER = 1 << 18


def checked(result: int) -> int:
    """The result of a function of the C library, or the error it reports."""
    if result < 0:
        code: int = libc().get_errno()
        raise OSError(code, os.strerror(code))
    return result


def read_reports(fd: int) -> bytes:
    """Empty if the kernel has no more to report now."""
    try:
        return os.read(fd, _BUFFER)
    except BlockingIOError:
        return b""


class Authors:
    """The book of one watch: the reports to its feed while the watch is open."""

    def __init__(self) -> None:
        self.of: dict[str, set[int]] = {}  # by quoted path from the root: processes
        self.somewhere: set[int] = set()  # those who changed something in directories that are gone by now
        # By directory and name: kinds of events by process.
        self.outside: dict[tuple[bytes, bytes], dict[int, int]] = {}
        self.whole = True

    def add(self, directory: str, name: str, process: int) -> None:
        path = f"{directory}/{name}" if directory and name else directory or name
        self.of.setdefault(path, set()).add(process)

    def add_outside(self, directory: bytes, name: bytes, process: int, kinds: int) -> None:
        """Elsewhere on the same filesystem."""
        seen = self.outside.get((directory, name))
        if seen is None:
            if len(self.outside) >= _MOST_OUTSIDE:
                return
            seen = self.outside[directory, name] = {}
        seen[process] = seen.get(process, 0) | kinds


def by_others(root: str, targets: Iterable[Target], authors: Authors, family: set[int]) -> dict[str, int]:
    """Of these, by resource, those that only others changed, each with one of them. A change without a known author is
    the family's, unless it came or went with a directory that others moved, created or removed."""
    if not authors.whole:
        return {}
    # The family may have changed something in a directory before others removed it; what, is not reported.
    unplaced = not authors.somewhere.isdisjoint(family) or 0 in authors.somewhere
    found: dict[str, int] = {}
    cut = len(root.rstrip("/")) + 1
    for target in sorted(targets, key=lambda one: one.resource):
        whole = target.before["type"] == "absent" or target.after["type"] == "absent"
        processes = authors.of.get(target.resource[cut:])
        if processes:
            moved = "dir" in (target.before["type"], target.after["type"]) and whole
            if processes.isdisjoint(family) and 0 not in processes and not (moved and unplaced):
                found[target.resource] = min(processes)
        elif whole and not unplaced:
            above = next((one for one in ancestors(target.resource) if one in found), None)
            if above is not None:
                found[target.resource] = found[above]
    return found


Told = Mapping[str, set[bytes]]  # by quoted path of a directory from the root: names in it


class Feed(Protocol):
    broken: bool  # it will never tell everything again
    crowded: bool  # and that was for what others do on the same filesystem, or may have been
    unsure: set[int]  # inodes of files that got or lost a name, told with none that is below the root

    def collect(self) -> None:
        """Make room in the kernel's queue, which is short. What is taken counts with the next `drain`; any thread may
        do it."""
        ...

    def drain(self) -> Told | None:
        """Paths that may have changed since the last call; None if reports were lost, so that only a full scan can
        tell."""
        ...

    def open_book(self) -> Authors | None:
        """A book of the authors of changes from now on; None if the kernel does not report them."""
        ...

    def close_book(self, book: Authors) -> None: ...

    def close(self) -> None: ...
