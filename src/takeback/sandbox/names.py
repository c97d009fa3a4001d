"""A directory that cannot be below an overlay because something is mounted in it, and its owner is not root.

The overlay is laid over a directory with the same names, and on each name what is there is mounted again: read-only,
unless it gets an overlay of its own. So new things can be made in it, as in a /tmp where another has mounted something.
"""

import os
import stat

from takeback.sandbox.calls import ATTR_RDONLY, MNT_DETACH, MS_BIND, MS_REC, kernel
from takeback.sandbox.mounts import MOST
from takeback.sandbox.overlay import Overlay, mount_overlay


def put_names(at: bytes, overlay: Overlay, aside: bytes, overlaid: set[bytes]) -> None:
    """`at`: the new root. Afterwards everything is there, or nothing was done."""
    names = _opened(overlay.point)
    target = at + overlay.point
    try:
        below = _mirrored(overlay, aside, names)
        shown = overlay._replace(lowers=(*overlay.lowers[:-1], below), names=False)
        mount_overlay(shown, target, aside, userxattr=True)
        try:
            for name, fd in names.items():
                if overlay.point + b"/" + name not in overlaid:
                    _mount_again(fd, target + b"/" + name)
        except OSError:
            kernel().umount(target, MNT_DETACH)
            raise
    finally:
        for fd in names.values():
            os.close(fd)


def _opened(directory: bytes) -> dict[bytes, int]:
    """Held, because in a directory like /tmp they come and go."""
    found: dict[bytes, int] = {}
    try:
        for name in os.listdir(directory):
            if len(found) > MOST:
                raise OSError(f"more than {MOST} names")
            try:
                found[name] = os.open(directory + b"/" + name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
    except OSError:
        for fd in found.values():
            os.close(fd)
        raise
    return found


def _mirrored(overlay: Overlay, aside: bytes, names: dict[bytes, int]) -> bytes:
    made = b"%s/names-%s" % (aside, os.path.basename(overlay.upper))
    os.mkdir(made, 0o700)
    for name, fd in names.items():
        kind = os.fstat(fd).st_mode
        if stat.S_ISLNK(kind):
            os.symlink(os.readlink(b"", dir_fd=fd), made + b"/" + name)
        elif stat.S_ISDIR(kind):
            os.mkdir(made + b"/" + name, 0o755)
        else:
            os.close(os.open(made + b"/" + name, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    return made


def _mount_again(fd: int, target: bytes) -> None:
    try:
        status = os.lstat(target)
    except FileNotFoundError:
        return  # an earlier layer removed it
    if stat.S_ISLNK(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode) is not stat.S_ISDIR(os.fstat(fd).st_mode):
        return  # an earlier layer put something else there
    kernel().mount(b"/proc/self/fd/%d" % fd, target, b"", MS_BIND | MS_REC)
    kernel().set_attributes(target, ATTR_RDONLY, recursive=True)
