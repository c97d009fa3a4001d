"""Which directories get an overlay of their own: the machine's mounts, and what can be done with each.

An overlay shows nothing of what is mounted inside its lower directory. So every further filesystem that may be
written needs its own; whatever cannot have one is bound read-only, so that nothing is ever written through.
"""

import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

from takeback.model.descriptor import Descriptor
from takeback.model.mounts import Mounted, inside, meant

OVERLAY, READ_ONLY = "overlay", "read-only"
# An overlay over the names in a directory, each of which is mounted again: for one that cannot be a lower itself.
NAMES = "names"

# Made again for each command.
OWN = (b"/proc", b"/sys", b"/dev")
# Windows into the kernel; there is nothing in them that a layer could keep.
_NO_FILES = frozenset(
    b"proc sysfs devtmpfs devpts mqueue cgroup cgroup2 bpf debugfs tracefs securityfs configfs pstore fusectl "
    b"binfmt_misc efivarfs hugetlbfs autofs rpc_pipefs nsfs selinuxfs".split()
)
MOST = 1000  # names that are mounted one by one
_UNKNOWN = 65534  # what a user namespace shows as the owner of a file whose owner it does not know


class MountPoint(NamedTuple):
    """Where something is mounted inside, seen from the root inside."""

    point: bytes
    how: str
    kind: bytes = b""


def mount_points(text: bytes) -> frozenset[bytes]:
    """Only where: asked for after each command of a box."""
    return frozenset(meant(line.split(b" ", 5)[4]) for line in text.splitlines())


def visible(mounts: Sequence[Mounted]) -> list[Mounted]:
    """Those that a path still leads to, each above those inside it."""
    return sorted((one for one in mounts if _on_top(one)), key=lambda one: one.point)


def _on_top(one: Mounted) -> bool:
    try:
        fd = os.open(one.point, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False  # covered, or not ours to see: then it is not ours to write either
    with Descriptor(fd), open(f"/proc/self/fdinfo/{fd}", "rb") as told:
        return f"mnt_id:\t{one.number}\n".encode() in told.read()


def points_for_root(mounts: list[Mounted], root: bytes) -> list[MountPoint]:
    """One overlay for the root, one for each writable filesystem below it."""
    points = [MountPoint(b"/", OVERLAY)]
    for one in mounts:
        if one.point == root or not inside(one.point, root):
            continue
        point = b"/" + one.point[len(root.rstrip(b"/")) :].lstrip(b"/")
        if any(inside(point, own) for own in OWN):
            continue
        points.append(MountPoint(point, _how(one), one.kind))
    return points


def _how(one: Mounted) -> str:
    # A file cannot have an overlay: a container's /etc/resolv.conf.
    able = one.writable and one.kind not in _NO_FILES and os.path.isdir(one.point)
    return OVERLAY if able else READ_ONLY


def points_for_user(mounts: list[Mounted], root: bytes, near: tuple[bytes, ...]) -> list[MountPoint]:
    """In a user namespace a directory with mounts below it cannot be a lower: go down until there are none.

    Everything lies there read-only; these overlays are laid over it. `near`: where the command is likely to write.
    """
    if root != b"/":
        return [MountPoint(b"/", OVERLAY)]
    busy = [one.point for one in mounts if one.point != b"/"]
    dead = {one.point for one in mounts if not one.writable or one.kind in _NO_FILES}
    found: dict[bytes, str] = {}
    _descend(b"/", busy, dead, found)
    for path in _among_others(near):
        # What is mounted below it stays as it is.
        if path not in found and any(inside(path, point) for point in found):
            if not any(inside(point, path) for point in busy):
                found[path] = OVERLAY
    return [MountPoint(point, found[point]) for point in sorted(found)]


def _descend(directory: bytes, busy: list[bytes], dead: set[bytes], found: dict[bytes, str]) -> None:
    if directory in dead or directory in OWN or not os.access(directory, os.X_OK):
        return
    below = [point for point in busy if point != directory and inside(point, directory)]
    if not below and directory != b"/":
        found[directory] = OVERLAY
        return
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    if directory != b"/" and len(names) <= MOST and os.access(directory, os.W_OK):
        found[directory] = NAMES
    for path in names:
        _descend(path, below, dead, found)


def _among_others(near: tuple[bytes, ...]) -> list[bytes]:
    """The kernel cannot copy up a directory of someone else, as it must before anything is changed in it.

    As the root of an overlay it need not: so one begins at each directory that we may write to although it, or the
    one above it, is not ours.
    """
    found: list[bytes] = []
    for path in (b"/tmp", b"/var/tmp", b"/var/lock", b"/run/lock", *near):
        above = False  # whether the one above is ours; the topmost never is
        for end in [*(at for at, byte in enumerate(path) if byte == 47 and at), len(path)]:
            ours, writable = _whose(path[:end])
            if writable and not (ours and above):
                found.append(path[:end])
            above = ours
    return found


def _whose(path: bytes) -> tuple[bool, bool]:
    """Whether it is our directory, and whether we may make something in it. With another group it is not ours to the
    kernel, which cannot copy it up in a user namespace that knows one group."""
    try:
        status = os.lstat(path)
    except OSError:
        return False, False
    if not stat.S_ISDIR(status.st_mode):
        return False, False
    ours = status.st_gid == os.getegid() and is_ours(path, status)
    return ours, os.access(path, os.W_OK | os.X_OK)


def is_ours(directory: bytes, status: os.stat_result) -> bool:
    """As user 65534 we see the files of everyone else with our own number. Only their owner may open them without
    moving the time of their last read."""
    if status.st_uid != os.geteuid():
        return False
    if status.st_uid != _UNKNOWN:
        return True
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(fd)
    return True
