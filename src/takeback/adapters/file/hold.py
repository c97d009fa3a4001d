"""Files with several names: the inode itself is kept in a directory of ours, so that undo makes the group whole."""

import os

from takeback.adapters.file.build import Tools
from takeback.adapters.file.content import read_file
from takeback.adapters.file.paths import Place
from takeback.adapters.file.states import State, same
from takeback.adapters.file.trouble import CannotCapture

NOT_HELD = "other names of {name} stay with the old file; undo makes a separate one"


def open_held(tools: Tools) -> int:
    """A handle on the directory of held inodes; -1 if there is none."""
    if not tools.held:
        return -1
    try:
        return os.open(tools.held, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return -1


def can_hold(tools: Tools, place: Place) -> bool:
    """Whether an inode from there can be moved here: the same mount of the same filesystem."""
    fd = open_held(tools)
    if fd < 0:
        return False
    try:
        return _mount_of(fd) == _mount_of(place.fd) != b""
    finally:
        os.close(fd)


def _mount_of(fd: int) -> bytes:
    try:
        with open(f"/proc/self/fdinfo/{fd}", "rb") as lines:
            return (
                next((line for line in lines if line.startswith(b"mnt_id:")), b"")
                + b"%d" % os.fstat(fd).st_dev
            )
    except OSError:
        return b""


def hold(tools: Tools, name: str, place: Place) -> bool:
    """Take the inode at the place away into our directory, in one step. False if it could not be moved."""
    fd = open_held(tools)
    if fd < 0:
        return False
    try:
        os.rename(place.name, name, src_dir_fd=place.fd, dst_dir_fd=fd)
        # Renaming one name of an inode over another of its names does nothing at all: then ours is still there.
        if place.stat() is not None:
            os.unlink(place.name, dir_fd=place.fd)
        os.fsync(fd)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def link_held(tools: Tools, name: str, place: Place, wanted: State) -> bool:
    """Give the held inode the place's name again, if it still is what was captured."""
    fd = open_held(tools)
    if fd < 0:
        return False
    try:
        state = read_file(fd, name, place.resource, None)
        if not same(state, wanted):
            return False
        os.link(name, place.name, src_dir_fd=fd, dst_dir_fd=place.fd, follow_symlinks=False)
        return True
    except FileExistsError:
        raise
    except (OSError, CannotCapture):
        return False
    finally:
        os.close(fd)


def held_names(tools: Tools, prefix: str) -> list[str]:
    fd = open_held(tools)
    if fd < 0:
        return []
    try:
        return [name for name in os.listdir(fd) if name.startswith(prefix)]
    finally:
        os.close(fd)


def release_held(tools: Tools, prefix: str, only_if: tuple[int, int] | None = None) -> None:
    """Let go of an effect's inodes; with `only_if` (device, inode) just of that one."""
    fd = open_held(tools)
    if fd < 0:
        return
    try:
        for name in os.listdir(fd):
            if not name.startswith(prefix):
                continue
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if only_if is None or only_if == (status.st_dev, status.st_ino):
                os.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)
