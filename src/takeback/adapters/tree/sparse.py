"""Holes that a layer does not show: a file that is copied up to be changed gets its smaller holes filled with zeros."""

import json
import os
from collections.abc import Iterable
from contextlib import suppress

from takeback.adapters.file.states import ABSENT, State
from takeback.storage.protocols import Blobs

_BLOCK = 4096  # what a hole is made of, on any filesystem with files of this size
_PIECE = 256 * _BLOCK
_MANY = 64
_ZEROS = bytes(_BLOCK)
_ORIGIN = ("trusted.overlay.origin", "user.overlay.origin")

Ranges = list[list[int]]


def still_sparse(before: State, after: State, source: bytes, blobs: Blobs) -> State:
    """Where the file had a hole, and there is nothing but zeros still, it has one."""
    if before["type"] != "file" or after["type"] != "file" or "holes" not in before or "meta" in after:
        return after
    try:
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return after  # the bytes are exact without them
    try:
        if not _is_copied_up(fd):
            return after  # a file of its own, in which zeros were written
        holes = _ranges(after.get("holes", []), blobs)
        for start, length in _ranges(before["holes"], blobs):
            stop = start + length
            stop += -stop % _BLOCK  # the end of the file was no end of a block
            holes += _filled(fd, start, min(stop, after["size"]))
    finally:
        os.close(fd)
    if not holes:
        return after
    joined = _joined(holes)
    return after | {"holes": joined if len(joined) <= _MANY else blobs.put(json.dumps(joined).encode())}


def by_handle(before: Iterable[tuple[bytes, State]]) -> dict[bytes, State]:
    """Files with holes, by what their filesystem calls them; they are given by their paths in the world."""
    from takeback.sandbox.differences import file_handle

    return {file_handle(path): state for path, state in before}


def moved_sparse(known: dict[bytes, State], source: bytes) -> State:
    """Of these the one that lies at this place of the layer now; absent if it is none."""
    from takeback.sandbox.differences import HANDLE

    for name in _ORIGIN:
        with suppress(OSError):
            return known.get(os.getxattr(source, name, follow_symlinks=False)[HANDLE:] or b"-", ABSENT)
    return ABSENT


def _is_copied_up(fd: int) -> bool:
    """The kernel notes where a file came from; not on every filesystem, and then the bytes alone are exact."""
    for name in _ORIGIN:
        with suppress(OSError):
            os.getxattr(fd, name)
            return True
    return False


def _ranges(holes: "Ranges | str", blobs: Blobs) -> Ranges:
    return json.loads(b"".join(blobs.read(holes))) if isinstance(holes, str) else [*holes]


def _filled(fd: int, start: int, stop: int) -> Ranges:
    """Of a stretch that was a hole: what is data now, and zeros."""
    found: Ranges = []
    at = start
    while at < stop:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
            end = min(os.lseek(fd, at, os.SEEK_HOLE), stop)
        except OSError:
            break  # nothing but a hole up to the end, or a filesystem that does not know holes
        at += -at % _BLOCK
        while at < end:
            piece = os.pread(fd, min(_PIECE, end - at), at)
            if not piece:
                return found
            for offset in range(0, len(piece), _BLOCK):
                block = piece[offset : offset + _BLOCK]
                if block == _ZEROS[: len(block)]:
                    found.append([at + offset, len(block)])
            at += len(piece)
    return found


def _joined(holes: Ranges) -> Ranges:
    found: Ranges = []
    for start, length in sorted(holes):
        if found and found[-1][0] + found[-1][1] == start:
            found[-1][1] += length
        else:
            found.append([start, length])
    return found
