"""When a layer is on the disk: at once what is small, by the whole filesystem what is not."""

import errno
import os
import stat
from collections.abc import Callable

from takeback.storage import disk

# Up to here one by one is quicker than all that anybody has written on the filesystem.
_FILES, _BYTES = 48, 1 << 20


def sync_if_small(layer: str, tell: Callable[[], tuple[int, str]]) -> bool:
    """Everything in it is durable then; False: it is too much for that, or closed to us, and nothing may be. `tell`
    writes what else has to be on the disk with it: a file that is open, and its path."""
    held: list[tuple[int, str]] = []
    try:
        found = _small(layer)
        if found is None:
            return False
        for path in found:
            held.append((os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), path))
        held.append(tell())
        # All are on their way before the first is waited for: then the filesystem's journal is written once for them.
        for handle, _ in held:
            _start_writing(handle)
        for handle, path in held:
            disk.sync_file(handle, path)
        return True
    except PermissionError:
        return False
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return False  # deeper than a path can name
    finally:
        for handle, _ in held:
            os.close(handle)


def _start_writing(handle: int) -> None:
    """For pages that are not on the disk yet this advice means just that; a directory knows none."""
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError:
        return


def _small(layer: str) -> list[str] | None:
    """Its files, then its directories, innermost first; all else is in its directory."""
    files: list[str] = []
    directories = [layer]
    count = size = 0
    for directory in directories:
        with os.scandir(directory) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                count, size = count + 1, size + status.st_size
                if count > _FILES or size > _BYTES:
                    return None
                if stat.S_ISDIR(status.st_mode):
                    directories.append(entry.path)
                elif stat.S_ISREG(status.st_mode):
                    files.append(entry.path)
    return [*files, *reversed(directories)]


def sync_filesystem(path: str) -> None:
    import ctypes

    with disk.reachable(path, "synced"):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if ctypes.CDLL(None, use_errno=True).syncfs(handle) < 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), path)
        finally:
            os.close(handle)
