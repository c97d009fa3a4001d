"""Mounting one overlay, and making ready the directories it writes to."""

import os
import resource
from typing import NamedTuple

from takeback.sandbox.calls import MS_NODEV, kernel
from takeback.sandbox.layer import attributes


class Overlay(NamedTuple):
    point: bytes  # seen from the root inside
    lowers: tuple[bytes, ...]  # newest first; the last is the world's
    upper: bytes
    work: bytes


def options(userxattr: bool) -> bytes:
    """`volatile`: nothing of a layer counts before it is finished, so nobody waits for the disk.

    With redirects a directory can be renamed without copying it; the index keeps hard links together.
    """
    # In a user namespace the kernel allows no redirects: rename(2) of a directory below says EXDEV, and mv copies.
    return b"userxattr,volatile" if userxattr else b"redirect_dir=on,index=on,metacopy=off,volatile"


def make_directories(overlay: Overlay, lower_status: os.stat_result, userxattr: bool) -> os.stat_result:
    """The topmost directory of an overlay is that of its upper: it must look like the one below."""
    os.makedirs(overlay.upper, 0o700)
    os.makedirs(overlay.work, 0o700)
    below = overlay.lowers[0]
    for name, value in attributes(below, userxattr).items():
        try:
            os.setxattr(overlay.upper, name, value)
        except OSError:
            continue  # an ordinary user may not copy every attribute
    mode = lower_status.st_mode & 0o7777
    if not userxattr:
        os.chown(overlay.upper, lower_status.st_uid, lower_status.st_gid)
    elif lower_status.st_uid != os.geteuid():
        # It becomes ours, so what others granted us has to be in the owner's place.
        rights = sum(bit for bit in (os.R_OK, os.W_OK, os.X_OK) if os.access(below, bit))
        mode = mode & 0o7077 | rights << 6
    os.chmod(overlay.upper, mode)
    os.utime(overlay.upper, ns=(lower_status.st_atime_ns, lower_status.st_mtime_ns))
    return os.lstat(overlay.upper)


def allow_many_files() -> tuple[int, int]:
    """Each layer is a descriptor while it is mounted; the command gets the old limit back."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    hard = before[1]
    if hard == resource.RLIM_INFINITY or hard > 4096:
        hard = 4096
    if before[0] < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, before[1]))
    return before


def mount_overlay(overlay: Overlay, target: bytes, userxattr: bool) -> None:
    """Descriptors instead of paths: no escaping of colons, and 450 layers fit into the one page of options."""
    held: list[int] = []
    try:
        for path in (*overlay.lowers, overlay.upper, overlay.work):
            held.append(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        *lowers, upper, work = held
        told = b"lowerdir=%s,upperdir=%d,workdir=%d," % (b":".join(b"%d" % fd for fd in lowers), upper, work)
        os.chdir("/proc/self/fd")
        try:
            kernel().mount(b"takeback", target, b"overlay", MS_NODEV, told + options(userxattr))
        except OSError:
            if userxattr:
                raise
            # Some filesystems cannot say where a file came from: then hard links below come apart.
            plain = told + options(userxattr).replace(b"index=on", b"index=off")
            kernel().mount(b"takeback", target, b"overlay", MS_NODEV, plain)
    finally:
        for fd in held:
            os.close(fd)
