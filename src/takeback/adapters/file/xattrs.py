"""Extended attributes: the user's own, ACLs, file capabilities, and what only root sees."""

import binascii
import errno
import os

from takeback.model.resource import quote, unquote

_KEPT = ("user.", "trusted.", "system.posix_acl_", "security.capability")
OVERLAY = ("user.overlay.", "trusted.overlay.")  # overlayfs's own bookkeeping, not part of a file
CAPABILITY = "security.capability"
_NONE_HERE = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM)


# An open file or directory; or, for what must not be opened or cannot be (a FIFO, a link), its path by `at`.
Where = int | bytes


def at(dir_fd: int, name: bytes) -> bytes:
    """A path of any length to a name in an open directory; the name itself is not followed."""
    return b"/proc/self/fd/%d/%b" % (dir_fd, name)


def read_xattrs(where: Where) -> dict[str, str]:
    """Name to base64; names are percent-quoted, because they may be any bytes."""
    follow = isinstance(where, int)
    try:
        names = os.listxattr(where, follow_symlinks=follow)
    except OSError as error:
        if error.errno in _NONE_HERE:
            return {}
        raise
    found: dict[str, str] = {}
    for name in names:
        if _counts(name):
            value = binascii.b2a_base64(os.getxattr(where, name, follow_symlinks=follow), newline=False)
            found[quote(os.fsencode(name))] = value.decode("ascii")
    return found


def write_xattrs(where: Where, wanted: dict[str, str], fresh: bool = False) -> None:
    """Make them exactly these. A file's capability goes last: other changes would drop it."""
    follow = isinstance(where, int)
    present = {} if fresh else read_xattrs(where)
    for name in present.keys() - wanted.keys():
        os.removexattr(where, unquote(name), follow_symlinks=follow)
    for name in sorted(wanted, key=lambda each: (each == CAPABILITY, each)):
        if present.get(name) != wanted[name]:
            os.setxattr(where, unquote(name), binascii.a2b_base64(wanted[name]), follow_symlinks=follow)


def _counts(name: str) -> bool:
    return name.startswith(_KEPT) and not name.startswith(OVERLAY)
