"""Squash and remove layers, with the rights that commands had inside."""

import errno
import json
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from takeback.sandbox.layer import LayerForm, Mount, is_whiteout, prefix_of, read_form, remove, write_form
from takeback.sandbox.privileges import is_privileged

# The merged view of several uppers of an overlay, without a mount: the rules of the kernel's lookup.
#
# A directory of an upper continues in the layers below it, under the same name or, when it was renamed, under the name
# that its `redirect` tells; an opaque one ends there. What lies below all the uppers is not looked at: a directory only
# says where in that world it continues.


class MergedEntry(NamedTuple):
    path: bytes  # below the mount point, without a slash at the beginning; empty for the mount point itself
    source: bytes  # the topmost thing of that name: for a whiteout the whiteout
    status: os.stat_result  # of the source
    below: bytes | None  # a directory: where it continues in the world below (absolute there); None: nowhere
    hides: bool  # something may lie below it under the name it has
    bottom: bytes = b""  # a directory: the lowest of those it is put together from

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_gone(self) -> bool:
        return is_whiteout(self.status)


class _Place(NamedTuple):
    """A directory of one upper, or of the world below (number = how many uppers there are)."""

    number: int
    path: bytes


class _Found(NamedTuple):
    parts: tuple[_Place, ...]  # topmost first
    status: os.stat_result | None
    below: bytes | None


def walk(uppers: Sequence[bytes], prefix: str) -> Iterator[MergedEntry]:
    """Everything in them, the topmost upper first in `uppers`; parents before what is in them. `prefix` is that of
    overlay's own attributes."""
    return _Merged(uppers, prefix).entries()


class _Merged:
    def __init__(self, uppers: Sequence[bytes], prefix: str) -> None:
        self._uppers = tuple(uppers)
        self._opaque = f"{prefix}opaque"
        self._redirect = f"{prefix}redirect"

    def entries(self) -> Iterator[MergedEntry]:
        roots = self._roots(0)
        yield MergedEntry(b"", roots[0].path, os.lstat(roots[0].path), b"/", True, self._uppers[-1])
        waiting: list[tuple[bytes, tuple[_Place, ...]]] = [(b"", roots)]
        while waiting:
            path, parts = waiting.pop()
            hides = parts[-1].number == len(self._uppers)
            for name in self._names(parts):
                found = self._lookup(parts, name)
                if found.status is None:
                    continue
                inner = os.path.join(path, name) if path else name
                top, bottom = found.parts[0].path, found.parts[-1].path
                yield MergedEntry(inner, top, found.status, found.below, hides, bottom)
                if stat.S_ISDIR(found.status.st_mode):
                    more = () if found.below is None else (_Place(len(self._uppers), found.below),)
                    waiting.append((inner, found.parts + more))

    def _roots(self, number: int) -> tuple[_Place, ...]:
        """Of the uppers from this one on, and of the world below."""
        mine = enumerate(self._uppers[number:], number)
        return (*(_Place(place, path) for place, path in mine), _Place(len(self._uppers), b"/"))

    def _names(self, parts: tuple[_Place, ...]) -> list[bytes]:
        names: set[bytes] = set()
        for place in parts:
            if place.number < len(self._uppers):
                names.update(os.listdir(place.path))
        return sorted(names)

    def _lookup(self, parts: tuple[_Place, ...], name: bytes) -> _Found:
        found: list[_Place] = []
        top: os.stat_result | None = None
        wanted, left = name, list(parts)
        while left:
            place = left.pop(0)
            if place.number == len(self._uppers):
                return _Found(tuple(found), top, os.path.join(place.path, wanted))
            path, status, stops, after = self._step(place, wanted)
            if status is not None:
                if top is not None and not stat.S_ISDIR(status.st_mode):
                    break  # a directory over something that is none: they do not merge
                found.append(_Place(place.number, path))
                top = top or status
            if stops:
                break
            if after != wanted and after.startswith(b"/"):
                left = list(self._roots(place.number + 1))
            wanted = after
        return _Found(tuple(found), top, None)

    def _step(self, place: _Place, wanted: bytes) -> tuple[bytes, os.stat_result | None, bool, bytes]:
        """In one upper: its path, its state, whether lower layers no longer count, and the name to look for below."""
        path, after, stops = place.path, wanted, False
        names = wanted.strip(b"/").split(b"/")
        for count, name in enumerate(names, 1):
            path = os.path.join(path, name)
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                return path, None, stops, after
            if not stat.S_ISDIR(status.st_mode):
                return path, status if count == len(names) else None, True, after
            if stops := self._attribute(path, self._opaque) == b"y" or stops:
                continue
            if redirect := self._attribute(path, self._redirect):
                # A name of a directory on the way changes that part of the path, and nothing after it.
                rest = names[count:]
                if not redirect.startswith(b"/"):
                    before = after.strip(b"/").split(b"/")[: -len(rest) - 1]
                    redirect = (b"/" if wanted.startswith(b"/") else b"") + b"/".join([*before, redirect])
                after = b"/".join([redirect, *rest])
        return path, status, stops, after  # pyright: ignore[reportPossiblyUnboundVariable]

    def _attribute(self, path: bytes, name: str) -> bytes:
        try:
            return os.getxattr(path, name, follow_symlinks=False)
        except OSError:
            return b""


# Several layers become one that shows the same, by hard links: no content is read or copied.
#
# The layers themselves stay as they are. The one made of them stands for all of them in a stack, over
# anything that may lie below.


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
    userxattr = forms[0].userxattr
    for number, point in enumerate(sorted(uppers)):
        _squash_uppers(uppers[point], os.fsencode(f"{into}/{number}"), prefix_of(userxattr))
        mounts.append(oldest[point]._replace(upper=str(number)))
    started, redirect = min(form.started_ns for form in forms), any(form.redirect for form in forms)
    write_form(into, LayerForm(tuple(mounts), userxattr, redirect, started, forms[-1].way))


def _squash_uppers(uppers: Sequence[bytes], target: bytes, prefix: str) -> None:
    goes_on: dict[bytes, bytes | None] = {}  # by directory: where it continues below
    made: list[tuple[MergedEntry, bytes]] = []
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


def _mark(path: bytes, entry: MergedEntry, around: bytes | None, prefix: str) -> None:
    """Where it continues below, unless that is where it would be looked for anyway."""
    if entry.below is None:
        if around is not None:
            os.setxattr(path, f"{prefix}opaque", b"y")
    elif around is None or entry.below != os.path.join(around, os.path.basename(entry.path)):
        os.setxattr(path, f"{prefix}redirect", entry.below)


def _link(entry: MergedEntry, path: bytes) -> None:
    try:
        os.link(entry.source, path, follow_symlinks=False)
    except OSError as error:
        if error.errno != errno.EMLINK or not entry.is_gone:
            raise
        os.mknod(path, stat.S_IFCHR, 0)


def _dress(entry: MergedEntry, path: bytes, prefix: str) -> None:
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


def _keep_origin(entry: MergedEntry, path: bytes, prefix: str) -> None:
    """That there was such a directory below the lowest layer: a new one has no such note."""
    name = f"{prefix}origin"
    with suppress(OSError):
        os.setxattr(path, name, os.getxattr(entry.bottom, name))


# Work on layers with the rights that commands had inside: an ordinary user cannot enter a directory that a
# command closed to its own owner, nor remove what belongs to one of the other users of his root filesystem.
# In a user namespace as theirs he can. Root needs none of this.


_START = "import sys; sys.path.insert(0, {source!r}); from takeback.sandbox.layer_owner import main; main(sys.argv[1])"


def squash_as_owner(layers: Sequence[str], into: str, root: str) -> None:
    """As `squash`; `root` is what the layers are over."""
    if is_privileged():
        squash(layers, into)
    else:
        _have_done({"squash": list(map(os.path.abspath, layers)), "into": os.path.abspath(into)}, root)


def remove_as_owner(path: str, root: str) -> None:
    try:
        remove(path)
    except PermissionError:
        if is_privileged():
            raise
        _have_done({"remove": os.path.abspath(path)}, root)


def _have_done(work: dict[str, Any], root: str) -> None:
    program = sys.executable or "/usr/bin/python3"
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    asked = json.dumps(work | {"mapped": os.path.realpath(root) != "/"})
    argv = [program, "-I", "-S", "-c", _START.format(source=source), asked]
    read, write = os.pipe2(os.O_CLOEXEC)
    nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate((nothing, write, nothing))]
        pid = os.posix_spawn(program, argv, dict(os.environ), file_actions=actions)
    except BaseException:
        os.close(read)
        raise
    finally:
        os.close(nothing)
        os.close(write)
    with open(read, "rb") as answers:
        told = answers.read().decode("utf-8", "surrogateescape")
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        code, _, path = told.partition(" ")
        number = int(code) if code.isdigit() else errno.EIO  # it ended in the middle
        raise OSError(number, os.strerror(number), path or work.get("into") or work.get("remove"))


def main(told: str) -> None:
    from takeback.sandbox.privileges import enter_as_oneself, enter_as_root

    work: dict[str, Any] = json.loads(told)
    code = 0
    try:
        enter_as_root() if work["mapped"] else enter_as_oneself()
        if "squash" in work:
            squash(work["squash"], work["into"])
        else:
            remove(work["remove"])
    except OSError as error:
        os.write(1, b"%d %s" % (error.errno or errno.EIO, os.fsencode(error.filename or "")))
        code = 1
    os._exit(code)
