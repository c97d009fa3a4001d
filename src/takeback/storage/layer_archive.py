"""A layer on disk: when it is synced, and packed into one compressed file from which the same tree comes back."""

import base64
import errno
import hashlib
import json
import os
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, Any

from takeback.errors import Corrupt
from takeback.model.descriptor import Descriptor, read_exactly
from takeback.storage import disk
from takeback.storage.blobs.codec import zstd_module

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
        # For pages that are not on the disk yet this advice means just that; a directory knows none.
        for handle, _ in held:
            with suppress(OSError):
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
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

    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with disk.reachable(path, "synced"), Descriptor(os.open(path, flags)) as handle:
        if ctypes.CDLL(None, use_errno=True).syncfs(handle) < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)


# A directory tree in one compressed file, from which exactly the same tree comes back: owners, modes, times
# to the nanosecond, attributes of every kind, devices and whiteouts, holes, and names of one inode.
#
# A zstd stream of entries, parents first: four bytes with the length of a JSON head, the head, the data of a
# file between its holes. The last head says how many there were.


_LENGTH = struct.Struct("<I")
_PIECE = 1 << 20
_LEVEL = 3


class NotOurs(Exception):
    """It could not be made again with our rights: another's, or closed to us."""


class _Hashing:
    """What goes through it, and its digest."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.hash = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self.hash.update(data)
        self._file.write(data)

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) != size:
            raise Corrupt("A packed layer ends too early.", hint="Undo to another point.")
        self.hash.update(data)
        return data


def packed_name(directory: str) -> str:
    return f"{directory}.packed"


def is_packed(name: str) -> bool:
    """Or one in the making."""
    return name.endswith((".packed", ".packed.new"))


def pack_in_place(directory: str) -> int:
    """Replace the directory by its file; the directory gets an unused name, and may be removed. The length of the file.
    Killed in between there are both, and the directory counts."""
    packed = packed_name(directory)
    pack(directory, packed)
    with disk.reachable(directory, "renamed"):
        os.rename(directory, f"{directory}.gone")
    disk.sync_directory(os.path.dirname(directory))
    return os.stat(packed).st_size


def unpack_in_place(directory: str) -> None:
    """The directory instead of its file, if there is one; then it is durable."""
    from shutil import rmtree

    packed = packed_name(directory)
    if not os.path.isfile(packed):
        return
    making = f"{directory}.{os.urandom(6).hex()}.unpacking"
    try:
        with disk.reachable(directory, "unpacked"):
            unpack(packed, making)
            sync_filesystem(making)
            os.rename(making, directory)
    except BaseException as error:
        rmtree(making, ignore_errors=True)
        if isinstance(error, Exception) and os.path.isdir(directory):
            return  # someone else was faster
        raise
    disk.sync_directory(os.path.dirname(directory))
    disk.remove(packed)


def pack(directory: str, target: str) -> None:
    """The file is whole, read back and durable when this returns; the directory stays."""
    making = f"{target}.new"
    with suppress(FileNotFoundError):
        os.unlink(making)
    try:
        with disk.reachable(making, "written"), open(disk.create_private(making), "wb") as raw:
            with zstd_module().ZstdFile(raw, "w", level=_LEVEL) as file:
                written = _Hashing(file)
                _write(os.fsencode(directory), written)
            raw.flush()
            os.fsync(raw.fileno())
        with zstd_module().ZstdFile(making, "r") as file:
            if hashlib.file_digest(file, "sha256").digest() != written.hash.digest():
                raise Corrupt(f"{making} is not what was written.", hint="Check the disk.")
        disk.rename(making, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(making)
        raise


def _write(directory: bytes, out: _Hashing) -> None:
    first: dict[tuple[int, int], str] = {}
    count = 0
    for path in _walk(directory):
        count += 1
        name = directory + (b"/" + path if path else b"")
        status = os.lstat(name)
        if os.geteuid() != 0 and status.st_uid != os.geteuid():
            raise NotOurs(os.fsdecode(name))
        head = _described(name, path, status)
        if not stat.S_ISDIR(status.st_mode) and status.st_nlink > 1:
            known = first.setdefault((status.st_dev, status.st_ino), head["path"])
            if known != head["path"]:
                _head(out, {"path": head["path"], "same": known})
                continue
        if not stat.S_ISREG(status.st_mode):
            _head(out, head)
            continue
        with open(name, "rb", buffering=0) as file:
            head["data"] = list(_extents(file.fileno(), status.st_size))
            _head(out, head)
            for start, end in head["data"]:
                _copy_out(file.fileno(), start, end, out)
    _head(out, {"entries": count})


def _walk(directory: bytes) -> Iterator[bytes]:
    waiting = [b""]
    while waiting:
        path = waiting.pop()
        yield path
        name = directory + (b"/" + path if path else b"")
        if not stat.S_ISDIR(os.lstat(name).st_mode):
            continue
        waiting += [path + b"/" + one if path else one for one in sorted(os.listdir(name), reverse=True)]


def _described(name: bytes, path: bytes, status: os.stat_result) -> dict[str, Any]:
    head: dict[str, Any] = {
        "path": _text(path), "mode": status.st_mode, "uid": status.st_uid, "gid": status.st_gid,
        "atime": status.st_atime_ns, "mtime": status.st_mtime_ns,
        "xattrs": {
            one: _text(os.getxattr(name, one, follow_symlinks=False))
            for one in os.listxattr(name, follow_symlinks=False)
        },
    }  # fmt: skip
    if stat.S_ISLNK(status.st_mode):
        head["link"] = _text(os.readlink(name))
    elif stat.S_ISREG(status.st_mode):
        head["size"] = status.st_size
    elif stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        head["device"] = status.st_rdev
    return head


def _extents(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Where there is data."""
    at = 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            return  # only a hole is left
        at = min(os.lseek(fd, start, os.SEEK_HOLE), size)
        yield start, at


def _copy_out(fd: int, start: int, end: int, out: _Hashing) -> None:
    while start < end:
        data = read_exactly(fd, min(_PIECE, end - start), start)
        if not data:
            raise Corrupt("A layer changed while it was packed.", hint="Try again.")
        out.write(data)
        start += len(data)


def _head(out: _Hashing, told: dict[str, Any]) -> None:
    raw = json.dumps(told, separators=(",", ":")).encode()
    out.write(_LENGTH.pack(len(raw)) + raw)


def unpack(packed: str, directory: str) -> None:
    """`directory` does not exist yet. If this raises, what was begun is still there."""
    try:
        with zstd_module().ZstdFile(packed, "r") as file:
            _read(_Hashing(file), os.fsencode(directory))
    except (zstd_module().ZstdError, EOFError, ValueError, KeyError) as error:
        raise Corrupt(f"{packed} is damaged: {error}.", hint="Undo to another point.") from error


def _read(source: _Hashing, directory: bytes) -> None:
    later: list[tuple[bytes, dict[str, Any]]] = []
    count = 0
    while True:
        head = json.loads(source.read(_LENGTH.unpack(source.read(_LENGTH.size))[0]))
        if "entries" in head:
            if head["entries"] != count:
                raise Corrupt("A packed layer has lost entries.", hint="Undo to another point.")
            break
        count += 1
        path = _bytes(head["path"])
        name = directory + (b"/" + path if path else b"")
        if "same" in head:
            os.link(directory + b"/" + _bytes(head["same"]), name, follow_symlinks=False)
            continue
        _make(name, head, source)
        if stat.S_ISDIR(head["mode"]):
            later.append((name, head))
        else:
            _dress(name, head)
    # Innermost first: filling a directory moves its times, and one without rights could not be filled.
    for name, head in reversed(later):
        _dress(name, head)


def _make(name: bytes, head: dict[str, Any], source: _Hashing) -> None:
    mode = head["mode"]
    if stat.S_ISDIR(mode):
        os.mkdir(name, 0o700)
    elif stat.S_ISLNK(mode):
        os.symlink(_bytes(head["link"]), name)
    elif stat.S_ISREG(mode):
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "wb", buffering=0) as file:
            for start, end in head["data"]:
                file.seek(start)
                while start < end:
                    start += file.write(source.read(min(_PIECE, end - start)))
            file.truncate(head["size"])
    else:
        os.mknod(name, stat.S_IFMT(mode) | 0o600, head.get("device", 0))


def _dress(name: bytes, head: dict[str, Any]) -> None:
    """Owner before mode, as a change of owner takes setuid away; capabilities after both."""
    if os.geteuid() == 0:
        os.chown(name, head["uid"], head["gid"], follow_symlinks=False)
    elif os.lstat(name).st_gid != head["gid"]:
        os.chown(name, -1, head["gid"], follow_symlinks=False)
    # An attribute of a user is only to be set on what he may write to.
    for one, value in head["xattrs"].items():
        os.setxattr(name, one, _bytes(value), follow_symlinks=False)
    if not stat.S_ISLNK(head["mode"]):
        os.chmod(name, stat.S_IMODE(head["mode"]))
    os.utime(name, ns=(head["atime"], head["mtime"]), follow_symlinks=False)


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
