"""Remove what was moved aside: never across a mount, never through a link, and no entry that is not in the store."""

import errno
import os
import stat
from collections.abc import Callable
from contextlib import nullcontext

from takeback.adapters.file.build import Tools, file_state, hold, node_state
from takeback.adapters.file.content import read_file
from takeback.adapters.file.directory import (  # fmt: skip
    FIRST,
    MODE,
    MTIME,
    PATH,
    TYPE,
    WHAT,
    Row,
    SeenDirectory,
    extra,
    first_difference,
    listed,
    read_manifest,
    untouched,
)
from takeback.adapters.file.kernel import Freeing
from takeback.adapters.file.look import look
from takeback.adapters.file.os_errors import CannotCapture, Unremovable
from takeback.adapters.file.paths import Handles, Place, open_below, status_at
from takeback.adapters.file.states import TYPES, FileState, same, signature
from takeback.model.resource import quote, unquote
from takeback.storage.protocols import Blobs

# Whether a thing that was moved aside is what was captured; only then may it be removed.


# Below this, reading is as quick as being clever and also sees stores through a mapping.
_CHEAP_TO_READ = 64 << 10


class Custody:
    """The entries of one captured directory; tells for each whether the store could bring it back."""

    def __init__(self, state: FileState, blobs: Blobs, seen: SeenDirectory | None) -> None:
        self._state = state
        self._blobs = blobs
        self._seen = seen
        self._signatures = seen.signatures if seen else {}
        self._rows: dict[str, Row] | None = None

    @property
    def entries(self) -> int:
        return self._state["entries"]

    def rows(self) -> dict[str, Row]:
        if self._rows is None:
            listed = self._seen.rows if self._seen else read_manifest(self._blobs, self._state["manifest"])
            self._rows = {row[PATH]: row for row in listed}
        return self._rows

    def ours(self, fd: int, name: str, path: str) -> bool:
        status = status_at(fd, name)
        if status is None or untouched(status, self._signatures.get(path)):
            return True
        return self._as_listed(fd, name, path, status)

    def _as_listed(self, fd: int, name: str, path: str, status: os.stat_result) -> bool:
        row = self.rows().get(path)
        if row is not None and row[TYPE] == "link":
            row = self.rows().get(row[FIRST])
        if row is None or row[TYPE] != TYPES[stat.S_IFMT(status.st_mode)]:
            return False
        if "excluded" in extra(row):
            return _is_left_out(row, status)
        if row[TYPE] == "dir":
            return True
        if row[TYPE] != "file":
            return same(look(Place(fd, os.fsencode(name), "")) | {"owner_lost": True}, node_state(row))
        try:
            return same(read_file(fd, name, path, None) | {"owner_lost": True}, file_state(row))
        except CannotCapture:
            return False

    def left_out(self, path: str) -> bool:
        row = self.rows().get(path) if self._state.get("left_out") else None
        return row is not None and "excluded" in extra(row)

    def held_name(self, path: str) -> str:
        row = self.rows().get(path) if self._state.get("holds") else None
        return extra(row).get("held", "") if row else ""


def _is_left_out(row: Row, status: os.stat_result) -> bool:
    """Still the one that was declared lost. Its ctime says nothing: it moves when another of its names is removed."""
    known = (row[MODE], row[MTIME], row[WHAT], extra(row).get("ino"))
    return known == (stat.S_IMODE(status.st_mode), status.st_mtime_ns, status.st_size, status.st_ino)


def unchanged_at_a_glance(place: Place, expected: FileState) -> bool:
    """A cheap look right before acting; what it misses is found by `is_captured` right after, and put back."""
    status = place.stat()
    if status is None or expected["type"] == "absent":
        return status is None and expected["type"] == "absent"
    if expected.get("ino") != status.st_ino or expected.get("dev") != status.st_dev:
        return False
    if expected.get("mode", stat.S_IMODE(status.st_mode)) != stat.S_IMODE(status.st_mode):
        return False
    if expected["type"] != "file" or "meta" in expected or "identity" in expected:
        return "meta" not in expected
    if "ctime" in expected and expected["ctime"] != status.st_ctime_ns:
        return False
    return (expected["size"], expected["mtime"]) == (status.st_size, status.st_mtime_ns)


def is_captured(place: Place, expected: FileState, blobs: Blobs, seen: SeenDirectory | None) -> bool:
    """Whether what was moved aside to this place is exactly what was captured."""
    status = place.stat()
    if status is None:
        return False
    if expected["type"] == "file" and "excluded" not in expected and "identity" not in expected:
        known = signature(expected)
        if known and status.st_size > _CHEAP_TO_READ:
            # Renaming moved the ctime; the glance before it compared that.
            now = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            if now == known[:4] and stat.S_IMODE(status.st_mode) == expected["mode"]:
                return True
    in_parts = seen is not None or ("left_out" in expected and "ino" in expected)
    if expected["type"] == "dir" and in_parts and "manifest" in expected:
        return _same_tree(place, status, expected, Custody(expected, blobs, seen))
    try:
        return same(look(place, expected, status=status), expected)
    except CannotCapture:
        return False


def _same_tree(place: Place, status: os.stat_result, expected: FileState, custody: Custody) -> bool:
    if (status.st_dev, status.st_ino, stat.S_IMODE(status.st_mode)) != (
        expected["dev"], expected["ino"], expected["mode"]
    ):  # fmt: skip
        return False
    try:
        fd = open_below(place.fd, place.name, os.O_RDONLY | os.O_DIRECTORY, cross_mounts=False)
    except PermissionError:
        return "left_out" in expected
    try:
        return not first_difference(fd, place.resource, custody.ours, custody.entries)
    except CannotCapture:
        return "left_out" in expected
    finally:
        os.close(fd)


def quoted(name: str) -> str:
    return quote(os.fsencode(name))


Ours = Callable[[int, str, str], bool]


class Intruder(Exception):
    """An entry appeared or changed after the check; the path says which."""


def remove_built(place: Place) -> None:
    """Remove a file that we made and that no other process ever saw."""
    status = place.stat()
    if status is None:
        return
    if stat.S_ISDIR(status.st_mode):
        with Freeing() as freeing:
            _empty(place, lambda fd, name, path: True, freeing)
        os.rmdir(place.name, dir_fd=place.fd)
    else:
        os.unlink(place.name, dir_fd=place.fd)


def remove_file(place: Place, state: FileState, tools: Tools, freeing: Freeing | None = None) -> None:
    """A file, link or special file whose state is in the store; an inode with other names is held instead."""
    name = state.get("held", "")
    if not (name and hold(tools, name, place)):
        (freeing.unlink if freeing else os.unlink)(place.name, dir_fd=place.fd)


def remove_tree(place: Place, custody: Custody, tools: Tools, freeing: Freeing | None = None) -> None:
    """All of it, each entry checked right before; stops with Intruder at the first that is not ours."""
    with nullcontext(freeing) if freeing else Freeing() as freeing:
        _empty(place, custody.ours, freeing, custody, tools)
    try:
        os.rmdir(place.name, dir_fd=place.fd)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise Intruder("") from None
        raise


def remove_what_is_ours(place: Place, custody: Custody, tools: Tools) -> None:
    """The rest of an interrupted removal; what is not in the store stays where it is."""
    try:
        remove_tree(place, custody, tools)
    except Intruder:
        return


def _empty(
    place: Place,
    ours: Ours,
    freeing: Freeing,
    custody: Custody | None = None,
    tools: Tools | None = None,
) -> None:
    """Remove entries that were not captured last: until then everything can be restored."""
    root = open_below(place.fd, place.name, os.O_RDONLY | os.O_DIRECTORY, cross_mounts=False)
    directories: list[str] = []
    left_out: list[str] = []
    try:
        with Handles(root) as handles:
            for fd, path, entries in listed(handles, place.resource):
                inside = path + "/" if path else ""
                for entry in entries:
                    name = inside + quoted(entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(name)
                    elif not ours(fd, entry.name, name):
                        raise Intruder(name)
                    elif custody and custody.left_out(name):
                        left_out.append(name)
                    else:
                        _take_away(fd, entry.name, name, freeing, custody, tools)
                    if tools:
                        tools.progress.moved(items=1)
            for path in left_out:
                parent, _, name = path.rpartition("/")
                fd = handles.open(parent)
                if not ours(fd, os.fsdecode(unquote(name)), path):
                    raise Intruder(path)
                _take_away(fd, os.fsdecode(unquote(name)), path, freeing)
            for path in reversed(directories):
                _remove_directory(handles, path)
    finally:
        os.close(root)


def _take_away(
    fd: int,
    name: str,
    path: str,
    freeing: Freeing,
    custody: Custody | None = None,
    tools: Tools | None = None,
) -> None:
    held = custody.held_name(path) if custody else ""
    if held and tools and hold(tools, held, Place(fd, os.fsencode(name), "")):
        return
    try:
        freeing.unlink(name, dir_fd=fd)
    except OSError as error:
        raise Unremovable(error, path) from error


def _remove_directory(handles: Handles, path: str) -> None:
    parent, _, name = path.rpartition("/")
    try:
        os.rmdir(unquote(name), dir_fd=handles.open(parent))
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise Intruder(path) from None
        raise Unremovable(error, path) from error
