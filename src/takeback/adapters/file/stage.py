"""Prepare new content out of sight: complete, with its properties, and durable before the intent is written."""

import os
import stat
from contextlib import suppress
from typing import Any, NamedTuple

from takeback.adapters.file.build import Tools, nameless_file
from takeback.adapters.file.content import CAPABILITY, PIECE, read_xattrs, write_all, write_xattrs
from takeback.adapters.file.os_errors import CannotCapture
from takeback.adapters.file.paths import Place, open_below, scratch
from takeback.adapters.file.states import FileState, inode_state
from takeback.errors import NoRemedy
from takeback.model.change import Change
from takeback.model.resource import display, path_of

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class StagedFile(NamedTuple):
    """New content waiting to be put in place."""

    resource: str
    fd: int
    path: str
    content: bytes | None
    state: FileState
    named: bool


class WantedFile(NamedTuple):
    """One file of a write."""

    resource: str
    digest: str
    mode: int | None
    size: int | None = None


def wanted_files(change: Change) -> list[WantedFile]:
    one = change.args | {"resource": change.resource}
    listed: list[dict[str, Any]] = [one] if change.kind == "write" else change.args["files"]
    return [WantedFile(one["resource"], one["content"], one.get("mode"), one.get("size")) for one in listed]


def make_ready(
    place: Place, wanted: WantedFile, effect: str, index: int, tools: Tools, named: bool, inexact: bool
) -> StagedFile:
    """The kernel chooses mode, group and ACL as for any new file in that directory; an old file hands down its own."""
    building = scratch(effect, index, place.name).building
    fd = -1 if named else nameless_file(place, 0o666)
    if fd < 0:
        named = True
        with suppress(FileNotFoundError):
            os.unlink(building, dir_fd=place.fd)
        fd = os.open(building, _CREATE, 0o666, dir_fd=place.fd)
    try:
        content = _fill(fd, wanted.digest, tools)
        state = _inherit(fd, place, wanted, inexact)
        os.fsync(fd)
    except BaseException:
        os.close(fd)
        if named:
            os.unlink(building, dir_fd=place.fd)
        raise
    path = f"/proc/{os.getpid()}/fd/{fd}"
    if named:
        path = os.fsdecode(os.path.dirname(path_of(place.resource)) + b"/" + building)
    return StagedFile(place.resource, fd, path, content, state, named)


def _fill(fd: int, digest: str, tools: Tools) -> bytes | None:
    """Write the content; hand it back while it is small."""
    small: list[bytes] = []
    size = 0
    for piece in tools.blobs.read(digest):
        write_all(fd, piece)
        size += len(piece)
        if size <= PIECE:
            small.append(piece)
    return b"".join(small) if size <= PIECE else None


def _inherit(fd: int, place: Place, wanted: WantedFile, inexact: bool) -> FileState:
    """Owner, ACL and attributes of the file that is replaced; what that made of the new one."""
    old = place.stat()
    mode, owner_lost = wanted.mode, False
    new, xattrs = os.fstat(fd), read_xattrs(fd)
    dressed = False
    if old is not None and stat.S_ISREG(old.st_mode):
        if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
            dressed = True
            try:
                os.fchown(fd, old.st_uid, old.st_gid)
            except PermissionError:
                if not inexact:
                    raise CannotCapture(place.resource, "its owner could not be kept") from None
                owner_lost = True
        inherited = _xattrs_at(place)
        inherited.pop(CAPABILITY, None)
        if inherited != xattrs:
            dressed = True
            write_xattrs(fd, inherited)
        if mode is None:
            # As the kernel does when anyone writes into a privileged program.
            mode = stat.S_IMODE(old.st_mode) & ~(stat.S_ISUID | stat.S_ISGID)
    if mode is not None:
        if dressed or mode != stat.S_IMODE(new.st_mode):
            dressed = True
            os.fchmod(fd, mode)
        demand_readable(place.resource, mode)
    if dressed:
        new, xattrs = os.fstat(fd), read_xattrs(fd)
    state: FileState = {"type": "file", "size": new.st_size, "digest": wanted.digest, **inode_state(new)}
    state["nlink"] = 1
    if xattrs:
        state["xattrs"] = xattrs
    return state | ({"owner_lost": True} if owner_lost else {})


def demand_readable(resource: str, mode: int) -> None:
    """Refuse a mode that we could not read: every written file is read again before it counts as done."""
    if not mode & stat.S_IRUSR and os.geteuid() != 0:
        raise NoRemedy(
            f"With mode {mode:04o}, {display(resource)} could not be read again to see that it was written.",
            hint="Nothing was changed. Make it readable for its owner first (`chmod u+r`), or ask for another mode.",
        )


def _xattrs_at(place: Place) -> dict[str, str]:
    try:
        # One call where there are none, which is nearly always.
        if not os.listxattr(b"/proc/self/fd/%d/%b" % (place.fd, place.name), follow_symlinks=False):
            return {}
        old = open_below(place.fd, place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return {}  # not readable, or a filesystem without attributes
    try:
        return read_xattrs(old)
    finally:
        os.close(old)
