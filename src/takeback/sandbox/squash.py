"""Several layers become one that shows the same, by hard links: no content is read or copied.

The layers themselves stay as they are. The one made of them stands for all of them in a stack, over anything that may
lie below.
"""

import errno
import os
import stat
from collections.abc import Sequence

from takeback.sandbox.layer import Form, Mount, prefix_of, read_form, write_form
from takeback.sandbox.merged import Entry, walk

# What overlay wrote for the layer as it was. `protattr` (immutable, append only) is the user's own and stays.
_OF_THE_LAYER = ("opaque", "redirect", "origin", "impure", "nlink", "upper", "uuid", "metacopy", "xattr")


def squash(layers: Sequence[str], into: str) -> None:
    """The topmost layer first. `into` is a directory that does not exist yet; what cannot be squashed raises OSError,
    and then the caller removes what was begun."""
    forms = [read_form(layer) for layer in layers]
    if len({form.userxattr for form in forms}) > 1:
        raise OSError(errno.EXDEV, "layers of different kinds cannot be squashed")
    uppers: dict[str, list[bytes]] = {}
    oldest: dict[str, Mount] = {}
    for layer, form in zip(layers, forms, strict=True):
        for mount in form.mounts:
            uppers.setdefault(mount.point, []).append(os.fsencode(os.path.join(layer, mount.upper)))
            oldest[mount.point] = mount
    os.mkdir(into, 0o700)
    mounts: list[Mount] = []
    for number, point in enumerate(sorted(uppers)):
        _squash_uppers(
            uppers[point], os.fsencode(os.path.join(into, str(number))), prefix_of(forms[0].userxattr)
        )
        mounts.append(oldest[point]._replace(upper=str(number)))
    started = min(form.started_ns for form in forms)
    write_form(
        into,
        Form(tuple(mounts), forms[0].userxattr, any(form.redirect for form in forms), started, forms[-1].way),
    )


def _squash_uppers(uppers: Sequence[bytes], target: bytes, prefix: str) -> None:
    goes_on: dict[bytes, bytes | None] = {}  # by directory: where it goes on below
    made: list[tuple[Entry, bytes]] = []
    for entry in walk(uppers, prefix):
        path = os.path.join(target, entry.path) if entry.path else target
        if entry.is_directory:
            os.mkdir(path, 0o700)
            made.append((entry, path))
            goes_on[entry.path] = entry.below
            if entry.path:
                _mark(path, entry, goes_on[os.path.dirname(entry.path)], prefix)
        elif entry.hides or not entry.is_gone:
            _link(entry, path)
    # Last, and innermost first: filling a directory moves its times, and one without rights could not be filled.
    for entry, path in reversed(made):
        _dress(entry, path, prefix)


def _mark(path: bytes, entry: Entry, around: bytes | None, prefix: str) -> None:
    """Where it goes on below, unless that is where it would be looked for anyway."""
    if entry.below is None:
        if around is not None:
            os.setxattr(path, f"{prefix}opaque", b"y")
    elif around is None or entry.below != os.path.join(around, os.path.basename(entry.path)):
        os.setxattr(path, f"{prefix}redirect", entry.below)


def _link(entry: Entry, path: bytes) -> None:
    try:
        os.link(entry.source, path, follow_symlinks=False)
    except OSError as error:
        if error.errno != errno.EMLINK or not entry.is_gone:
            raise
        os.mknod(path, stat.S_IFCHR, 0)


def _dress(entry: Entry, path: bytes, prefix: str) -> None:
    """Owner, attributes, mode and times of the topmost directory of that name."""
    status = entry.status
    if entry.below is not None:
        _keep_origin(entry, path, prefix)
    for name in os.listxattr(entry.source, follow_symlinks=False):
        if name.startswith(prefix) and name[len(prefix) :] in _OF_THE_LAYER:
            continue
        os.setxattr(path, name, os.getxattr(entry.source, name, follow_symlinks=False))
    if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(path, status.st_uid, status.st_gid)
    os.chmod(path, stat.S_IMODE(status.st_mode))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _keep_origin(entry: Entry, path: bytes, prefix: str) -> None:
    """That there was such a directory below the lowest layer: a new one has no such note."""
    name = f"{prefix}origin"
    try:
        os.setxattr(path, name, os.getxattr(entry.bottom, name))
    except OSError:
        return
