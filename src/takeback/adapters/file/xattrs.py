"""Extended attributes: the user's own, ACLs, file capabilities."""

import binascii
import errno
import os

from takeback.model.resource import quote, unquote

_KEPT = ("user.", "trusted.", "system.posix_acl_", "security.capability")
_OVERLAY = ("user.overlay.", "trusted.overlay.")  # overlayfs's own bookkeeping, not part of a file
CAPABILITY = "security.capability"
_NONE_HERE = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM)


def read_xattrs(fd: int) -> dict[str, str]:
    """Name to base64; names are percent-quoted, because they may be any bytes."""
    try:
        names = os.listxattr(fd)
    except OSError as error:
        if error.errno in _NONE_HERE:
            return {}
        raise
    found: dict[str, str] = {}
    for name in names:
        if _counts(name):
            value = binascii.b2a_base64(os.getxattr(fd, name), newline=False)
            found[quote(os.fsencode(name))] = value.decode("ascii")
    return found


def write_xattrs(fd: int, wanted: dict[str, str], fresh: bool = False) -> None:
    """Make them exactly these. A file's capability goes last: other changes would drop it."""
    present = {} if fresh else read_xattrs(fd)
    for name in present.keys() - wanted.keys():
        os.removexattr(fd, unquote(name))
    for name in sorted(wanted, key=lambda each: (each == CAPABILITY, each)):
        if present.get(name) != wanted[name]:
            os.setxattr(fd, unquote(name), binascii.a2b_base64(wanted[name]))


def _counts(name: str) -> bool:
    return name.startswith(_KEPT) and not name.startswith(_OVERLAY)
