"""Look at a whole directory: what is in it, and whether it is still what was seen."""

import errno
import hashlib
import json
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from takeback.adapters.file.content import at, read_file, read_xattrs
from takeback.adapters.file.os_errors import CannotCapture, mounted
from takeback.adapters.file.paths import Handles, open_below, status_at
from takeback.adapters.file.states import TYPES, FileState, inode_state
from takeback.model.progress import SILENT, Progress
from takeback.model.resource import quote
from takeback.storage.protocols import Blobs

# What is inside a directory, one JSON line an entry, so that ten thousand files make one small journal record.
#
# A row is `[type, path, mode, uid, gid, mtime, size|rdev|target, digest, extra]`, or `["link", path,
# first]` for a further name of a file listed before. Directories come before what is in them, and the
# entries of one directory stand together.


Row = list[Any]

TYPE, PATH, MODE, UID, GID, MTIME, WHAT, DIGEST, EXTRA = range(9)
FIRST = 2  # of a link row: the path of the name listed first


def extra(row: Row) -> dict[str, Any]:
    return row[EXTRA] if len(row) > EXTRA else {}


def encoded(rows: Iterable[Row]) -> bytes:
    return "\n".join([_line(row) for row in rows]).encode("ascii")


def _line(row: Row) -> str:
    # By hand, because ten thousand calls of json.dumps cost more than reading the files; paths are percent-quoted.
    if row[TYPE] == "link":
        return f'["link","{row[PATH]}","{row[FIRST]}"]'
    kind, path, mode, uid, gid, mtime, what, digest = row[:EXTRA]
    third = f'"{what}"' if type(what) is str else what
    tail = "," + json.dumps(row[EXTRA], sort_keys=True, separators=(",", ":")) if len(row) > EXTRA else ""
    return f'["{kind}","{path}",{mode},{uid},{gid},{mtime},{third},"{digest}"{tail}]'


def read_manifest(blobs: Blobs, digest: str) -> list[Row]:
    text = b"".join(blobs.read(digest)).decode("ascii")
    return json.loads(f"[{text.replace(chr(10), ',')}]")


def content_digest(rows: Iterable[Row], owners: bool) -> str:
    """Names what is in the directory, times aside; what was excluded does not count."""
    sum = hashlib.sha256()
    between = ""
    for line in _counted(rows, owners):
        sum.update(f"{between}{line}".encode("ascii"))
        between = "\n"
    return sum.hexdigest()


def _counted(rows: Iterable[Row], owners: bool) -> Iterator[str]:
    for row in rows:
        if row[TYPE] == "link":
            yield f"link {row[PATH]} {row[FIRST]}"
            continue
        more = extra(row)
        if "excluded" in more:
            continue
        owner = f"{row[UID]} {row[GID]}" if owners else ""
        xattrs = json.dumps(more["xattrs"], sort_keys=True) if "xattrs" in more else ""
        yield f"{row[TYPE]} {row[PATH]} {row[MODE]} {owner} {row[WHAT]} {row[DIGEST]} {xattrs}"


def blobs_in(rows: Iterable[Row]) -> list[str]:
    """Everything the entries need, each once."""
    needed: dict[str, None] = {}
    for row in rows:
        if row[TYPE] == "file" and row[DIGEST]:
            needed[row[DIGEST]] = None
            holes = extra(row).get("holes")
            if isinstance(holes, str):
                needed[holes] = None
    return list(needed)


# mode, uid, gid, inode, size, mtime, ctime; ctime is 0 where it was too young to trust
Signature = tuple[int, int, int, int, int, int, int]

_YOUNG = 50_000_000
_LIST = os.O_RDONLY | os.O_DIRECTORY


class SeenDirectory(NamedTuple):
    """A directory as it was read, and what tells later, without reading again, that it is untouched."""

    rows: list[Row]
    signatures: dict[str, Signature]
    bytes: int


class ReadScope(NamedTuple):
    """How to read: where the bytes go, how many are too many, and what to do with what cannot be read."""

    keep: Blobs | None = None
    limit: int = 0
    owners: bool = True
    lost: list[CannotCapture] | None = None  # None: the first one is raised
    hold: str = ""  # under what name to hold an inode that has names elsewhere; empty: it cannot be held
    progress: Progress = SILENT


def listing(
    root_fd: int, resource: str, unreadable: Callable[[CannotCapture], None] | None = None
) -> Iterator[tuple[int, str, list[os.DirEntry[str]]]]:
    """Every directory below, outermost first: a handle, its quoted path, its entries by name."""
    with Handles(root_fd) as handles:
        yield from listed(handles, resource, unreadable)


def listed(
    handles: Handles, resource: str, unreadable: Callable[[CannotCapture], None] | None = None
) -> Iterator[tuple[int, str, list[os.DirEntry[str]]]]:
    pending = deque([""])
    while pending:
        path = pending.popleft()
        try:
            fd = handles.open(path)
        except PermissionError:
            trouble = CannotCapture(f"{resource}/{path}".rstrip("/"), "its entries are not readable")
            if unreadable is None:
                raise trouble from None
            unreadable(trouble)
            continue
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise mounted(f"{resource}/{path}") from None
            raise
        with os.scandir(fd) as found:
            entries = sorted(found, key=attrgetter("name"))
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                name = quote(os.fsencode(entry.name))
                pending.append(f"{path}/{name}" if path else name)
        yield fd, path, entries


def read_tree(root_fd: int, resource: str, scope: ReadScope) -> SeenDirectory:
    reading = _Reading(resource, scope)
    for fd, path, entries in listing(
        root_fd, resource, scope.lost.append if scope.lost is not None else None
    ):
        inside = path + "/" if path else ""
        for entry in entries:
            reading.take(fd, entry, inside + quote(os.fsencode(entry.name)))
            scope.progress.moved(items=1)
    return SeenDirectory(reading.rows, reading.signatures, reading.bytes)


class _Reading:
    def __init__(self, resource: str, scope: ReadScope) -> None:
        self.resource = resource
        self.scope = scope
        self.rows: list[Row] = []
        self.signatures: dict[str, Signature] = {}
        self.first: dict[tuple[int, int], str] = {}
        self.bytes = 0

    def take(self, fd: int, entry: os.DirEntry[str], path: str) -> None:
        try:
            if entry.is_file(follow_symlinks=False):
                self._file(fd, entry, path)
            else:
                self._other(fd, entry, path)
        except CannotCapture as reason:
            if self.scope.lost is None:
                raise
            self.scope.lost.append(reason)
            self._excluded(fd, entry, path, reason.reason)

    def _file(self, fd: int, entry: os.DirEntry[str], path: str) -> None:
        scope = self.scope
        state = read_file(
            fd, entry.name, f"{self.resource}/{path}", scope.keep, scope.limit, progress=scope.progress
        )
        mode = state["mode"]
        self.signatures[path] = (
            mode | stat.S_IFREG, state["uid"], state["gid"], state["ino"],
            state["size"], state["mtime"], state.get("ctime", 0),
        )  # fmt: skip
        more: FileState = {}
        if state["nlink"] > 1:
            first = self.first.get((state["dev"], state["ino"]))
            if first is not None:
                self.rows.append(["link", path, first])
                return
            more["nlink"] = state["nlink"]
            more["ino"] = state["ino"]
        self.bytes += state["size"]
        if scope.limit and self.bytes > scope.limit:
            raise CannotCapture(self.resource, f"its contents are over the limit of {scope.limit:,} bytes")
        if more:
            self.first[state["dev"], state["ino"]] = path
        for key in ("xattrs", "holes"):
            if key in state:
                more[key] = state[key]
        row = ["file", path, mode, state["uid"], state["gid"], state["mtime"], state["size"], state["digest"]]
        self.rows.append([*row, more] if more else row)

    def _other(self, fd: int, entry: os.DirEntry[str], path: str) -> None:
        try:
            seen = os.stat(entry.name, dir_fd=fd, follow_symlinks=False)
            kind = TYPES[stat.S_IFMT(seen.st_mode)]
            if kind == "file":
                raise CannotCapture(f"{self.resource}/{path}", "it was replaced while it was looked at")
            what: int | str = seen.st_rdev if kind in ("char", "block") else 0
            if kind == "symlink":
                what = quote(os.readlink(os.fsencode(entry.name), dir_fd=fd))
            if kind == "dir":
                xattrs = self._directory_xattrs(fd, entry)
            else:
                xattrs = read_xattrs(at(fd, os.fsencode(entry.name)))
        except FileNotFoundError:
            raise CannotCapture(f"{self.resource}/{path}", "it vanished while it was read") from None
        self.signatures[path] = sign(seen, time.time_ns())
        row = [kind, path, stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid, seen.st_mtime_ns, what, ""]
        self.rows.append([*row, {"xattrs": xattrs}] if xattrs else row)

    def _directory_xattrs(self, fd: int, entry: os.DirEntry[str]) -> dict[str, str]:
        try:
            inner = open_below(fd, os.fsencode(entry.name), _LIST, cross_mounts=False)
        except OSError as error:
            # Not readable, or a mount point: the walk comes to it next and says so by name.
            if error.errno in (errno.EACCES, errno.EXDEV):
                return {}
            raise
        try:
            return read_xattrs(inner)
        finally:
            os.close(inner)

    def _excluded(self, fd: int, entry: os.DirEntry[str], path: str, reason: str) -> None:
        seen = status_at(fd, entry.name)
        if seen is None:
            return
        kind, mode = TYPES[stat.S_IFMT(seen.st_mode)], stat.S_IMODE(seen.st_mode)
        self.signatures[path] = sign(seen, time.time_ns())
        row = [kind, path, mode, seen.st_uid, seen.st_gid, seen.st_mtime_ns, seen.st_size, ""]
        self.rows.append([*row, {"excluded": reason, "ino": seen.st_ino}])


def sign(seen: os.stat_result, now: int) -> Signature:
    if stat.S_ISDIR(seen.st_mode):
        # What is in a directory is compared entry by entry; its own times move with every one of them.
        return (seen.st_mode, seen.st_uid, seen.st_gid, seen.st_ino, 0, 0, 0)
    ctime = seen.st_ctime_ns if now - seen.st_ctime_ns > _YOUNG else 0
    return (seen.st_mode, seen.st_uid, seen.st_gid, seen.st_ino, seen.st_size, seen.st_mtime_ns, ctime)


def untouched(seen: os.stat_result, known: Signature | None) -> bool:
    """Whether an entry is certainly what it was; False also where only reading could tell."""
    if known is None:
        return False
    if stat.S_ISDIR(seen.st_mode):
        return known[:4] == (seen.st_mode, seen.st_uid, seen.st_gid, seen.st_ino)
    return known == (
        seen.st_mode, seen.st_uid, seen.st_gid, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns
    )  # fmt: skip


def first_difference(root_fd: int, resource: str, ours: Callable[[int, str, str], bool], entries: int) -> str:
    """The path of the first entry that is not what was captured; empty if all are, and none is missing."""
    count = 0
    for fd, path, found in listing(root_fd, resource):
        inside = path + "/" if path else ""
        for entry in found:
            count += 1
            name = inside + quote(os.fsencode(entry.name))
            if not ours(fd, entry.name, name):
                return name
    return "" if count == entries else "."


def tree_state(root_fd: int, resource: str, seen: SeenDirectory, scope: ReadScope) -> FileState:
    """The state of the directory itself: one line for the journal, with the manifest as a blob."""
    top = os.fstat(root_fd)
    excluded = sum("excluded" in row[EXTRA] for row in seen.rows if len(row) > EXTRA)
    manifest = ""
    elsewhere = with_names_elsewhere(seen.rows)
    for row in elsewhere if scope.hold else ():
        # Made from the path, so that the same file has the same name when a redo takes the tree away once more.
        row[EXTRA]["held"] = f"{scope.hold}-{hashlib.sha256(row[PATH].encode()).hexdigest()[:16]}"
    if scope.keep:
        manifest = scope.keep.put(encoded(_portable(seen.rows)), like=resource, refs=blobs_in(seen.rows))
    state: FileState = {
        "type": "dir",
        **inode_state(top),
        "manifest": manifest,
        "content": content_digest(seen.rows, scope.owners),
        "entries": len(seen.rows),
        "bytes": seen.bytes,
    }
    if excluded:
        state["left_out"] = excluded
    if elsewhere and scope.hold:
        state["holds"] = scope.hold
    elif elsewhere:
        state["apart"] = len(elsewhere)
    if not scope.owners:
        state["owner_lost"] = True
    if xattrs := read_xattrs(root_fd):
        state["xattrs"] = xattrs
    return state


def with_names_elsewhere(rows: list[Row]) -> list[Row]:
    """Files that have more names than the ones inside this directory."""
    inside: dict[str, int] = {}
    for row in rows:
        if row[TYPE] == "link":
            inside[row[FIRST]] = inside.get(row[FIRST], 0) + 1
    return [row for row in rows if extra(row).get("nlink", 0) > 1 + inside.get(row[PATH], 0)]


def _portable(rows: list[Row]) -> Iterator[Row]:
    """Rows without what only the capturing process needs (link counts), kept short."""
    for row in rows:
        if len(row) > EXTRA and ("nlink" in row[EXTRA] or not row[EXTRA]):
            more = {key: value for key, value in row[EXTRA].items() if key not in ("nlink", "ino")}
            row = [*row[: DIGEST + 1], more] if more else row[: DIGEST + 1]
        yield row
