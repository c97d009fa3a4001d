"""A layer of an ordinary user cannot rename a directory that lies below it: so those that an undo may rename are made
anew in the layer, with all that is in them, before it begins."""

import os
import stat
from collections.abc import Iterable

from takeback.model.mounts import inside

_MOST = 1 << 30  # bytes that are copied for a rehearsal


def made_anew(paths: Iterable[bytes]) -> None:
    """Those of the paths that are directories, each equal to what it was. Nothing is done in a layer of root, which can
    rename them."""
    if os.geteuid() == 0:
        return
    found = sorted(path for path in paths if os.path.isdir(path) and not os.path.islink(path))
    for path in found:
        if any(inside(path, other) and path != other for other in found) or _renames(path):
            continue
        if sum(_sizes(path)) <= _MOST:
            _make_anew(path)


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


def _make_anew(path: bytes) -> None:
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
