"""The bytes of a regular file: read so that a half-changed file is never taken for a whole one, and written back."""

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator

from takeback.adapters.file.states import State
from takeback.adapters.file.trouble import CannotCapture
from takeback.adapters.file.xattrs import read_xattrs
from takeback.model.naming import Naming, read_pieces
from takeback.model.progress import SILENT, Progress
from takeback.storage.protocols import Blobs

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
) -> State:
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
) -> State | None:
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
    state: State = {
        "type": "file",
        "size": size,
        "digest": digest,
        "mode": stat.S_IMODE(last.st_mode),
        "uid": last.st_uid,
        "gid": last.st_gid,
        "mtime": last.st_mtime_ns,
        "dev": last.st_dev,
        "ino": last.st_ino,
        "nlink": last.st_nlink,
    }
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


def write_content(fd: int, state: State, blobs: Blobs) -> None:
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
    """What is no hole between two places; the hole with this number is the first that may be there."""
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
