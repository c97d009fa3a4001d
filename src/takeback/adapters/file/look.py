"""See what is at a place now, as a state; in as much depth as the state it will be compared with asks for."""

import os
import stat
from typing import NamedTuple

from takeback.adapters.file.content import at, read_file, read_xattrs
from takeback.adapters.file.directory import ReadScope, SeenDirectory, read_tree, tree_state
from takeback.adapters.file.kernel import born
from takeback.adapters.file.os_errors import CannotCapture
from takeback.adapters.file.paths import Place, open_below
from takeback.adapters.file.states import ABSENT, TYPES, FileState, same_inode
from takeback.model.resource import quote

_WORTH_HASHING = 64 << 20  # a moved file up to this size is known again by its bytes as well as by its inode


class Sight(NamedTuple):
    state: FileState
    seen: SeenDirectory | None = None  # of a directory


def look(
    place: Place,
    manner: FileState = ABSENT,
    scope: ReadScope | None = None,
    status: os.stat_result | None = None,
) -> FileState:
    # What was left out when it was captured is left out again; who removes anything looks at each entry himself.
    scope = scope or ReadScope(lost=[] if "left_out" in manner else None)
    return look_closely(place, manner, scope, status).state


def look_closely(
    place: Place, manner: FileState, scope: ReadScope, status: os.stat_result | None = None
) -> Sight:
    """`manner` is a state this one will be compared with; reduced states need no reading."""
    status = status or place.stat()
    if status is None:
        return Sight(ABSENT)
    if "meta" in manner:
        return Sight(meta_state(status))
    if "identity" in manner:
        return Sight(identity_state(place, status, manner))
    if "excluded" in manner:
        return Sight(excluded_state(status, manner["excluded"]))
    owners = scope.owners and "owner_lost" not in manner
    kind = TYPES[stat.S_IFMT(status.st_mode)]
    if kind == "file":
        try:
            state = read_file(
                place.fd, place.name, place.resource, scope.keep, scope.limit, owners, scope.progress
            )
            if scope.hold and state["nlink"] > 1:
                state["held"] = scope.hold
            return Sight(state)
        except CannotCapture as reason:
            if scope.lost is None:
                raise
            scope.lost.append(reason)
            return Sight(excluded_state(status, reason.reason))
    if kind == "dir":
        return _directory(place, scope._replace(owners=owners))
    state = _node(place, kind, status)
    if not owners:
        state["owner_lost"] = True
    return Sight(state)


def _node(place: Place, kind: str, status: os.stat_result) -> FileState:
    """A symbolic link or a special file; neither is ever opened."""
    state = _plain(kind, status)
    if kind == "symlink":
        state["target"] = quote(os.readlink(place.name, dir_fd=place.fd))
    if xattrs := read_xattrs(at(place.fd, place.name)):
        state["xattrs"] = xattrs
    return state


def _directory(place: Place, scope: ReadScope) -> Sight:
    try:
        fd = open_below(place.fd, place.name, os.O_RDONLY | os.O_DIRECTORY, cross_mounts=False)
    except PermissionError:
        raise CannotCapture(place.resource, "its entries are not readable", readable=False) from None
    try:
        seen = read_tree(fd, place.resource, scope)
        return Sight(tree_state(fd, place.resource, seen, scope), seen)
    finally:
        os.close(fd)


def _plain(kind: str, status: os.stat_result) -> FileState:
    state: FileState = {
        "type": kind,
        "mode": stat.S_IMODE(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
        "mtime": status.st_mtime_ns,
        "dev": status.st_dev,
        "ino": status.st_ino,
    }
    if kind in ("char", "block"):
        state["rdev"] = status.st_rdev
    return state


def meta_state(status: os.stat_result) -> FileState:
    """Only the mode counts; for chmod, which concerns nothing else."""
    return {
        "type": TYPES[stat.S_IFMT(status.st_mode)],
        "meta": True,
        "mode": stat.S_IMODE(status.st_mode),
        "dev": status.st_dev,
        "ino": status.st_ino,
    }


def identity_state(place: Place, status: os.stat_result, manner: FileState) -> FileState:
    """Which file it is; for a move, which brings along whatever is in it."""
    state = _plain(TYPES[stat.S_IFMT(status.st_mode)], status)
    state |= {"identity": True, "born": born(place.fd, place.name)}
    if state["type"] == "symlink":
        state["target"] = quote(os.readlink(place.name, dir_fd=place.fd))
    if state["type"] == "file" and status.st_size <= _WORTH_HASHING:
        if same_inode(manner, state):
            if "digest" in manner:
                state["digest"] = manner["digest"]
        else:
            try:
                state["digest"] = read_file(place.fd, place.name, place.resource, None)["digest"]
            except CannotCapture:
                pass  # then only the inode tells it
    return state


def excluded_state(status: os.stat_result, reason: str) -> FileState:
    kind = TYPES[stat.S_IFMT(status.st_mode)]
    return _plain(kind, status) | {"size": status.st_size, "excluded": reason}
