"""The bytes of a regular file: read so that a half-changed file is never taken for a whole one, and written back."""

import binascii
import errno
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress

from takeback.adapters.file.os_errors import CannotCapture
from takeback.adapters.file.states import FileState, inode_state
from takeback.model.content import Naming, read_pieces
from takeback.model.progress import SILENT, Progress
from takeback.model.resource import quote, unquote
from takeback.storage.protocols import Blobs

# Extended attributes: the user's own, ACLs, file capabilities, and what only root sees.


_KEPT = ("user.", "trusted.", "system.posix_acl_", "security.capability")
OVERLAY = ("user.overlay.", "trusted.overlay.")  # overlayfs's own bookkeeping, not part of a file
ORIGINS = tuple(f"{prefix}origin" for prefix in OVERLAY)
CAPABILITY = "security.capability"
_NONE_HERE = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM)


# An open file or directory; or, for what must not be opened or cannot be (a FIFO, a link), its path by `at`.
Where = int | bytes


def at(dir_fd: int, name: bytes) -> bytes:
    """A path of any length to a name in an open directory; the name itself is not followed."""
    return b"/proc/self/fd/%d/%b" % (dir_fd, name)


def read_xattrs(where: Where) -> dict[str, str]:
    """Name to base64; names are percent-quoted, because they may be any bytes."""
    follow = isinstance(where, int)
    try:
        names = os.listxattr(where, follow_symlinks=follow)
    except OSError as error:
        if error.errno in _NONE_HERE:
            return {}
        raise
    found: dict[str, str] = {}
    for name in names:
        if name.startswith(_KEPT) and not name.startswith(OVERLAY):
            value = binascii.b2a_base64(os.getxattr(where, name, follow_symlinks=follow), newline=False)
            found[quote(os.fsencode(name))] = value.decode("ascii")
    return found


def overlay_origin(where: Where) -> bytes | None:
    """The kernel's note of the file that this one was copied from to be changed; not on every filesystem."""
    for name in ORIGINS:
        with suppress(OSError):
            return os.getxattr(where, name, follow_symlinks=isinstance(where, int))
    return None


def write_xattrs(where: Where, wanted: dict[str, str], fresh: bool = False) -> None:
    """Make them exactly these. A file's capability goes last: other changes would drop it."""
    follow = isinstance(where, int)
    present = {} if fresh else read_xattrs(where)
    for name in present.keys() - wanted.keys():
        os.removexattr(where, unquote(name), follow_symlinks=follow)
    for name in sorted(wanted, key=lambda each: (each == CAPABILITY, each)):
        if present.get(name) != wanted[name]:
            os.setxattr(where, unquote(name), binascii.a2b_base64(wanted[name]), follow_symlinks=follow)


PIECE = 1 << 20
MERGEABLE = 16 << 20  # larger files are not merged
_TRIES = 4
_MANY_HOLES = 64
# A file changed this shortly before it was looked at may change again without its times moving (clock ticks).
_YOUNG = 50_000_000
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_QUIETLY = _READ | os.O_NOATIME


def open_regular(dir_fd: int, name: bytes | str) -> int:
    """For reading, leaving even the access time alone where we may; the caller checks what it got."""
    try:
        return os.open(name, _QUIETLY, dir_fd=dir_fd)
    except PermissionError:
        return os.open(name, _READ, dir_fd=dir_fd)


def read_file(
    dir_fd: int,
    name: bytes | str,
    resource: str,
    keep: Blobs | None,
    limit: int = 0,
    owners: bool = True,
    progress: Progress = SILENT,
) -> FileState:
    """The full state of a regular file; its bytes go to `keep`. Raises CannotCapture, with the reason."""
    try:
        fd = open_regular(dir_fd, name)
    except PermissionError:
        raise CannotCapture(resource, "it is not readable", readable=False) from None
    except FileNotFoundError:
        raise CannotCapture(resource, "it vanished while it was read") from None
    try:
        for _ in range(_TRIES):
            state = _read_once(fd, resource, keep, limit, owners, progress)
            if state is not None:
                return state
    finally:
        os.close(fd)
    raise CannotCapture(resource, "it changes while it is being read")


def _read_once(
    fd: int, resource: str, keep: Blobs | None, limit: int, owners: bool, progress: Progress
) -> FileState | None:
    first = os.fstat(fd)
    if not stat.S_ISREG(first.st_mode):
        raise CannotCapture(resource, "it was replaced while it was looked at")
    size = first.st_size
    if limit and size > limit:
        raise CannotCapture(resource, f"its {size:,} bytes are over the limit of {limit:,}")
    if size <= PIECE:
        data = _all(fd, size)
        digest = keep.put(data, like=resource) if keep else hashlib.sha256(data).hexdigest()
        if not keep:  # what goes to the store is counted there
            progress.moved(size)
    else:
        digest = keep.put(read_pieces(fd), like=resource) if keep else _named(fd, progress)
    last = os.fstat(fd)
    if (last.st_size, last.st_mtime_ns, last.st_ctime_ns) != (size, first.st_mtime_ns, first.st_ctime_ns):
        return None
    state: FileState = {"type": "file", "size": size, "digest": digest, **inode_state(last)}
    state["nlink"] = last.st_nlink
    if time.time_ns() - last.st_ctime_ns > _YOUNG:
        state["ctime"] = last.st_ctime_ns
    if not owners:
        state["owner_lost"] = True
    if xattrs := read_xattrs(fd):
        state["xattrs"] = xattrs
    if last.st_blocks * 512 < size and (holes := _holes(fd, size)):
        state["holes"] = (
            holes if len(holes) <= _MANY_HOLES or not keep else keep.put(json.dumps(holes).encode())
        )
    return state


def _all(fd: int, size: int) -> bytes:
    data = os.pread(fd, size + 1, 0)
    while len(data) < size:
        more = os.pread(fd, size + 1 - len(data), len(data))
        if not more:
            break
        data += more
    return data


def _named(fd: int, progress: Progress) -> str:
    naming = Naming()
    for piece in read_pieces(fd):
        naming.add(piece)
        progress.moved(len(piece))
    return naming.digest().hex()


def _holes(fd: int, size: int) -> list[list[int]]:
    """Ranges that hold no data, as [start, length]."""
    found: list[list[int]] = []
    at = 0
    try:
        while at < size:
            start = os.lseek(fd, at, os.SEEK_HOLE)
            if start >= size:
                break
            try:
                at = os.lseek(fd, start, os.SEEK_DATA)
            except OSError:  # ENXIO: nothing but a hole up to the end
                at = size
            found.append([start, at - start])
    except OSError:
        return []  # a filesystem that does not know holes: the bytes are still exact
    return found


def write_content(fd: int, state: FileState, blobs: Blobs) -> None:
    """The recorded bytes into an empty file, holes left as holes."""
    holes = state.get("holes")
    if not holes:
        for piece in blobs.read(state["digest"]):
            write_all(fd, piece)
        return
    ranges: list[list[int]] = json.loads(b"".join(blobs.read(holes))) if isinstance(holes, str) else holes
    os.ftruncate(fd, state["size"])
    at = number = 0
    for piece in blobs.read(state["digest"]):
        stop = at + len(piece)
        while number < len(ranges) and sum(ranges[number]) <= at:
            number += 1
        for first, last in _outside(ranges, number, at, stop):
            os.lseek(fd, first, os.SEEK_SET)
            write_all(fd, piece[first - at : last - at])
        at = stop


def _outside(holes: list[list[int]], number: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The data between two places of a sparse file; `number`: of the first hole that may lie there."""
    while number < len(holes) and start < stop:
        hole, length = holes[number]
        number += 1
        if hole >= stop:
            break
        if hole > start:
            yield start, hole
        start = hole + length
    if start < stop:
        yield start, stop


def write_all(fd: int, data: bytes) -> None:
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


def file_bytes(dir_fd: int, name: bytes, size: int) -> bytes:
    """All of a small file that was just looked at."""
    fd = open_regular(dir_fd, name)
    try:
        return _all(fd, size)
    finally:
        os.close(fd)
