"""What a layer cannot do though the world can, so that a way back is not blamed for it."""

import errno
import os
import stat
from collections.abc import Iterable

from takeback.engine.rehearse import judged
from takeback.errors import TakebackError
from takeback.model.mounts import inside
from takeback.model.rehearsal import Viability

# Errors that come from the layer, or from a disk without room, and tell nothing about the way back.
_OF_THE_LAYER = {
    errno.EXDEV: "a layer cannot rename a directory that lies below it, or link across two filesystems",
    errno.EROFS: "its filesystem cannot have a layer",
    errno.EOVERFLOW: "a layer cannot change what belongs to another user",
    errno.ENOSPC: "the disk has no room for the layer",
    errno.EDQUOT: "the quota of the disk leaves no room for the layer",
}


def judged_in_layer(error: BaseException) -> tuple[Viability, str]:
    """What an error says of the way back, and why."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _OF_THE_LAYER:
            return Viability.CANNOT, _OF_THE_LAYER[cause.errno]
        cause = cause.__cause__
    if isinstance(error, TakebackError):
        return judged(error)
    return Viability.FAILS, f"{type(error).__name__}: {error}"


# A layer of an ordinary user cannot rename a directory that lies below it: so those that an undo may rename are made
# once more in the layer, with all that is in them, before it begins.


_MOST = 1 << 30  # bytes that are copied for a rehearsal


def rebuilt(paths: Iterable[bytes]) -> None:
    """Those of the paths that are directories, each equal to what it was. Nothing is done in a layer of root, which can
    rename them."""
    if os.geteuid() == 0:
        return
    found = sorted(path for path in paths if os.path.isdir(path) and not os.path.islink(path))
    for path in found:
        if any(inside(path, other) and path != other for other in found) or _renames(path):
            continue
        if sum(_sizes(path)) <= _MOST:
            _rebuild(path)


def _renames(path: bytes) -> bool:
    """Whether it lies in the layer alone, so that it can be renamed."""
    aside = path + b".takeback-rehearsal"
    status = os.lstat(os.path.dirname(path))
    try:
        os.rename(path, aside)
    except OSError:
        return False
    os.rename(aside, path)
    _set_times(os.path.dirname(path), status)
    return True


def _sizes(path: bytes) -> Iterable[int]:
    for directory, _, files in os.walk(path):
        yield from (os.lstat(os.path.join(directory, name)).st_size for name in files)


def _rebuild(path: bytes) -> None:
    import shutil

    above = os.path.dirname(path)
    status = os.lstat(above)
    copy = path + b".takeback-rehearsal"
    names: dict[tuple[int, int], str] = {}

    def copied(source: str, target: str) -> str:
        """Names of one file stay so."""
        inode = os.lstat(source)
        first = names.setdefault((inode.st_dev, inode.st_ino), target)
        if first != target and not stat.S_ISLNK(inode.st_mode):
            os.link(first, target)
            return target
        return str(shutil.copy2(source, target, follow_symlinks=False))

    try:
        shutil.copytree(os.fsdecode(path), os.fsdecode(copy), symlinks=True, copy_function=copied)
    except OSError:  # something that cannot be copied; the undo may do without
        shutil.rmtree(copy, ignore_errors=True)
        _set_times(above, status)
        return
    shutil.rmtree(path)
    os.rename(copy, path)
    _set_times(above, status)


def _set_times(path: bytes, status: os.stat_result) -> None:
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
