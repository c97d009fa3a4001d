"""Make ready what a unit is to become, under a scratch name beside it: complete, but not yet durable."""

import errno
import os
import stat
from collections.abc import Mapping
from contextlib import suppress

from takeback.adapters.file.build import (
    CREATE,
    Tools,
    build,
    chmod_inode,
    dress,
    dress_unopened,
    link_held,
    umask,
)
from takeback.adapters.file.content import ORIGINS, OVERLAY, write_content, write_xattrs
from takeback.adapters.file.kernel import sync_together
from takeback.adapters.file.os_errors import CannotCapture
from takeback.adapters.file.paths import Handles, Place, open_below
from takeback.adapters.file.states import FileState, same
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import OPEN, is_dir, see
from takeback.model.resource import unquote

# Give an inode that stays the properties it is to have: owner, attributes, mode, time.


def adjust(place: Place, start: FileState, goal: FileState, stay_open: bool = False) -> None:
    """`stay_open`: a directory in which there is still work to do keeps what its owner needs for that."""
    status = os.stat(place.name, dir_fd=place.fd, follow_symlinks=False)
    mode = goal["mode"] | OPEN if stay_open else goal["mode"]
    if "meta" in goal:
        chmod_inode(place.fd, place.name, mode)
        return
    mtime = (
        goal["mtime"] if status.st_mtime_ns == start["mtime"] or goal["type"] == "dir" else status.st_mtime_ns
    )
    wanted = goal | {"mode": mode, "mtime": mtime}
    if goal["type"] in ("file", "dir"):
        fd = _opened(place)
        if fd >= 0:
            try:
                dress(fd, wanted)
            finally:
                os.close(fd)
            return
    dress_unopened(place.fd, place.name, wanted)


def _opened(place: Place) -> int:
    """-1 where it may not be read; then its owner can still change what it carries."""
    try:
        return os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place.fd)
    except PermissionError:
        return -1


# Files that a command left in a layer which is thrown away afterwards: they become part of the world as
# they are, by a further name, instead of being written once more. Their content is in the store all the same.


# Across a mount, one name too many, not allowed, gone: then it is made from the store.
_NOT_SO = (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOENT)


class Lent:
    """The files, by the resource they are to become, and overlay's notes that were taken off them."""

    def __init__(self, sources: Mapping[str, bytes]) -> None:
        self._sources = sources
        self._notes: list[tuple[bytes, str, bytes]] = []

    def take(self, resource: str, place: Place, state: FileState, durable: bool) -> bool:
        """The file under this scratch name, if there is one and it is what the state says, to the last property."""
        source = self._sources.get(resource)
        if source is None:
            return False
        try:
            if "holes" in state or not _is_it(os.stat(source, follow_symlinks=False), state):
                return False  # the kernel fills small holes of what it copies; they are made again
            if not self._unmark(source):
                return False
            os.link(source, place.name, dst_dir_fd=place.fd, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NOT_SO:
                return False
            raise
        if durable and not _synced(place):
            os.unlink(place.name, dir_fd=place.fd)
            return False
        return True

    def _unmark(self, source: bytes) -> bool:
        """Without overlay's note of which file of the world it was; any other means that it is no plain file."""
        for name in os.listxattr(source, follow_symlinks=False):
            if name.startswith(OVERLAY):
                if name not in ORIGINS:
                    return False
                value = os.getxattr(source, name, follow_symlinks=False)
                os.removexattr(source, name, follow_symlinks=False)
                self._notes.append((source, name, value))
        return True

    def give_back(self) -> None:
        """Nothing of it was made: the layer is read once more, and must tell the same. Without a note a file counts as
        new in its place, which is at worst a conflict more."""
        for source, name, value in self._notes:
            with suppress(OSError):
                os.setxattr(source, name, value, follow_symlinks=False)
        self._notes = []


def _is_it(status: os.stat_result, state: FileState) -> bool:
    found = (status.st_size, status.st_mtime_ns, status.st_uid, status.st_gid, status.st_nlink)
    wanted = (state["size"], state["mtime"], state["uid"], state["gid"], 1)
    return found == wanted and stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) == state["mode"]


def _synced(place: Place) -> bool:
    try:
        fd = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place.fd)
    except PermissionError:
        return False  # closed even to its owner
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    return True


# Across a mount, one too many, not allowed.
_NO_LINK = (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP)
_LIST = os.O_RDONLY | os.O_DIRECTORY


class Builder:
    """Remembers where the names of a file were made, so that further names become links to it."""

    def __init__(
        self,
        tools: Tools,
        places: Places,
        adjusted: dict[str, FileState],
        durable: bool = False,
        lent: Lent | None = None,
    ) -> None:
        """`adjusted` are the goals of what stays the file it is, and gets its properties later; `durable` that each
        file is synced by itself, by `make_durable`."""
        self._tools = tools
        self._places = places
        self._adjusted = adjusted
        self._durable = durable
        self._lent = lent
        self._me = (os.geteuid(), os.getegid())
        self._masked = umask() | 0o7000  # bits a new file does not get by asking
        # By resource: the directory it waits in, and its name there.
        self._made: dict[str, tuple[str, bytes]] = {}
        self._waiting: list[int] = []  # files that are not durable yet, open

    def make_durable(self) -> None:
        sync_together(self._waiting)
        self.close()

    def start_anew(self) -> None:
        self.close()
        self._made.clear()

    def close(self) -> None:
        while self._waiting:
            os.close(self._waiting.pop())

    def make(self, place: Place, state: FileState, inside: dict[str, FileState]) -> None:
        """`place` is the scratch name; its resource is that of the unit."""
        if not is_dir(state):
            self._entry(place, state, fresh=False)
            self._remember(state, place.resource, place.resource.rpartition("/")[0], place.name)
            return
        os.mkdir(place.name, 0o700, dir_fd=place.fd)
        root = open_below(place.fd, place.name, _LIST, cross_mounts=False)
        try:
            # What the parent hands down (set-group-id, default ACL) must not reach the entries.
            os.fchmod(root, 0o700)
            write_xattrs(root, {})
            self._fill(root, place, inside, existing=False)
            dress(root, state)
        finally:
            os.close(root)

    def complete(self, place: Place, state: FileState, inside: dict[str, FileState]) -> None:
        """Of a directory that was partly removed: what is missing is made again."""
        root = open_below(place.fd, place.name, _LIST, cross_mounts=False)
        try:
            self._fill(root, place, inside, existing=True)
            dress(root, state)
        finally:
            os.close(root)

    def _fill(self, root: int, place: Place, inside: dict[str, FileState], existing: bool) -> None:
        outer = place.resource.rpartition("/")[0]
        with Handles(root) as handles:
            for path, state in inside.items():
                parent, _, name = path.rpartition("/")
                entry = Place(handles.open(parent), unquote(name), f"{place.resource}/{path}")
                try:
                    self._entry(entry, state, fresh=True)
                except FileExistsError:
                    if not existing:
                        raise
                self._remember(state, entry.resource, outer, place.name + b"/" + unquote(path))
                self._tools.progress.moved(items=1)
            for path in reversed(inside):
                if is_dir(inside[path]):
                    dress(handles.open(path), inside[path])

    def _remember(self, state: FileState, resource: str, directory: str, name: bytes) -> None:
        if state["type"] != "dir":
            self._made[resource] = (directory, name)

    def _entry(self, place: Place, state: FileState, fresh: bool) -> None:
        kind = state["type"]
        if "twin" in state and self._link(place, state):
            return
        if kind == "file":
            if "held" in state and link_held(self._tools, state["held"], place, state):
                return
            if self._lent and self._lent.take(place.resource, place, state, self._durable and not fresh):
                return
            self._file(place, state, fresh)
        elif kind == "dir":
            os.mkdir(place.name, 0o700, dir_fd=place.fd)
        else:
            build(place, state, self._tools)

    def _file(self, place: Place, state: FileState, fresh: bool) -> None:
        mode = state["mode"]
        at_once = fresh and not mode & self._masked
        fd = os.open(place.name, CREATE, mode if at_once else 0o600, dir_fd=place.fd)
        try:
            write_content(fd, state, self._tools.blobs)
            if not fresh:
                dress(fd, state)
                if self._durable:
                    self._waiting.append(os.dup(fd))
                return
            if not state.get("owner_lost") and (state["uid"], state["gid"]) != self._me:
                os.fchown(fd, state["uid"], state["gid"])
            if "xattrs" in state:
                write_xattrs(fd, state["xattrs"], fresh=True)
            if not at_once:
                os.fchmod(fd, mode)
            os.utime(fd, ns=(state["mtime"], state["mtime"]))
        finally:
            os.close(fd)

    def _link(self, place: Place, state: FileState) -> bool:
        """As a further name of a file that was made before, or that is there and stays."""
        made = self._made.get(state["twin"])
        try:
            if made is not None:
                self._link_made(place, *made)
                return True
            twin = self._places.if_there(state["twin"])
            if twin is None or not self._is_twin(see(twin, state), state):
                return False
            os.link(twin.name, place.name, src_dir_fd=twin.fd, dst_dir_fd=place.fd, follow_symlinks=False)
        except CannotCapture:
            return False
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            return False  # then it is a file of its own
        return True

    def _link_made(self, place: Place, directory: str, name: bytes) -> None:
        parent, _, base = name.rpartition(b"/")
        beside = self._places.at(f"{directory}/x").fd
        fd = open_below(beside, parent, os.O_PATH | os.O_DIRECTORY) if parent else beside
        try:
            os.link(base, place.name, src_dir_fd=fd, dst_dir_fd=place.fd, follow_symlinks=False)
        finally:
            if parent:
                os.close(fd)

    def _is_twin(self, found: FileState, wanted: FileState) -> bool:
        if wanted["twin"] in self._adjusted:
            return found["type"] == wanted["type"] and found.get("digest") == wanted.get("digest")
        return same(found, wanted)

    def waits_at(self, place: Place, state: FileState, inside: dict[str, FileState]) -> None:
        """Whether the final content of a unit is there already, under this scratch name."""
        outer = place.resource.rpartition("/")[0]
        self._remember(state, place.resource, outer, place.name)
        for path, entry in inside.items():
            self._remember(entry, f"{place.resource}/{path}", outer, place.name + b"/" + unquote(path))
