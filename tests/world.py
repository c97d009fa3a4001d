"""A directory to change, and an exact picture of it: what undo must bring back."""

import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

Picture = dict[bytes, dict[str, Any]]


class World(NamedTuple):
    root: Path

    def __truediv__(self, name: str | bytes) -> Path:
        return self.root / os.fsdecode(name)

    def picture(self, *, directory_times: bool = False) -> Picture:
        """Everything below the root that takeback promises to bring back, by path; compare two with `==`.

        A directory's mtime moves when a name in it comes or goes, so it is left out unless asked for.
        """
        seen = picture(os.fsencode(self.root))
        if not directory_times:
            for properties in seen.values():
                if properties["mode"].startswith("d"):
                    del properties["mtime"]
        return seen


def picture(root: bytes) -> Picture:
    seen: Picture = {}
    first_names: dict[tuple[int, int], bytes] = {}
    # By directory handle, because paths may be longer than any call takes.
    for directory, subdirectories, files, handle in os.fwalk(root, follow_symlinks=False):
        subdirectories.sort()
        inside = os.path.relpath(directory, root)
        if inside == b".":
            seen[b"."] = _properties(b".", handle)
        for name in sorted(subdirectories + files):
            path = os.path.normpath(os.path.join(inside, name))
            seen[path] = _properties(name, handle)
            status = os.stat(name, dir_fd=handle, follow_symlinks=False)
            if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                seen[path]["same as"] = first_names.setdefault((status.st_dev, status.st_ino), path)
    return seen


def _properties(name: bytes, directory: int) -> dict[str, Any]:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    found: dict[str, Any] = {
        "mode": stat.filemode(status.st_mode),
        "owner": (status.st_uid, status.st_gid),
        "mtime": status.st_mtime_ns,
    }
    if stat.S_ISLNK(status.st_mode):
        return found | {"to": os.readlink(name, dir_fd=directory)}
    if stat.S_ISBLK(status.st_mode) or stat.S_ISCHR(status.st_mode):
        return found | {"device": status.st_rdev}
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return found
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    try:
        attributes = sorted(os.listxattr(handle))
        found["attributes"] = {attribute: os.getxattr(handle, attribute) for attribute in attributes}
        if stat.S_ISREG(status.st_mode):
            found["size"] = status.st_size
            with open(handle, "rb", closefd=False) as content:
                found["content"] = hashlib.file_digest(content, "sha256").hexdigest()
            found["parts with data"] = _parts_with_data(handle, status.st_size)
    finally:
        os.close(handle)
    return found


def _parts_with_data(handle: int, size: int) -> int:
    """How many stretches of data lie between holes; 0 for a file that is one hole, 1 for one without."""
    count = position = 0
    while position < size:
        try:
            start = os.lseek(handle, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # that one means: nothing but a hole from here on
                raise
            break
        position = os.lseek(handle, start, os.SEEK_HOLE)
        count += 1
    return count
