"""Files that are written without a system call, mapped into memory: no feed tells of it, and after the first write to a
page no time moves. Those of this process and of all that it started and that live are read again at each look."""

import os

from takeback.model.resource import quote

_WRITTEN = (b" rw-s ", b" rwxs ")  # shared with the file, and writable
_DELETED = b" (deleted)"


def mapped_below(root: bytes) -> dict[str, set[bytes]]:
    """By quoted path of a directory from the root: names in it."""
    inside = root.rstrip(b"/") + b"/"
    found: dict[str, set[bytes]] = {}
    for pid in _family():
        maps = _read(f"/proc/{pid}/maps")
        if not any(mark in maps for mark in _WRITTEN):
            continue
        for line in maps.splitlines():
            _, slash, path = line.partition(b" /")
            path = slash[1:] + path
            if path.startswith(inside) and not path.endswith(_DELETED) and any(m in line for m in _WRITTEN):
                above, _, name = path[len(inside) :].replace(b"\\012", b"\n").rpartition(b"/")
                found.setdefault(quote(above), set()).add(name)
    return found


def _family() -> list[int]:
    """This process and its living descendants."""
    found = [os.getpid()]
    for pid in found:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue  # it ended
        for thread in threads:
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return found


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""  # it ended, or is someone else's by now
