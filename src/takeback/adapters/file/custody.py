"""Whether a thing that was moved aside is what was captured; only then may it be removed."""

import os
import stat

from takeback.adapters.file.build import file_state, node_state
from takeback.adapters.file.content import read_file
from takeback.adapters.file.look import look
from takeback.adapters.file.manifest import (
    FIRST,
    MODE,
    MTIME,
    PATH,
    TYPE,
    WHAT,
    Row,
    extra,
    read_manifest,
)  # fmt: skip
from takeback.adapters.file.paths import Place, open_below
from takeback.adapters.file.states import TYPES, State, same, signature
from takeback.adapters.file.tree import Seen, first_difference, untouched
from takeback.adapters.file.trouble import CannotCapture
from takeback.model.resource import quote
from takeback.storage.protocols import Blobs

_CHEAP_TO_READ = (
    64 << 10
)  # below this, reading is as quick as being clever and also sees stores through a mapping


class Custody:
    """The entries of one captured directory; tells for each whether the store could bring it back."""

    def __init__(self, state: State, blobs: Blobs, seen: Seen | None) -> None:
        self._state = state
        self._blobs = blobs
        self._signatures = seen.signatures if seen else {}
        self._seen_rows = seen.rows if seen else None
        self._rows: dict[str, Row] | None = None

    @property
    def entries(self) -> int:
        return self._state["entries"]

    def rows(self) -> dict[str, Row]:
        if self._rows is None:
            listed = self._seen_rows
            if listed is None:
                listed = read_manifest(self._blobs, self._state["manifest"])
            self._rows = {row[PATH]: row for row in listed}
        return self._rows

    def ours(self, fd: int, name: str, path: str) -> bool:
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return True
        return untouched(status, self._signatures.get(path)) or self._as_listed(fd, name, path, status)

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
        place = Place(fd, os.fsencode(name), "")
        if row[TYPE] != "file":
            found = look(place)
            return same(found | {"owner_lost": True}, node_state(row))
        try:
            found = read_file(fd, name, path, None)
        except CannotCapture:
            return False
        return same(found | {"owner_lost": True}, file_state(row))

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


def unchanged_at_a_glance(place: Place, expected: State) -> bool:
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


def is_captured(place: Place, expected: State, blobs: Blobs, seen: Seen | None) -> bool:
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


def _same_tree(place: Place, status: os.stat_result, expected: State, custody: Custody) -> bool:
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
