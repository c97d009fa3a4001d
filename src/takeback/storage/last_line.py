"""A file whose last whole line is what holds: one write and one sync to replace it, where a renamed file needs three.

A line that was cut off by a kill or a full disk is as if it had never been written.
"""

import json
import os
from typing import Any

from takeback.storage import disk

_LONG = 1 << 16  # bytes; then the file starts anew with its last line


def read_last(path: str) -> dict[str, Any]:
    """FileNotFoundError if there is none, ValueError if no line of it is whole."""
    with open(path, "rb") as file:
        data = file.read()
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
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    except disk.ResourceUnreachable as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        disk.write_file(path, line)
        return
    try:
        size = os.fstat(handle).st_size
        if size <= _LONG:
            torn = size and os.pread(handle, 1, size - 1) != b"\n"
            disk.write_fully(handle, b"\n" + line if torn else line, path)
            with disk.reachable(path, "synced"):
                os.fdatasync(handle)
            return
    finally:
        os.close(handle)
    disk.write_file(path, line)
