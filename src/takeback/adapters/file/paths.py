"""From what a user types to a handle on a directory; after that no path is ever resolved again."""

import errno
import os
import stat
from collections import deque
from typing import NamedTuple, Self

from takeback.adapters.file.kernel import AT_ROOT, open_strictly
from takeback.errors import Misuse, ResourceUnreachable, TakebackError
from takeback.model.resource import display, file_resource, path_of, unquote

_CHUNK = 3800  # the kernel takes at most 4096 bytes of path at a time
_LINKS = 40  # as the kernel: more symbolic links than this are a loop


class Place:
    """A name in an open directory. Everything is done relative to the handle, so a rename of a directory above changes
    nothing."""

    __slots__ = ("fd", "name", "resource")

    def __init__(self, fd: int, name: bytes, resource: str) -> None:
        self.fd = fd
        self.name = name
        self.resource = resource

    def __enter__(self) -> "Place":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def beside(self, name: bytes) -> "Place":
        """Another name in the same directory; shares the handle, so it is not to be closed."""
        return Place(self.fd, name, self.resource)

    def stat(self) -> os.stat_result | None:
        return status_at(self.fd, self.name)


def status_at(fd: int, name: bytes | str) -> os.stat_result | None:
    """Of a name in an open directory, if there is one."""
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def open_place(resource: str) -> Place:
    """The directory that holds the resource, opened without following any symbolic link."""
    path = path_of(resource)
    parent, _, name = path.rpartition(b"/")
    if not name:
        raise Misuse("The root directory cannot be a target.", hint="Name something inside it.")
    try:
        # Readable if we may, so that it can be synced.
        return Place(open_below(AT_ROOT, parent or b"/", os.O_RDONLY | os.O_DIRECTORY), name, resource)
    except PermissionError:
        return Place(open_below(AT_ROOT, parent or b"/", os.O_PATH | os.O_DIRECTORY), name, resource)


def open_below(fd: int, path: bytes, flags: int, cross_mounts: bool = True) -> int:
    """Like openat, for paths of any length, following no symbolic link."""
    above = fd
    try:
        while len(path) > _CHUNK:
            cut = path.rindex(b"/", 0, _CHUNK + 1)
            inner = open_strictly(above, path[:cut], os.O_PATH | os.O_DIRECTORY, cross_mounts)
            if above != fd:
                os.close(above)
            above, path = inner, path[cut + 1 :]
        return open_strictly(above, path or b".", flags, cross_mounts)
    finally:
        if above != fd:
            os.close(above)


def path_bytes(path: object) -> bytes:
    try:
        return os.fsencode(path)  # pyright: ignore[reportArgumentType]
    except (TypeError, UnicodeEncodeError):
        raise Misuse(f"{path!r} is no path.", hint="Give text, bytes, or a pathlib.Path.") from None


def resolve(path: "str | bytes | os.PathLike[str]", follow: bool = False, missing: bool = False) -> str:
    """The resource a path means now: absolute, its directory free of links and dots.

    The last name is followed only on request; `missing` lets several last names not exist yet.
    """
    raw = path_bytes(path)
    if not raw or b"\0" in raw:
        raise Misuse(
            "An empty path, or one with a zero byte, names nothing.", hint="Give the path of a file."
        )
    if not raw.startswith(b"/"):
        raw = os.getcwdb() + b"/" + raw
    if quick := _by_the_kernel(raw, follow):
        return quick
    names = _Walk(raw).to_the_end(follow, missing)
    if not names:
        raise Misuse("The root directory cannot be a target.", hint="Name something inside it.")
    return file_resource(b"/" + b"/".join(names))


def _by_the_kernel(path: bytes, follow: bool) -> str:
    """The path of the directory as the kernel has it; empty if that is not reliable, and we walk ourselves."""
    parent, _, name = path.rpartition(b"/")
    if name in (b"", b".", b"..") or len(path) > _CHUNK:
        return ""
    try:
        fd = os.open(parent or b"/", os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return ""
    try:
        found = os.readlink(b"/proc/self/fd/%d" % fd)
        if not found.startswith(b"/") or found.endswith(b" (deleted)"):
            return ""
        if follow and (status := status_at(fd, name)) and stat.S_ISLNK(status.st_mode):
            return ""
    except OSError:
        return ""
    finally:
        os.close(fd)
    return file_resource((found if found != b"/" else b"") + b"/" + name)


class _Walk:
    """One resolution: names still to go, names done, and a handle on the directory they lead to."""

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.pending = deque(name for name in path.split(b"/") if name not in (b"", b"."))
        self.done: list[bytes] = []
        self.fd = os.open(b"/", os.O_PATH | os.O_DIRECTORY)
        self.links = 0

    def to_the_end(self, follow: bool, missing: bool) -> list[bytes]:
        try:
            while self.pending:
                self._step(self.pending.popleft(), follow, missing)
            return self.done
        except OSError as error:
            raise self._in_our_words(error) from error
        finally:
            os.close(self.fd)

    def _step(self, name: bytes, follow: bool, missing: bool) -> None:
        if name == b"..":
            self.done = self.done[:-1]
            self._go(self.done)
            return
        try:
            mode = os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mode
        except FileNotFoundError:
            if self.pending and not (missing and b".." not in self.pending):
                raise
            self.done += [name, *self.pending]
            self.pending.clear()
            return
        if stat.S_ISLNK(mode) and (self.pending or follow):
            self._follow(os.readlink(name, dir_fd=self.fd))
            return
        self.done.append(name)
        if self.pending:
            inner = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self.fd)
            os.close(self.fd)
            self.fd = inner

    def _follow(self, target: bytes) -> None:
        self.links += 1
        if self.links > _LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        self.pending.extendleft(name for name in reversed(target.split(b"/")) if name not in (b"", b"."))
        if target.startswith(b"/"):
            self.done = []
            self._go([])

    def _go(self, names: list[bytes]) -> None:
        fd = open_below(AT_ROOT, b"/" + b"/".join(names), os.O_PATH | os.O_DIRECTORY)
        os.close(self.fd)
        self.fd = fd

    def _in_our_words(self, error: OSError) -> TakebackError:
        shown = display(file_resource(self.path))
        reached = display(file_resource(b"/" + b"/".join(self.done)))
        if error.errno == errno.ENOENT:
            return Misuse(
                f"The directory of {shown} does not exist.",
                hint=f"Check the path, which exists up to {reached}.",
            )
        if error.errno == errno.ENOTDIR:
            return Misuse(f"{reached} on the way to {shown} is not a directory.", hint="Check the path.")
        if error.errno == errno.ELOOP:
            return Misuse(
                f"{shown} leads in circles through symbolic links.", hint="Check them with `ls -l`."
            )
        if error.errno == errno.ENAMETOOLONG:
            return Misuse(f"A name in {shown} is longer than 255 bytes.", hint="Use a shorter name.")
        if error.errno == errno.EACCES:
            return ResourceUnreachable(
                f"Permission to go to {shown} was denied.", hint=f"Check the mode and owner of {reached}."
            )
        return Misuse(
            f"{shown} cannot be resolved: {os.strerror(error.errno or 0)}.", hint="Check its directories."
        )


class KeptOpen:
    """Directories by name. A handle that is given out stays open until many others were asked for."""

    most = 32

    def __init__(self) -> None:
        self._kept: dict[str, int] = {}  # the one used last stands last

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for fd in self._kept.values():
            os.close(fd)
        self._kept.clear()

    def open(self, name: str) -> int:
        fd = self._kept.pop(name, -1)
        if fd < 0:
            fd = self._opened(name)
            if len(self._kept) >= self.most:
                os.close(self._kept.pop(next(iter(self._kept))))
        self._kept[name] = fd
        return fd

    def _opened(self, name: str) -> int:
        raise NotImplementedError


_LIST = os.O_RDONLY | os.O_DIRECTORY


class Handles(KeptOpen):
    """Directories below one root, by quoted path, each opened from a neighbour that is still open: depth costs no time
    and few handles. Never through a symbolic link or a mount point; those are refused by the kernel."""

    def __init__(self, root: int) -> None:
        super().__init__()
        self._root = root
        self._inodes: dict[str, tuple[int, int]] = {}

    def open(self, name: str) -> int:
        return super().open(name) if name else self._root

    def _opened(self, name: str) -> int:
        parent, _, last = name.rpartition("/")
        above = self._kept.get(parent, -1)
        if above >= 0:
            # It is needed again by the others in it.
            self._kept[parent] = self._kept.pop(parent)
            fd = open_below(above, unquote(last), _LIST, cross_mounts=False)
        else:
            fd = self._from_inside(name)
            if fd < 0:
                fd = open_below(self._root, unquote(name), _LIST, cross_mounts=False)
        if name not in self._inodes:
            self._inodes[name] = _inode(fd)
        return fd

    def _from_inside(self, path: str) -> int:
        """On the way up, from a directory in it; -1 if that was moved elsewhere, and so leads elsewhere."""
        known = self._inodes.get(path)
        last = next(reversed(self._kept), "")
        if known is None or last.rpartition("/")[0] != path:
            return -1
        try:
            fd = open_below(self._kept[last], b"..", _LIST, cross_mounts=False)
        except OSError:
            return -1
        if _inode(fd) == known:
            return fd
        os.close(fd)
        return -1


def _inode(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


# Names of unfinished files. Each carries the id of its effect, so that recovery knows whose it is.
#
# `…~` is being built and is ours alone. The plain name is a finished thing about to be swapped in, or what
# it was swapped against and has not been looked at yet. `…!` was looked at, is in the store, and is being
# removed.


PREFIX = ".takeback-"
_LONGEST_SUFFIX = 40


class Scratch(NamedTuple):
    building: bytes
    swapping: bytes
    going: bytes


def scratch(effect: str, index: int, name: bytes) -> Scratch:
    stem = f"{PREFIX}{effect}-{index}".encode()
    # Checks that run on the staged file often go by its suffix.
    dot = name.rfind(b".")
    suffix = name[dot:] if dot > 0 else b""
    return Scratch(stem + b"~" + (suffix if len(suffix) <= _LONGEST_SUFFIX else b""), stem, stem + b"!")
