"""Give an inode that stays the properties it is to have: owner, attributes, mode, time."""

import os
import stat

from takeback.adapters.file.build import chmod_inode, dress
from takeback.adapters.file.paths import Place
from takeback.adapters.file.states import State
from takeback.adapters.file.xattrs import at, write_xattrs
from takeback.adapters.tree.states import OPEN


def adjust(place: Place, start: State, goal: State, stay_open: bool = False) -> None:
    """`stay_open`: a directory in which there is still work to do keeps what its owner needs for that."""
    status = os.stat(place.name, dir_fd=place.fd, follow_symlinks=False)
    mode = goal["mode"] | OPEN if stay_open else goal["mode"]
    if "meta" in goal:
        chmod_inode(place.fd, place.name, mode)
        return
    mtime = (
        goal["mtime"] if status.st_mtime_ns == start["mtime"] or goal["type"] == "dir" else status.st_mtime_ns
    )
    wanted = goal | {"mode": mode, "mtime": mtime}
    if goal["type"] in ("file", "dir"):
        fd = _opened(place)
        if fd >= 0:
            try:
                dress(fd, wanted)
            finally:
                os.close(fd)
            return
    _dress_unopened(place, status, wanted)


def _opened(place: Place) -> int:
    """-1 where it may not be read; then its owner can still change what it carries."""
    try:
        return os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place.fd)
    except PermissionError:
        return -1


def _dress_unopened(place: Place, status: os.stat_result, state: State) -> None:
    if not state.get("owner_lost") and (status.st_uid, status.st_gid) != (state["uid"], state["gid"]):
        os.chown(place.name, state["uid"], state["gid"], dir_fd=place.fd, follow_symlinks=False)
    write_xattrs(at(place.fd, place.name), state.get("xattrs", {}))
    now = os.stat(place.name, dir_fd=place.fd, follow_symlinks=False)
    if stat.S_IMODE(now.st_mode) != state["mode"]:
        chmod_inode(place.fd, place.name, state["mode"])
    if now.st_mtime_ns != state["mtime"]:
        os.utime(place.name, ns=(now.st_atime_ns, state["mtime"]), dir_fd=place.fd, follow_symlinks=False)
