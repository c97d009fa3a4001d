"""The changes that a layer makes to the world below it, path by path."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import zip_longest
from typing import NamedTuple

from takeback.model.mounts import mount_table
from takeback.sandbox.layer import LayerForm, Mount, attributes, is_opaque, is_whiteout, mark, read_form
from takeback.sandbox.mounts import mount_points
from takeback.sandbox.protocol import Stack


class ViewGround(NamedTuple):
    """One directory of the stack. The lowest is the world itself: nothing in it is a mark of overlayfs."""

    root: bytes
    plain: bool = False
    userxattr: bool = False


class ViewNode(NamedTuple):
    """What one name shows: a directory may be put together from several, newest first."""

    parts: tuple[tuple[int, bytes], ...]  # which ground, and the path there
    status: os.stat_result

    @property
    def top(self) -> bytes:
        return self.parts[0][1]

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)


class LayerView:
    def __init__(self, grounds: Iterable[ViewGround], mount_points: frozenset[bytes] = frozenset()) -> None:
        self.grounds = tuple(grounds)
        self.mount_points = mount_points  # of the world

    def root(self, first: int = 0) -> ViewNode | None:
        """The directory that is visible without the grounds above `first`."""
        parts = tuple(
            (number, ground.root)
            for number, ground in enumerate(self.grounds)
            if number >= first and os.path.isdir(ground.root)
        )
        return ViewNode(parts, os.lstat(parts[0][1])) if parts else None

    def find(self, node: ViewNode | None, path: bytes) -> ViewNode | None:
        for name in path.split(b"/"):
            if node and name:
                node = self.child(node, name)
        return node

    def child(self, node: ViewNode, name: bytes) -> ViewNode | None:
        found: list[tuple[int, bytes]] = []
        seen: os.stat_result | None = None
        for number, directory in node.parts:
            path = directory + b"/" + name
            status = self._look(number, directory, path)
            if status is None:
                continue
            ground = self.grounds[number]
            if not ground.plain and is_whiteout(status):
                break
            if not stat.S_ISDIR(status.st_mode):
                return ViewNode(tuple(found), seen) if seen else ViewNode(((number, path),), status)
            found.append((number, path))
            seen = seen or status
            if ground.plain:
                continue
            if is_opaque(path, ground.userxattr):
                break
            elsewhere = mark(path, "redirect", ground.userxattr)
            if elsewhere is not None and elsewhere.startswith(b"/"):
                moved = self.find(self.root(number + 1), elsewhere)
                found += moved.parts if moved and moved.is_dir else ()
                break
            name = elsewhere or name
        return ViewNode(tuple(found), seen) if seen else None

    def _is_covered(self, number: int, directory: bytes) -> bool:
        """Something is mounted there in the world, and does not shine through."""
        ground = self.grounds[number]
        return ground.plain and directory in self.mount_points and directory != ground.root

    def _look(self, number: int, directory: bytes, path: bytes) -> os.stat_result | None:
        if self._is_covered(number, directory):
            return None
        try:
            return os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, node: ViewNode) -> set[bytes]:
        """Every name that may be in a directory; `child` says whether it is."""
        found: set[bytes] = set()
        for number, directory in node.parts:
            found |= self.names_of_part(number, directory)
        return found

    def names_of_part(self, number: int, directory: bytes) -> set[bytes]:
        if self._is_covered(number, directory):
            return set()
        try:
            return set(os.listdir(directory))
        except (FileNotFoundError, NotADirectoryError):
            return set()
        except PermissionError:
            if not self.grounds[number].plain:
                raise
            return set()  # what we may not read of the world, the command could not change


HANDLE = 21  # where a file handle begins in overlayfs's note about the origin


class LeftPath(NamedTuple):
    """The state in which the command left one path."""

    path: bytes  # absolute; seen from the root inside
    source: bytes | None  # where it can be read now; None: it is gone
    below: bool  # something lay below this name when the command changed it
    # Of a directory that was moved here: where the rest of it lay, if that is not there any more.
    lost: bytes = b""


def differences(layer: str, stack: Stack) -> Iterator[LeftPath]:
    """Parents before what is in them. The layer and the layers below must be at rest; the world need not."""
    form = read_form(layer)
    points = mount_points(mount_table())
    for one in sorted(form.mounts):
        yield from _Comparison(layer, form, one, stack, points).lefts()


def is_empty(layer: str, stack: Stack | None = None) -> bool:
    """Whether the command changed nothing at all."""
    return next(differences(layer, stack or Stack()), None) is None


def grounds_below(stack: Stack, point: str) -> list[ViewGround]:
    found: list[ViewGround] = []
    for layer in stack.layers:
        form = read_form(layer)
        for one in form.mounts:
            upper = os.path.join(layer, one.upper)
            if one.point == point:
                found.append(ViewGround(os.fsencode(upper), userxattr=form.userxattr))
            elif form.userxattr and point.startswith(one.point.rstrip("/") + "/"):
                # What others mounted has moved the line between two overlays of an ordinary user.
                part = upper + point[len(one.point.rstrip("/")) :]
                if os.path.isdir(part):
                    found.append(ViewGround(os.fsencode(part), userxattr=True))
    root = os.fsencode(stack.root).rstrip(b"/")
    return [*found, ViewGround((root + os.fsencode(point)).rstrip(b"/") or b"/", plain=True)]


_Pair = tuple[bytes, ViewNode | None, ViewNode | None]


class _Comparison:
    """Of what one overlay showed at the end with what lies below it."""

    def __init__(
        self, layer: str, form: LayerForm, mount: Mount, stack: Stack, points: frozenset[bytes]
    ) -> None:
        self.form = form
        self.mount = mount
        upper = ViewGround(os.fsencode(os.path.join(layer, mount.upper)), userxattr=form.userxattr)
        self.view = LayerView((upper, *grounds_below(stack, mount.point)), points)

    def lefts(self) -> Iterator[LeftPath]:
        after, before = self.view.root(), self.view.root(1)
        if after is None:
            return
        point = os.fsencode(self.mount.point)
        if self._top_changed(after, before):
            yield LeftPath(point, after.top, before is not None)
        for path, one, other in self._inside(point.rstrip(b"/"), after, before):
            known = one and other and (self._same(one, other) or self._only_another_changed(path, one, other))
            if not known:
                yield LeftPath(path, one.top if one else None, self._below(one, other), self._lost(path, one))

    def _top_changed(self, after: ViewNode, before: ViewNode | None) -> bool:
        status = after.status
        mode, uid, gid, mtime = self.mount.first
        if stat.S_IMODE(status.st_mode) != mode or self._set_by_hand(status.st_mtime_ns, mtime):
            return True
        # In a user namespace the directory is ours, no matter who owns the one below, and has the properties that we
        # could copy.
        if not self.form.userxattr and (status.st_uid, status.st_gid) != (uid, gid):
            return True
        return before is not None and self._marks(after) != self._marks(before)

    def _marks(self, node: ViewNode) -> dict[str, bytes]:
        found = self._attributes(node)
        return {name: found[name] for name in found if name.startswith("user.") or not self.form.userxattr}

    def _set_by_hand(self, now: int, before: int) -> bool:
        """A directory's time moves with what is made in it; only a time that the clock did not show was set."""
        # If the one below moved since, by another's doing, the copy has the time of before.
        return now != before and now < self.form.started_ns > before

    def _inside(self, path: bytes, after: ViewNode, before: ViewNode | None) -> Iterator[_Pair]:
        """Each touched path: its present and its earlier state."""
        if before and not before.is_dir:
            before = None
        with self._open(after):
            for name in sorted(self._names(after, before)):
                yield from self._at(path + b"/" + name, name, after, before)

    def _at(self, path: bytes, name: bytes, after: ViewNode, before: ViewNode | None) -> Iterator[_Pair]:
        one = self.view.child(after, name)
        other = self.view.child(before, name) if before else None
        if one is None:
            if other or (before and self._hidden_by(after, before, name)):
                yield path, None, other
        elif other and one.parts == other.parts:
            return  # not touched
        else:
            yield path, one, other
        if one and one.is_dir:
            yield from self._inside(path, one, other)
        elif other and other.is_dir:
            yield from self._gone(path, other)

    @contextmanager
    def _open(self, node: ViewNode) -> Iterator[None]:
        """A directory that the command closed to its own user is open while we, who are no more, look into it."""
        number, top = node.parts[0]
        mode = stat.S_IMODE(node.status.st_mode)
        closed = number == 0 and mode & 0o500 != 0o500 and node.status.st_uid == os.geteuid() != 0
        if closed:
            os.chmod(top, mode | 0o700)
        try:
            yield
        finally:
            if closed:
                os.chmod(top, mode)

    def _names(self, after: ViewNode, before: ViewNode | None) -> set[bytes]:
        number, top = after.parts[0]
        if number == 0 and before and after.parts[1:] == before.parts:
            return self.view.names_of_part(0, top)
        return self.view.names(after) | (self.view.names(before) if before else set())

    def _gone(self, path: bytes, before: ViewNode) -> Iterator[tuple[bytes, None, ViewNode]]:
        for name in sorted(self.view.names(before)):
            other = self.view.child(before, name)
            if other:
                yield path + b"/" + name, None, other
                if other.is_dir:
                    yield from self._gone(path + b"/" + name, other)

    def _hidden_by(self, after: ViewNode, before: ViewNode, name: bytes) -> bool:
        """The command removed it, and another did so below. (In a moved directory it was removed elsewhere.)"""
        number, top = after.parts[0]
        return number == 0 and after.parts[1:] == before.parts and os.path.lexists(top + b"/" + name)

    def _same(self, one: ViewNode, other: ViewNode) -> bool:
        """Copied up, and not changed."""
        now, was = one.status, other.status
        if one.parts[0][0] == 0 and not one.is_dir and now.st_nlink > 1:
            return False  # it may have got another name, which only shows when both are listed
        if (now.st_mode, now.st_uid, now.st_gid) != (was.st_mode, was.st_uid, was.st_gid):
            return False
        if one.is_dir:
            if self._set_by_hand(now.st_mtime_ns, was.st_mtime_ns):
                return False
        elif (now.st_mtime_ns, now.st_size, now.st_rdev) != (was.st_mtime_ns, was.st_size, was.st_rdev):
            return False
        if self._attributes(one) != self._attributes(other):
            return False
        if stat.S_ISREG(now.st_mode):
            return _same_bytes(one.top, other.top)
        return not stat.S_ISLNK(now.st_mode) or os.readlink(one.top) == os.readlink(other.top)

    def _only_another_changed(self, path: bytes, one: ViewNode, other: ViewNode) -> bool:
        """Of a directory above the one where the command began: the copy has its state at that time."""
        first = self.form.way.get(os.fsdecode(path))
        if first is None or not (one.is_dir and other.is_dir):
            return False
        mode, uid, gid, mtime = first
        now = one.status
        if (stat.S_IMODE(now.st_mode), now.st_uid, now.st_gid) != (mode, uid, gid):
            return False
        return not self._set_by_hand(now.st_mtime_ns, mtime) and self._attributes(one) == self._attributes(
            other
        )

    def _attributes(self, node: ViewNode) -> dict[str, bytes]:
        ground = self.view.grounds[node.parts[0][0]]
        if ground.plain:
            return {name: os.getxattr(node.top, name, follow_symlinks=False) for name in _listed(node.top)}
        return attributes(node.top, ground.userxattr)

    def _lost(self, path: bytes, one: ViewNode | None) -> bytes:
        """Overlay notes where a moved directory continues below; if another process removed that, it only seems to be
        empty."""
        if not one or not one.is_dir or [number for number, _ in one.parts] != [0]:
            return b""
        elsewhere = mark(one.top, "redirect", self.form.userxattr)
        if elsewhere is None:
            return b""
        if elsewhere.startswith(b"/"):
            return os.fsencode(self.mount.point).rstrip(b"/") + elsewhere
        return os.path.dirname(path).rstrip(b"/") + b"/" + elsewhere

    def _below(self, one: ViewNode | None, other: ViewNode | None) -> bool:
        if other or one is None:
            return True
        if one.parts[0][0] != 0:
            return False  # part of a directory that was moved here
        if one.is_dir and len(one.parts) == 1 and mark(one.top, "redirect", self.form.userxattr) is not None:
            return True  # moved here, and another took away what lay where it came from
        origin = mark(one.top, "origin", self.form.userxattr)
        if origin is None:
            return False
        if one.is_dir:
            return len(one.parts) == 1  # with something below it is part of a directory that was moved here
        # A copy of something that is not below this name: moved here by the command, or taken away below by another.
        return not self._is_moved(one, origin)

    def _is_moved(self, one: ViewNode, origin: bytes) -> bool:
        sources = self._sources
        if origin:
            return origin[HANDLE:] in sources.handles
        # Without handles it is a guess: some file that is no longer at its name was brought here.
        return sources.gone or one.status.st_ino in sources.inodes

    @cached_property
    def _sources(self) -> "_Sources":
        """What could have been moved: all that lay below a name which the command changed."""
        handles: set[bytes] = set()
        inodes: set[int] = set()
        gone = False
        after, before = self.view.root(), self.view.root(1)
        for _, one, other in self._inside(b"", after, before) if after else ():
            if one and not one.is_dir and one.parts[0][0] != 0:
                handles.add(file_handle(one.top))
            if not other or other.is_dir:
                continue
            handles.add(file_handle(other.top))
            copied = one and mark(one.top, "origin", self.form.userxattr) is not None
            if one and copied:
                inodes.add(one.status.st_ino)
            gone = gone or not copied
        return _Sources(handles, inodes, gone)


class _Sources(NamedTuple):
    handles: set[bytes]
    inodes: set[int]  # of copies that are still at their name: another name may be a link to them
    gone: bool


def _listed(path: bytes) -> list[str]:
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError:
        return []


def _same_bytes(one: bytes, other: bytes) -> bool:
    """An unreadable file counts as different: the code that has to save it reports the error."""
    from takeback.model.content import read_pieces

    try:
        with open(one, "rb", buffering=0) as first, open(other, "rb", buffering=0) as second:
            pieces = zip_longest(read_pieces(first.fileno()), read_pieces(second.fileno()))
            return all(here is there or here == there for here, there in pieces)
    except PermissionError:
        return False


def file_handle(path: bytes) -> bytes:
    """The permanent handle of this inode; empty if the filesystem has none."""
    import ctypes

    class Handle(ctypes.Structure):
        _fields_ = [("length", ctypes.c_uint), ("kind", ctypes.c_int), ("told", ctypes.c_ubyte * 128)]

    handle, mount = Handle(128, 0), ctypes.c_int()
    library = ctypes.CDLL(None, use_errno=True)
    if library.name_to_handle_at(-100, path, ctypes.byref(handle), ctypes.byref(mount), 0) < 0:
        return b""
    return bytes(handle.told[: handle.length])
