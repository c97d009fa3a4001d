"""Errors of the kernel as errors of takeback."""

import errno
import os
import stat

from takeback.errors import Drifted, Misuse, NoRemedy, ResourceUnreachable, TakebackError
from takeback.model.resource import display, path_of, quote

_GETFLAGS = 0x80086601  # FS_IOC_GETFLAGS
_IMMUTABLE = 0x10
_APPEND_ONLY = 0x20


class CannotCapture(NoRemedy):
    """One thing could not be saved; `resource` and `reason` say which and why."""

    def __init__(self, resource: str, reason: str, *, readable: bool = True) -> None:
        super().__init__(
            f"{display(resource)} cannot be captured: {reason}.",
            hint="Nothing was changed. Allow an inexact way back to go ahead without it.",
            allowable=True,
        )
        self.resource = resource
        self.reason = reason
        self.readable = readable  # False: we lack the right to read it


class Unremovable(OSError):
    """An entry of a directory could not be removed; `path` says which, from there."""

    def __init__(self, error: OSError, path: str) -> None:
        super().__init__(error.errno, error.strerror, path)
        self.path = path


def mounted(resource: str) -> NoRemedy:
    return NoRemedy(
        f"{display(resource)} is a mount point inside what would be changed.",
        hint="Unmount it first; nothing was changed.",
    )


class translated:
    """Around work on one resource: errors of the system come out as ours."""

    __slots__ = ("resource",)

    def __init__(self, resource: str) -> None:
        self.resource = resource

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, OSError):
            raise in_our_words(error, self.resource) from error


def is_full(trouble: BaseException) -> bool:
    """Whether there was no space left, also when that was put in our words."""
    error = trouble if isinstance(trouble, OSError) else trouble.__cause__
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def in_our_words(error: OSError, resource: str) -> TakebackError:
    resource = f"{resource}/{error.path}" if isinstance(error, Unremovable) else resource
    name = display(resource)
    code = error.errno or 0
    if code in (errno.ENOSPC, errno.EDQUOT):
        return _no_room(resource, code)
    if code == errno.EROFS:
        return ResourceUnreachable(
            f"{name} is on a read-only filesystem.", hint="Remount it, or change it elsewhere."
        )
    if code == errno.ELOOP:
        return Drifted(
            f"A directory on the way to {name} is now a symbolic link.",
            hint="Put the directory back; only a new change can follow the link instead.",
        )
    if code == errno.EXDEV:
        return NoRemedy(
            f"{name} is, holds or crosses a mount point, or is a directory in a lower layer of an overlay.",
            hint="Unmount it first. Of a directory that came with a container's image, change the files one by one.",
        )
    if code == errno.EBUSY:
        return ResourceUnreachable(f"{name} is in use as a mount point.", hint="Unmount it first.")
    if code == errno.ENAMETOOLONG:
        return Misuse(f"A name in {name} is longer than the filesystem allows.", hint="Use a shorter name.")
    if code == errno.EPERM:
        return _not_permitted(resource, error)
    if code == errno.EACCES:
        return ResourceUnreachable(
            f"Permission to change {name} was denied.", hint="Check its directory's mode and owner."
        )
    if code == errno.ENOTDIR:
        return Misuse(f"Something on the way to {name} is not a directory.", hint="Check the path.")
    if code == errno.ENOENT:
        return Drifted(
            f"{name}, or a directory on the way to it, vanished.", hint="Look again, then try again."
        )
    if code in (errno.EMFILE, errno.ENFILE):
        return ResourceUnreachable("Too many files are open.", hint="Close some, or raise `ulimit -n`.")
    advice = {
        errno.EOPNOTSUPP: "Its filesystem cannot keep all of it: attributes, an ACL, or a special file."
    }
    hint = advice.get(code, "Check the filesystem, then try again.")
    return ResourceUnreachable(f"{name}: {os.strerror(code)}.", hint=hint)


def _no_room(resource: str, code: int) -> ResourceUnreachable:
    name = display(resource)
    if code == errno.EDQUOT:
        return ResourceUnreachable(
            f"Your disk quota has no room for {name}.", hint="Free some of your space there and try again."
        )
    try:
        now = os.statvfs(os.path.dirname(path_of(resource)) or b"/")
    except OSError:
        return ResourceUnreachable(
            f"The disk of {name} is full.", hint="Free some space there and try again."
        )
    if now.f_files and not now.f_favail:
        return ResourceUnreachable(
            f"The filesystem of {name} has no inodes left.", hint="Remove some files there and try again."
        )
    free = now.f_bavail * now.f_frsize
    return ResourceUnreachable(
        f"The disk of {name} is full: {free:,} bytes are free.", hint="Free some space there and try again."
    )


def _not_permitted(resource: str, error: OSError) -> TakebackError:
    flag = protected(resource)
    name = display(resource)
    told = os.fsencode(error.filename) if isinstance(error.filename, (str, bytes)) else b""
    inside = os.path.basename(told)
    ours = told.startswith(b"/proc/self/fd/") or inside in (b"", b".", os.path.basename(path_of(resource)))
    if not flag and not ours:
        return ResourceUnreachable(
            f"The system does not permit a change of {display(quote(inside))} in {name}.",
            hint="It may belong to another user, or be immutable (`lsattr` shows that; root can run `chattr -i`).",
        )
    if flag:
        return ResourceUnreachable(
            f"{name} cannot be changed: {flag}.",
            hint="As root, `chattr -i -a` on it takes the protection away.",
        )
    return ResourceUnreachable(
        f"The system does not permit a change of {name}.",
        hint="It may belong to someone else, or its directory may be sticky or immutable.",
    )


def protected(resource: str) -> str:
    """Whether it or its directory carries the immutable or append-only flag, as half a sentence."""
    from takeback.adapters.file.paths import open_place

    try:
        with open_place(resource) as place:
            mode = os.stat(place.name, dir_fd=place.fd, follow_symlinks=False).st_mode
            if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                fd = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place.fd)
                try:
                    if word := _flagged(fd):
                        return f"it is marked {word}"
                finally:
                    os.close(fd)
            word = _flagged(place.fd)
            return f"its directory is marked {word}" if word else ""
    except (OSError, TakebackError):
        return ""


def _flagged(fd: int) -> str:
    import fcntl

    flags = int.from_bytes(fcntl.ioctl(fd, _GETFLAGS, bytes(8))[:4], "little")
    return "immutable" if flags & _IMMUTABLE else "append-only" if flags & _APPEND_ONLY else ""
