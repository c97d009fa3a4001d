"""System calls that Python's `os` lacks, by ctypes, and what the machine answers where they are missing."""

import errno
import os
import stat
import struct
import time
from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queue import SimpleQueue
    from threading import Thread


# Remove many files where giving their blocks back is slow: names go one by one, the blocks in several threads.


_TRIED = 16
_SLOW = 0.0003  # seconds a file: below, threads cost more than they save
_THREADS = 16
_ARENAS, _ON_ITS_OWN = -8, -3  # of `mallopt`
_LARGE_BLOCK = 128 << 10  # bytes
_WAITING = 128  # files without a name that may wait for a thread, each with a descriptor


class Freeing:
    """Names are gone when `unlink` returns, in the order of the calls; the blocks at the end of the block."""

    def __init__(self) -> None:
        self._count = 0
        self._spent = 0.0
        self._threads: list[Thread] = []
        self._waiting: SimpleQueue[int] | None = None

    def __enter__(self) -> "Freeing":
        return self

    def __exit__(self, *raised: object) -> None:
        if self._waiting is not None:
            for _ in self._threads:
                self._waiting.put(-1)
            for thread in self._threads:
                thread.join()
        self._threads, self._waiting = [], None

    def unlink(self, name: str | bytes, *, dir_fd: int) -> None:
        if self._waiting is not None:
            self._unlink_and_free(name, dir_fd, self._waiting)
            return
        start = time.perf_counter()
        os.unlink(name, dir_fd=dir_fd)
        self._spent += time.perf_counter() - start
        self._count += 1
        if self._count == _TRIED:
            if self._spent > _TRIED * _SLOW:
                self._begin()
            self._count, self._spent = 0, 0.0

    def _begin(self) -> None:
        from queue import SimpleQueue
        from threading import Thread

        self._waiting = SimpleQueue()
        self._threads = [Thread(target=_close_all, args=(self._waiting,)) for _ in range(_THREADS)]
        for thread in self._threads:
            thread.start()

    def _unlink_and_free(self, name: str | bytes, dir_fd: int, waiting: "SimpleQueue[int]") -> None:
        """A file that someone has open keeps its blocks: who closes it last waits until they are given back."""
        if waiting.qsize() >= _WAITING:
            os.unlink(name, dir_fd=dir_fd)
            return
        try:
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
        except OSError:  # too many open files: then one after the other
            os.unlink(name, dir_fd=dir_fd)
            return
        try:
            os.unlink(name, dir_fd=dir_fd)
        except BaseException:
            os.close(fd)
            raise
        waiting.put(fd)


def _close_all(waiting: "SimpleQueue[int]") -> None:
    while (fd := waiting.get()) >= 0:
        os.close(fd)


RESOLVE_NO_XDEV = 1
RESOLVE_NO_MAGICLINKS = 2
RESOLVE_NO_SYMLINKS = 4
RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2

AT_ROOT = -100  # AT_FDCWD; given with absolute paths only

_OPENAT2 = 437  # the same number on every architecture
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276, "riscv64": 276}
_NO_FOLLOW = 0x100  # AT_SYMLINK_NOFOLLOW
_START_WRITING = 2  # SYNC_FILE_RANGE_WRITE
_BIRTH = 0x800  # STATX_BTIME
_NOT_HERE = (errno.ENOSYS, errno.EPERM)  # seccomp filters often answer EPERM for calls they do not know


class Libc:
    """The C library, and which of the newer calls this machine turned out to have."""

    def __init__(self) -> None:
        import ctypes

        self.library = ctypes.CDLL(None, use_errno=True)
        self.get_errno = ctypes.get_errno
        self.has_openat2 = True
        self.has_renameat2 = True
        self._hows: dict[tuple[int, int], bytes] = {}
        self._open = self.library.syscall
        self._open.restype = ctypes.c_long
        self._rename = self._renameat2(ctypes)
        self._write_out = getattr(self.library, "sync_file_range", None)
        if self._write_out is not None:
            self._write_out.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)

    def _renameat2(self, ctypes: Any) -> Any:
        if hasattr(self.library, "renameat2"):
            self.library.renameat2.argtypes = (
                ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint
            )  # fmt: skip
            return self.library.renameat2
        number = _RENAMEAT2.get(os.uname().machine)
        if number is None:
            self.has_renameat2 = False
            return None
        return partial(self.library.syscall, number)

    def openat2(self, dir_fd: int, path: bytes, flags: int, resolve: int) -> int:
        how = self._hows.get((flags, resolve))
        if how is None:
            how = self._hows[flags, resolve] = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, resolve)
        fd: int = self._open(_OPENAT2, dir_fd, path, how, 24)
        if fd < 0:
            self._fail(path)
        return fd

    def rename(self, from_fd: int, old: bytes, to_fd: int, new: bytes, flags: int) -> None:
        if self._rename(from_fd, old, to_fd, new, flags) < 0:
            self._fail(old)

    def syncfs(self, fd: int) -> None:
        if self.library.syncfs(fd) < 0:
            self._fail(b"")

    def write_out(self, fd: int) -> None:
        """Only a hint, so its answer does not count."""
        if self._write_out is not None:
            self._write_out(fd, 0, 0, _START_WRITING)

    def keep_memory_small(self) -> None:
        """For a process that lives long: what is freed goes back to the kernel. Threads share one arena, and large
        blocks never lie in it. Only the GNU library has these."""
        if hasattr(self.library, "mallopt"):
            self.library.mallopt(_ARENAS, 1)
            self.library.mallopt(_ON_ITS_OWN, _LARGE_BLOCK)

    def give_memory_back(self) -> None:
        if hasattr(self.library, "malloc_trim"):
            self.library.malloc_trim(0)

    def born(self, dir_fd: int, name: bytes) -> int:
        """When the inode was made, in nanoseconds; 0 where the filesystem does not know."""
        if not hasattr(self.library, "statx"):
            return 0
        seen = bytes(256)
        if self.library.statx(dir_fd, name, _NO_FOLLOW, _BIRTH, seen) < 0:
            self._fail(name)
        mask, seconds, nanoseconds = struct.unpack_from("=I76xqI", seen)
        return seconds * 1_000_000_000 + nanoseconds if mask & _BIRTH else 0

    def _fail(self, path: bytes) -> None:
        code = self.get_errno()
        raise OSError(code, os.strerror(code), path)


@cache
def libc() -> Libc:
    return Libc()


def open_strictly(dir_fd: int, path: bytes, flags: int, cross_mounts: bool) -> int:
    """Open below a directory handle; a symbolic link anywhere on the way is ELOOP, a mount point EXDEV on request."""
    calls = libc()
    if calls.has_openat2:
        resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | (0 if cross_mounts else RESOLVE_NO_XDEV)
        try:
            return calls.openat2(dir_fd, path, flags, resolve)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            calls.has_openat2 = False
    return _open_by_component(dir_fd, path, flags, cross_mounts)


def _open_by_component(dir_fd: int, path: bytes, flags: int, cross_mounts: bool) -> int:
    names = [name for name in path.split(b"/") if name and name != b"."]
    fd = os.open(b"/", os.O_PATH | os.O_DIRECTORY) if dir_fd == AT_ROOT else os.dup(dir_fd)
    device = os.fstat(fd).st_dev
    try:
        for place, name in enumerate(names):
            wanted = flags if place == len(names) - 1 else os.O_PATH | os.O_DIRECTORY
            inner = _open_one(fd, name, wanted)
            os.close(fd)
            fd = inner
            if not cross_mounts and os.fstat(fd).st_dev != device:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
        if not names and not flags & os.O_PATH:
            fd, path_fd = os.open(b".", flags, dir_fd=fd), fd
            os.close(path_fd)
        return fd
    except BaseException:
        os.close(fd)
        raise


def _open_one(fd: int, name: bytes, flags: int) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=fd)
    except NotADirectoryError:
        # Linux says ENOTDIR for a symbolic link when O_DIRECTORY and O_NOFOLLOW come together.
        if stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise


def rename_new(from_fd: int, old: bytes, to_fd: int, new: bytes) -> None:
    """Rename to a name that must be free: FileExistsError otherwise."""
    if _renamed(from_fd, old, to_fd, new, RENAME_NOREPLACE):
        return
    # A hard link is the old way to take a name only if it is free; directories have to do with a look before.
    try:
        os.link(old, new, src_dir_fd=from_fd, dst_dir_fd=to_fd, follow_symlinks=False)
    except PermissionError:
        try:
            os.stat(new, dir_fd=to_fd, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(old, new, src_dir_fd=from_fd, dst_dir_fd=to_fd)
            return
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new) from None
    os.unlink(old, dir_fd=from_fd)


def exchange(from_fd: int, one: bytes, to_fd: int, other: bytes) -> bool:
    """Swap two names in one step; False where the filesystem cannot."""
    return _renamed(from_fd, one, to_fd, other, RENAME_EXCHANGE)


def _renamed(from_fd: int, old: bytes, to_fd: int, new: bytes, flags: int) -> bool:
    calls = libc()
    if not calls.has_renameat2:
        return False
    try:
        calls.rename(from_fd, old, to_fd, new, flags)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EINVAL):
            return False
        raise
    return True


def born(dir_fd: int, name: bytes) -> int:
    """Inode numbers are used again, sometimes at once; together with this they are not."""
    return libc().born(dir_fd, name)


def sync_together(fds: Sequence[int]) -> None:
    """Each of these files is durable when this returns. All are begun before the first is waited for: then one commit
    of the filesystem's journal covers them, and not one for each."""
    if len(fds) > 1:
        for fd in fds:
            libc().write_out(fd)
    for fd in fds:
        os.fsync(fd)


def flush_filesystem(fd: int) -> None:
    """Make everything written to the filesystem of `fd` durable, once, instead of file by file."""
    libc().syncfs(fd)
