"""Files with several names: the inode itself is kept in a directory of ours, so that undo makes the group whole."""

import os
import stat

from takeback.adapters.file.build import Tools, file_state
from takeback.adapters.file.content import read_file
from takeback.adapters.file.kernel import rename_new
from takeback.adapters.file.manifest import PATH, extra, read_manifest
from takeback.adapters.file.paths import Place, open_below
from takeback.adapters.file.states import State, counted, same
from takeback.adapters.file.trouble import CannotCapture
from takeback.model.resource import unquote

NOT_HELD = "other names of {name} stay with the old file; undo makes a separate one"


def open_held(tools: Tools) -> int:
    """A handle on the directory of held inodes; -1 if there is none."""
    if not tools.held:
        return -1
    try:
        return os.open(tools.held, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return -1


def can_hold(tools: Tools, place: Place) -> bool:
    """Whether an inode from there can be moved here: the same mount of the same filesystem."""
    fd = open_held(tools)
    if fd < 0:
        return False
    try:
        return mount_of(fd) == mount_of(place.fd) != b""
    finally:
        os.close(fd)


def mount_of(fd: int) -> bytes:
    try:
        with open(f"/proc/self/fdinfo/{fd}", "rb") as lines:
            return (
                next((line for line in lines if line.startswith(b"mnt_id:")), b"")
                + b"%d" % os.fstat(fd).st_dev
            )
    except OSError:
        return b""


def hold(tools: Tools, name: str, place: Place) -> bool:
    """Take the inode at the place away into our directory, in one step. False if it could not be moved."""
    fd = open_held(tools)
    if fd < 0:
        return False
    try:
        try:
            rename_new(place.fd, place.name, fd, name.encode())
        except FileExistsError:
            if not _is_the_same(_status(fd, name), place.stat()):
                return False  # another one waits under this name, and goes on waiting
            os.unlink(place.name, dir_fd=place.fd)
        os.fsync(fd)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def _status(fd: int, name: bytes | str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_the_same(one: os.stat_result | None, other: os.stat_result | None) -> bool:
    if one is None or other is None:
        return False
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def link_held(tools: Tools, name: str, place: Place, wanted: State) -> bool:
    """Give the held inode the place's name again, if it still is what was captured."""
    fd = open_held(tools)
    if fd < 0:
        return False
    try:
        state = read_file(fd, name, place.resource, None)
        if not same(state, wanted):
            return False
        os.link(name, place.name, src_dir_fd=fd, dst_dir_fd=place.fd, follow_symlinks=False)
        return True
    except FileExistsError:
        raise
    except (OSError, CannotCapture):
        return False
    finally:
        os.close(fd)


def name_to_hold(tools: Tools, left: State, otherwise: str) -> str:
    """Under what name to hold what an undo left: the one it was held under before. So not only the redo can be taken
    back, which displaces it now, but also the effect that displaced it first and is then in force again."""
    earlier: str | bool = left.get("held") or left.get("holds") or ""
    if not isinstance(earlier, str) or not earlier:
        return otherwise
    fd = open_held(tools)
    if fd < 0:
        return otherwise
    try:
        return earlier if _status(fd, earlier) is None else otherwise
    finally:
        os.close(fd)


def release_returned(tools: Tools, place: Place, state: State) -> None:
    """Let go of every inode of this state that has its own name again, so that no name of ours stays in its group."""
    if not ("held" in state or state.get("holds")) or place.stat() is None:
        return
    fd = open_held(tools)
    if fd < 0:
        return
    try:
        released = False
        for path, name in _held_in(state, tools):
            held = _status(fd, name)
            if held is not None and _is_the_same(held, _status_below(place, path)):
                os.unlink(name, dir_fd=fd)
                released = True
        if released:
            os.fsync(fd)
    finally:
        os.close(fd)


def _held_in(state: State, tools: Tools) -> list[tuple[str, str]]:
    """What is held of a state: its path inside (empty for the thing itself), and the name of the held inode."""
    if "held" in state:
        return [("", state["held"])]
    rows = read_manifest(tools.blobs, state["manifest"])
    return [(row[PATH], extra(row)["held"]) for row in rows if "held" in extra(row)]


def _status_below(place: Place, path: str) -> os.stat_result | None:
    if not path:
        return place.stat()
    parent, _, name = path.rpartition("/")
    inside = place.name + b"/" + unquote(parent)
    try:
        fd = open_below(place.fd, inside, os.O_PATH | os.O_DIRECTORY, cross_mounts=False)
    except OSError:
        return None  # whatever is in the way, it is not there under its own name
    try:
        return _status(fd, unquote(name))
    finally:
        os.close(fd)


def stays_apart(tools: Tools, state: State) -> str:
    """Half a sentence for an undo that cannot make a group whole: the inode was not held, or was edited since."""
    if state["type"] == "file":
        if "held" not in state and state.get("nlink", 1) == 1:
            return ""
        if "held" in state and _waits(tools, state["held"], state):
            return ""
        return "it stays apart from other names it had"
    apart: int = state.get("apart", 0)
    if state.get("holds"):
        rows = read_manifest(tools.blobs, state["manifest"])
        apart += sum(
            not _waits(tools, extra(row)["held"], file_state(row)) for row in rows if "held" in extra(row)
        )
    if not apart:
        return ""
    return (
        f"{counted(apart, 'file')} in it {'stays' if apart == 1 else 'stay'} apart from other names outside"
    )


def _waits(tools: Tools, name: str, wanted: State) -> bool:
    """Whether the held inode is still what was captured."""
    fd = open_held(tools)
    if fd < 0:
        return False
    try:
        status = _status(fd, name)
        if status is None:
            return False
        # Reading is for the case of doubt: a tree may have thousands of them.
        if (status.st_size, status.st_mtime_ns) == (wanted["size"], wanted["mtime"]):
            return stat.S_IMODE(status.st_mode) == wanted["mode"]
        return same(read_file(fd, name, name, None), wanted)
    except (OSError, CannotCapture):
        return False
    finally:
        os.close(fd)


def release_held(tools: Tools, effect: str) -> None:
    """Let go of all inodes that are held for an effect."""
    fd = open_held(tools)
    if fd < 0:
        return
    try:
        for name in os.listdir(fd):
            if name.startswith(effect):
                os.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)
