"""The only file of the store that makes, syncs, renames and removes files; all of them private to us.

An error from the disk becomes `ResourceUnreachable`. A failed fsync is never tried again: the kernel has
dropped the pages and would answer yes without having written them.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress

from takeback.errors import Refused, ResourceUnreachable, StoreFull
from takeback.model.descriptor import Descriptor
from takeback.model.settings import bytes_in_words

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
SCARCE = 128 << 10
SPARE = "spare"
SPARE_FILES = 4  # SQLite makes two files beside a database: a disk may be out of inodes
SPARE_BYTES = 256 << 10  # of each

_FREEING = (
    "`takeback sweep`, `forget`, `discard` and `undo` may still work: the store keeps 1 MB aside for them."
)
HINTS = {
    errno.ENOSPC: f"Free some space, or choose another store with --store. {_FREEING}",
    errno.EDQUOT: "Your disk quota is used up: free some space, or choose another store with --store.",
    errno.EROFS: "The disk is read-only: remount it, or choose another store with --store.",
    errno.EACCES: "Check that the store belongs to you, or choose another with --store.",
    errno.EPERM: "Check that the store belongs to you, or choose another with --store.",
    errno.EIO: "The disk reports an error: check it, then run `takeback verify`.",
    errno.ENOENT: "Check that the store still exists.",
    errno.EMFILE: "Too many files are open: raise the limit with `ulimit -n`.",
}


@contextmanager
def reachable(path: str, doing: str) -> Generator[None, None, None]:
    """An error of the disk inside the block, in our own words; the original stays as its cause."""
    try:
        yield
    except OSError as error:
        raise unreachable(path, doing, error) from error


def unreachable(path: str, doing: str, error: OSError) -> ResourceUnreachable:
    hint = HINTS.get(error.errno or 0, "Check the disk and the rights on the store.")
    if error.errno == errno.ENOSPC and is_full(os.path.dirname(path)):
        what = _how_full(os.path.dirname(path))
        return ResourceUnreachable(f"The disk under the store {what}; {path} cannot be {doing}.", hint=hint)
    return ResourceUnreachable(f"{path} cannot be {doing}: {os.strerror(error.errno or 0)}.", hint=hint)


def limited(path: str) -> ResourceUnreachable | None:
    """Because of the caller's limit for the size of a file: a write beyond it looks like a failing disk, and the store
    would not be trusted any more."""
    from resource import RLIM_INFINITY, RLIMIT_FSIZE, getrlimit

    most = getrlimit(RLIMIT_FSIZE)[0]
    if (
        most == RLIM_INFINITY
        or most >= (os.path.getsize(path) if os.path.exists(path) else 0) + _LARGEST_WRITE
    ):
        return None
    return ResourceUnreachable(
        f"This process may not write files larger than {most:,} bytes, which is too little for the store.",
        hint="Raise that limit (`ulimit -f unlimited`), then try again.",
    )


_LARGEST_WRITE = 64 << 20  # bytes that a change may add to a file of the store


def is_full(path: str) -> bool:
    """Whether there is no room for the few pages that SQLite needs beside a database."""
    return _has_less_than(SCARCE, path)


def _has_less_than(least: int, path: str) -> bool:
    try:
        now = os.statvfs(path)
    except OSError:
        return False
    return now.f_bavail * now.f_frsize < least or _without_inodes(now)


def _without_inodes(now: os.statvfs_result) -> bool:
    return now.f_files > 0 and not now.f_favail


def full(path: str) -> StoreFull:
    return StoreFull(f"The disk under the store at {path} {_how_full(path)}.", hint=HINTS[errno.ENOSPC])


def _how_full(path: str) -> str:
    """Only what the filesystem says: a quota may leave less than that."""
    try:
        now = os.statvfs(path)
    except OSError:
        return "is full"
    if _without_inodes(now):
        return "has no inodes left, so it takes no more files"
    free = bytes_in_words(now.f_bavail * now.f_frsize)
    return f"is full: {free} free, and a record may need {bytes_in_words(SCARCE)}"


def keep_spare(store: str) -> None:
    """Keep room that nothing else takes, for what is recorded when space is freed on a full disk. As much of it as
    fits."""
    directory = os.path.join(store, SPARE)
    with suppress(OSError):
        if not os.path.isdir(directory):
            os.mkdir(directory, DIRECTORY_MODE)
        for number in range(SPARE_FILES):
            path = os.path.join(directory, str(number))
            if not os.path.lexists(path):
                _allocate(path)


def _allocate(path: str) -> None:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        os.posix_fallocate(handle, 0, SPARE_BYTES)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(handle)


def give_up_spare(store: str) -> None:
    """Free that room if the disk has no other."""
    if _has_less_than(SPARE_FILES * SPARE_BYTES, store):
        for number in range(SPARE_FILES):
            with suppress(OSError):
                os.unlink(os.path.join(store, SPARE, str(number)))


def is_disk_error(error: BaseException) -> bool:
    """Whether the disk itself failed, so that nothing written lately can be trusted."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno == errno.EIO


def is_without_room(error: BaseException) -> bool:
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT)


def make_private_directory(path: str) -> None:
    """With its missing parents; each 0700 whatever the umask, and durable. One that exists stays as it is."""
    missing: list[str] = []
    path = os.path.abspath(path)
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        with reachable(directory, "made"):
            try:
                os.mkdir(directory, DIRECTORY_MODE)
            except FileExistsError:
                continue  # someone else was faster; check_private decides whether we may use it
            # A umask such as 0777 takes away even our own bits, and then it cannot be opened for reading.
            flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            with Descriptor(os.open(directory, flags)) as handle:
                os.chmod(f"/proc/self/fd/{handle}", DIRECTORY_MODE)
        sync_directory(os.path.dirname(directory))


def create_private(path: str) -> int:
    """A new file, open for reading and writing; never through a link, never one that exists."""
    with reachable(path, "created"):
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(path, flags, FILE_MODE)
        try:
            os.fchmod(handle, FILE_MODE)
        except OSError:
            os.close(handle)
            raise
        return handle


def open_private(path: str, flags: int = os.O_RDONLY) -> int:
    """A file that exists, never through a link; `Refused` if it is not ours alone, else plain OSError."""
    # O_NONBLOCK: a FIFO planted under this name must not make us wait.
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _check(path, os.fstat(handle))
    except Refused:
        os.close(handle)
        raise
    return handle


def check_private(path: str) -> None:
    """`Refused` unless it is ours and closed to everyone else."""
    with reachable(path, "looked at"):
        status = os.lstat(path)
    _check(path, status)


def _check(path: str, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise Refused(
            f"{path} is a symbolic link, and the store follows none.",
            hint="Give the real path with --store, or remove the link.",
        )
    mode = stat.S_IMODE(status.st_mode)
    wanted = DIRECTORY_MODE if stat.S_ISDIR(status.st_mode) else FILE_MODE
    if status.st_uid != os.geteuid():
        raise Refused(
            f"{path} belongs to another user (uid {status.st_uid}).",
            hint=f"Use your own store, or give it to yourself: chown {os.geteuid()} and chmod {wanted:o}.",
        )
    if mode & 0o077:
        raise Refused(
            f"{path} is open to others (mode {mode:o}); what agents overwrote may hold secrets.",
            hint=f"chmod {wanted:o} {path}",
        )


def write_fully(handle: int, data: bytes | memoryview, path: str) -> None:
    """All of it, however often the kernel takes only a part."""
    rest = memoryview(data)
    with reachable(path, "written"):
        while rest:
            written = os.write(handle, rest)
            if not written:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            rest = rest[written:]


def sync_file(handle: int, path: str) -> None:
    with reachable(path, "synced"):
        os.fsync(handle)


def write_out(handle: int, start: int, length: int) -> None:
    """Let the kernel begin to write that part out; it is not durable by that, and need not stay in memory."""
    with suppress(OSError):
        os.posix_fadvise(handle, start, length, os.POSIX_FADV_DONTNEED)


def sync_directory(path: str) -> None:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with reachable(path, "synced"), Descriptor(os.open(path, flags)) as handle:
        os.fsync(handle)


def rename(old: str, new: str) -> None:
    """Durable when this returns. Both in one directory."""
    with reachable(new, "renamed into place"):
        os.rename(old, new)
    sync_directory(os.path.dirname(new))


def remove(path: str) -> None:
    """Durable when this returns; a file that is already gone is no error."""
    with reachable(path, "removed"):
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
    sync_directory(os.path.dirname(path))


def write_file(path: str, data: bytes, mode: int = FILE_MODE) -> None:
    """A small file of ours, whole or not at all: staged beside it, synced, renamed, directory synced."""
    staged = f"{path}.{os.getpid()}.new"
    with reachable(staged, "removed"), suppress(FileNotFoundError):
        os.unlink(staged)  # left by a process that had our id and was killed
    new = create_private(staged)
    try:
        with Descriptor(new) as handle:
            if mode != FILE_MODE:
                os.fchmod(handle, mode)
            write_fully(handle, data, staged)
            sync_file(handle, staged)
        rename(staged, path)
    except ResourceUnreachable:
        with suppress(OSError):  # gone already if only the directory could not be synced
            os.unlink(staged)
        raise


def try_lock(handle: int) -> bool:
    """Hold it alone until `unlock` or the end of the process; False if someone else does."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(handle: int) -> None:
    fcntl.flock(handle, fcntl.LOCK_UN)


def lock(handle: int) -> None:
    """Wait until it is ours alone."""
    fcntl.flock(handle, fcntl.LOCK_EX)
