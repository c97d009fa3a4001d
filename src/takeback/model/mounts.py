"""The table of mounts as plain data, and what lies over a store while a sandboxed command runs."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

COVER = "takeback-cover"  # as /proc/self/mountinfo tells it inside
SANDBOX_TRIAL = ".takeback-try"  # in a store, while it is tried whether there can be a sandbox
SANDBOX_NOTE = "sandbox.json"  # in a store: what such a trial showed


MOUNT_TABLE = "/proc/self/mountinfo"


class Mounted(NamedTuple):
    number: int
    point: bytes
    writable: bool
    kind: bytes
    parent: int = 0
    device: bytes = b""
    root: bytes = b"/"  # the directory of the filesystem that appears at `point`


def mount_table() -> bytes:
    with open(MOUNT_TABLE, "rb", buffering=0) as file:
        return file.read()


@lru_cache(maxsize=4)  # it seldom changes, and is asked for several times in each change
def mounted(text: bytes) -> tuple[Mounted, ...]:
    found: list[Mounted] = []
    for line in text.splitlines():
        head, _, tail = line.partition(b" - ")
        fields, kinds = head.split(b" "), tail.split(b" ")
        writable = b"rw" in fields[5].split(b",") and b"rw" in kinds[2].split(b",")
        number, parent, device, root, point = fields[:5]
        names = meant(point), meant(root)
        found.append(Mounted(int(number), names[0], writable, kinds[0], int(parent), device, names[1]))
    return tuple(found)


def meant(point: bytes) -> bytes:
    """Blanks and the like are written as three octal digits."""
    return point.decode("unicode_escape").encode("latin-1") if b"\\" in point else point


def inside(path: bytes, directory: bytes) -> bool:
    return path == directory or path.startswith(directory.rstrip(b"/") + b"/")


def mount_of(mounts: Sequence[Mounted], path: bytes) -> Mounted | None:
    """The mount that a path without symbolic links leads to; None where the table does not say."""
    numbers = {one.number for one in mounts}
    below_each = path + b"/"
    candidates = [one for one in mounts if below_each.startswith(one.point.rstrip(b"/") + b"/")]
    current = next((one for one in candidates if one.point == b"/" and one.parent not in numbers), None)
    while current is not None:
        number = current.number
        below = [one for one in candidates if one.parent == number and one.number != number]
        if not below:
            break
        # The first one on the way decides: further mounts of the same parent lie under it.
        current = min(below, key=lambda one: len(one.point))
    return current


def own_path(mount: Mounted, path: bytes) -> bytes:
    """The path as the filesystem itself knows it, whatever it is mounted as."""
    return _joined(mount.root, path[len(mount.point.rstrip(b"/")) :])


def _joined(directory: bytes, rest: bytes) -> bytes:
    rest = rest.strip(b"/")
    return (directory.rstrip(b"/") + b"/" + rest) if rest else directory


def other_names(mounts: Sequence[Mounted], path: bytes) -> tuple[bytes, ...]:
    """Other paths that lead to this directory or to a part of it: bind mounts, a filesystem mounted twice."""
    mine = mount_of(mounts, path)
    if mine is None:
        return ()
    here = own_path(mine, path)
    found: list[bytes] = []
    for one in mounts:
        if one.device != mine.device:
            continue
        if inside(here, one.root):
            name = _joined(one.point, here[len(one.root.rstrip(b"/")) :])
        elif inside(one.root, here):
            name = one.point
        else:
            continue
        # One that another mount hides leads elsewhere.
        if not inside(name, path) and name not in found and mount_of(mounts, name) == one:
            found.append(name)
    return tuple(found)
