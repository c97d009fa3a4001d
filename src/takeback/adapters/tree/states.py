"""What is at one path of a tree. A directory is a shell there: the inode alone; what is in it are other paths."""

import os
import stat
from typing import NamedTuple

from takeback.adapters.file.content import CAPABILITY, at, file_bytes, read_xattrs
from takeback.adapters.file.directory import ReadScope
from takeback.adapters.file.look import look_closely
from takeback.adapters.file.paths import Place
from takeback.adapters.file.states import ABSENT, FileState, same
from takeback.model.content import name_of

_ACL = "system.posix_acl_access"
_PRIVILEGED = stat.S_ISUID | stat.S_ISGID
OPEN = stat.S_IRWXU  # what an owner needs to work in a directory
LOOK = stat.S_IRUSR | stat.S_IXUSR  # and what to look at all that is in it


def shell_of(status: os.stat_result, xattrs: dict[str, str]) -> FileState:
    """A directory without what is in it."""
    state: FileState = {
        "type": "dir",
        "shell": True,
        "mode": stat.S_IMODE(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
        "mtime": status.st_mtime_ns,
    }
    return state | {"xattrs": xattrs} if xattrs else state


def see(place: Place, manner: FileState = ABSENT, scope: ReadScope | None = None) -> FileState:
    """The present state, in as much detail as `manner` has: the state it will be compared with."""
    status = place.stat()
    if status is None:
        return ABSENT
    reduced = "excluded" in manner or "meta" in manner
    if stat.S_ISDIR(status.st_mode) and not reduced:
        inode = {"dev": status.st_dev, "ino": status.st_ino}
        return shell_of(status, read_xattrs(at(place.fd, place.name))) | inode
    state = look_closely(place, manner, scope or ReadScope(), status).state
    return with_index_meaning(place, state) if "meaning" in manner else state


def with_index_meaning(place: Place, state: FileState) -> FileState:
    """With the meaning of an index of git, so that a refreshed stat cache is no other content."""
    if state["type"] != "file" or "size" not in state:
        return state
    from takeback.adapters.tree.git.formats import MOST, meaning_of

    if state["size"] > MOST:
        return state
    try:
        content = file_bytes(place.fd, place.name, state["size"])
    except OSError:
        return state
    if name_of(content).hex() != state.get("digest"):
        return state  # someone is writing to it
    meaning = meaning_of(content)
    return state | {"meaning": meaning} if meaning else state


def is_dir(state: FileState) -> bool:
    return state["type"] == "dir" and "excluded" not in state


def is_closed(*states: FileState, to: int = OPEN) -> bool:
    """Whether one of them is a directory that even its owner cannot work in, or not even look into."""
    return any(is_dir(state) and state.get("mode", to) & to != to for state in states)


def closed_mode(status: os.stat_result, to: int = OPEN) -> int:
    """Its mode, if it is ours and closed to us; else -1."""
    mode = stat.S_IMODE(status.st_mode)
    me = os.geteuid()
    return mode if me != 0 and status.st_uid == me and mode & to != to else -1


def as_closed(now: FileState, *states: FileState) -> FileState:
    """As if a directory that its owner opened, we or he himself, still had the mode that closes it."""
    for state in states:
        if is_closed(state) and is_dir(now) and now.get("mode") == state["mode"] | OPEN:
            return now | {"mode": state["mode"]}
    return now


def is_excluded(before: FileState, after: FileState) -> bool:
    return "excluded" in before or "excluded" in after


def signed_alike(status: os.stat_result, state: FileState) -> bool:
    """Whether a file is certainly what it was, without reading it."""
    if state["type"] != "file" or not {"ctime", "size"} <= state.keys() or not stat.S_ISREG(status.st_mode):
        return False
    return (
        state["ino"], state["dev"], state["ctime"], state["size"], state["mtime"],
    ) == (status.st_ino, status.st_dev, status.st_ctime_ns, status.st_size, status.st_mtime_ns)  # fmt: skip


def seems_alike(status: os.stat_result, state: FileState, ctime: int) -> bool:
    """The same for one that was read a moment ago, by someone who will read it once more."""
    return state.get("mode") == stat.S_IMODE(status.st_mode) and signed_alike(
        status, state | {"ctime": ctime}
    )


def only_time(one: FileState, other: FileState) -> bool:
    """Nothing tells them apart but a time, or of which file it is another name."""
    return one["type"] != "absent" and same(one, other)


def in_place(start: FileState, goal: FileState) -> bool:
    """Only what the inode carries differs, so it is adjusted where it is: names, readers and sockets stay connected."""
    if start["type"] != goal["type"] or start["type"] in ("absent", "symlink"):
        return False
    if is_excluded(start, goal) or ("shell" in start) != ("shell" in goal):
        return False
    if start.get("twin") != goal.get("twin"):
        return False
    if start.get("holes") != goal.get("holes") and "meta" not in goal:
        return False
    return all(start.get(key) == goal.get(key) for key in ("digest", "size", "rdev"))


def alike(now: FileState, state: FileState) -> bool:
    """The same, but perhaps opened by its owner; or a link to a file that gets its properties last, which still has
    those of the other side."""
    return same(as_closed(now, state), state) or ("late" in state and state["late"].holds(now))


class Mixture(NamedTuple):
    """Whether something is on the way from one state to another of the same inode: each property is of one of them."""

    one: FileState
    other: FileState

    def holds(self, now: FileState) -> bool:
        one, other = self.one, self.other
        if not in_place(one, other) or now["type"] != one["type"] or is_excluded(now, one):
            return False
        if any(now.get(key) != one.get(key) for key in ("digest", "size", "rdev")) and "meta" not in one:
            return False
        if any(now.get(key) not in (one.get(key), other.get(key), None) for key in ("uid", "gid")):
            return False
        return self._mode(now) and self._xattrs(now)

    def _mode(self, now: FileState) -> bool:
        modes = {self.one["mode"], self.other["mode"]}
        # The kernel takes the privileged bits away when the owner changes; an owner opens a directory to work in it.
        modes |= {mode & ~_PRIVILEGED for mode in modes}
        if now["type"] == "dir":
            modes |= {mode | OPEN for mode in modes}
        return now["mode"] in modes

    def _xattrs(self, now: FileState) -> bool:
        if "meta" in self.one:
            return True
        mine, theirs, found = (state.get("xattrs", {}) for state in (self.one, self.other, now))
        for name in {*mine, *theirs, *found}:
            if name in (_ACL, CAPABILITY) and (name in mine or name in theirs):
                continue  # both follow changes of the mode and the owner
            if found.get(name) not in (mine.get(name), theirs.get(name)):
                return False
        return True
