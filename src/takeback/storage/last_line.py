"""A file whose last whole line is what holds: one write and one sync to replace it, where a renamed file needs three.

The file has its full length from the start, and lines are written over the zeros after the last one. So the sync writes
this one page: where a file grows, a filesystem with a journal may have to write first what others have written to it.
A line that was cut off by a kill or a full disk is as if it had never been written.
"""

import json
import os
from typing import Any

from takeback.storage import disk

_LENGTH = 1 << 15  # bytes; when it is full it starts anew with its last line


def read_last(path: str) -> dict[str, Any]:
    """FileNotFoundError if there is none, ValueError if no line of it is whole."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = disk.read_exactly(handle, os.fstat(handle).st_size, 0)
    finally:
        os.close(handle)
    end = data.rfind(b"\n")  # what comes after it was cut off
    while end >= 0:
        start = data.rfind(b"\n", 0, end)
        try:
            told = json.loads(data[start + 1 : end])
            if isinstance(told, dict):
                return told  # pyright: ignore[reportUnknownVariableType]
        except ValueError:
            pass
        end = start
    raise ValueError("no line of it is whole")


def write_last(path: str, told: dict[str, Any]) -> None:
    """Durable when this returns. One writer at a time."""
    line = json.dumps(told, separators=(",", ":")).encode() + b"\n"
    try:
        with disk.reachable(path, "written"):
            handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except disk.ResourceUnreachable as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        disk.write_file(path, _padded(line))
        return
    try:
        with disk.reachable(path, "read"):
            data = disk.read_exactly(handle, os.fstat(handle).st_size, 0)
        used = len(data.rstrip(b"\0"))
        if used and data[used - 1 : used] != b"\n":
            line = b"\n" + line
        if used + len(line) <= len(data):
            with disk.reachable(path, "written"):
                os.lseek(handle, used, os.SEEK_SET)
            disk.write_fully(handle, line, path)
            with disk.reachable(path, "synced"):
                os.fdatasync(handle)
            return
    finally:
        os.close(handle)
    disk.write_file(path, _padded(line.lstrip(b"\n")))


def _padded(line: bytes) -> bytes:
    return line.ljust(_LENGTH, b"\0")
