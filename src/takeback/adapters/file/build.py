"""Make what a state describes, under a scratch name or without one, ready to be put in place."""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from takeback.adapters.file.content import at, read_file, write_all, write_content, write_xattrs
from takeback.adapters.file.directory import (
    DIGEST,
    EXTRA,
    FIRST,
    PATH,
    TYPE,
    WHAT,
    Row,
    extra,
    read_manifest,
)
from takeback.adapters.file.kernel import flush_filesystem, rename_new
from takeback.adapters.file.os_errors import CannotCapture
from takeback.adapters.file.paths import Handles, Place, open_below, status_at
from takeback.adapters.file.states import SPECIAL, FileState, counted, same
from takeback.model.progress import SILENT, Progress
from takeback.model.resource import unquote
from takeback.storage.protocols import Blobs

NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Tools(NamedTuple):
    blobs: Blobs
    held: str = ""  # a directory of ours where inodes with several names wait for their undo
    limit: int = 0
    progress: Progress = SILENT


def nameless_file(place: Place, mode: int = 0o600) -> int:
    """A file in the target's directory that has no name yet: if we die, it is gone. -1 where that is not possible."""
    try:
        return os.open(b".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, mode, dir_fd=place.fd)
    except OSError as error:
        if error.errno in NO_TMPFILE:
            return -1
        raise


def umask() -> int:
    """Asking for it by `os.umask` would change it for a moment, for every thread."""
    with open("/proc/self/status", "rb") as lines:
        return next((int(line.split()[1], 8) for line in lines if line.startswith(b"Umask:")), 0o777)


def dress(fd: int, state: FileState) -> None:
    """Owner, attributes, mode, time: in the order in which none undoes another."""
    status = os.fstat(fd)
    if not state.get("owner_lost") and (status.st_uid, status.st_gid) != (state["uid"], state["gid"]):
        os.fchown(fd, state["uid"], state["gid"])
    write_xattrs(fd, state.get("xattrs", {}))
    # Only what differs: what is protected against changes cannot even be given what it has.
    status = os.fstat(fd)
    if stat.S_IMODE(status.st_mode) != state["mode"]:
        os.fchmod(fd, state["mode"])
    if status.st_mtime_ns != state["mtime"]:
        os.utime(fd, ns=(status.st_atime_ns, state["mtime"]))


def dress_unopened(dir_fd: int, name: bytes, state: FileState) -> None:
    """The same for what must not be opened, or cannot be."""
    status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    if not state.get("owner_lost") and (status.st_uid, status.st_gid) != (state["uid"], state["gid"]):
        os.chown(name, state["uid"], state["gid"], dir_fd=dir_fd, follow_symlinks=False)
    write_xattrs(at(dir_fd, name), state.get("xattrs", {}))
    status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    if state["type"] != "symlink" and stat.S_IMODE(status.st_mode) != state["mode"]:
        chmod_inode(dir_fd, name, state["mode"])
    if status.st_mtime_ns != state["mtime"]:
        os.utime(name, ns=(status.st_atime_ns, state["mtime"]), dir_fd=dir_fd, follow_symlinks=False)


def file_fd(place: Place, state: FileState, tools: Tools) -> int:
    """The file without a name, complete and durable; -1 where files need names."""
    fd = nameless_file(place)
    if fd >= 0:
        try:
            tools.progress.expect(bytes=state["size"])
            write_content(fd, state, tools.blobs)
            dress(fd, state)
            os.fsync(fd)
        except BaseException:
            os.close(fd)
            raise
    return fd


def build(place: Place, state: FileState, tools: Tools) -> None:
    """The thing under the place's (scratch) name, complete and durable."""
    kind = state["type"]
    if kind == "file":
        fd = os.open(place.name, CREATE, 0o600, dir_fd=place.fd)
        try:
            tools.progress.expect(bytes=state["size"])
            write_content(fd, state, tools.blobs)
            dress(fd, state)
            os.fsync(fd)
        finally:
            os.close(fd)
    elif kind == "dir":
        _build_tree(place, state, tools)
    else:
        _build_node(place.fd, place.name, kind, state)


def _build_node(fd: int, name: bytes, kind: str, state: FileState) -> None:
    """A symbolic link or a special file; neither is ever opened."""
    if kind == "symlink":
        os.symlink(unquote(state["target"]), name, dir_fd=fd)
    else:
        os.mknod(name, 0o600 | SPECIAL[kind], state.get("rdev", 0), dir_fd=fd)
    dress_unopened(fd, name, state)


def chmod_inode(dir_fd: int, name: bytes, mode: int) -> None:
    """Of whatever has this name, without opening it and without following a link."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=dir_fd)
    try:
        os.chmod(f"/proc/self/fd/{fd}", mode)
    finally:
        os.close(fd)


def _build_tree(place: Place, state: FileState, tools: Tools) -> None:
    os.mkdir(place.name, 0o700, dir_fd=place.fd)
    root = open_below(place.fd, place.name, os.O_RDONLY | os.O_DIRECTORY, cross_mounts=False)
    try:
        # Whatever the parent hands down (set-group-id, default ACL) must not reach the entries; the record says it all.
        os.fchmod(root, 0o700)
        write_xattrs(root, {})
        rows = [row for row in read_manifest(tools.blobs, state["manifest"]) if "excluded" not in extra(row)]
        restore_entries(root, rows, tools, owners=not state.get("owner_lost"))
        dress(root, state)
        flush_filesystem(root)
    finally:
        os.close(root)


def restore_entries(root: int, rows: list[Row], tools: Tools, owners: bool, existing: bool = False) -> None:
    """Everything a manifest lists, into an empty directory; or only what is missing of it."""
    with Handles(root) as handles:
        restoring = _Restoring(handles, tools, owners)
        if existing:
            restoring.note_survivors(rows)
        tools.progress.expect(len(rows))
        for row in rows:
            try:
                restoring.make(row)
            except FileExistsError:
                if not existing:
                    raise
            tools.progress.moved(items=1)
        for row in reversed(rows):
            if row[TYPE] == "dir":
                dress(handles.open(row[PATH]), node_state(row) | restoring.owner)


class _Restoring:
    """Entry by entry; `fd` is the directory in hand."""

    def __init__(self, handles: Handles, tools: Tools, owners: bool) -> None:
        self.handles = handles
        self.tools = tools
        self.owner: FileState = {} if owners else {"owner_lost": True}
        self.me = (os.geteuid(), os.getegid())
        self.masked = umask() | 0o7000  # bits a new file does not get by asking
        self.fd = -1
        self.surviving: dict[str, str] = {}

    def note_survivors(self, rows: list[Row]) -> None:
        """Of a file with several names the first may be gone while another is still there: that is the one file."""
        for row in rows:
            if row[TYPE] == "link":
                with suppress(FileNotFoundError):
                    os.stat(self._at(row[PATH]), dir_fd=self.fd, follow_symlinks=False)
                    self.surviving.setdefault(row[FIRST], row[PATH])

    def _at(self, path: str) -> bytes:
        """Open the directory of an entry; the entry's own name."""
        parent, _, name = path.rpartition("/")
        self.fd = self.handles.open(parent)
        return unquote(name)

    def make(self, row: Row) -> None:
        name, kind = self._at(row[PATH]), row[TYPE]
        if kind == "file":
            held = row[EXTRA].get("held", "") if len(row) > EXTRA else ""
            if self.surviving and row[PATH] in self.surviving:
                self._link(name, self.surviving[row[PATH]])
            elif not (held and link_held(self.tools, held, Place(self.fd, name, ""), file_state(row))):
                self._file(name, row)
        elif kind == "dir":
            os.mkdir(name, 0o700, dir_fd=self.fd)
        elif kind == "link":
            self._link(name, row[FIRST])
        else:
            _build_node(self.fd, name, kind, node_state(row) | self.owner)

    def _file(self, name: bytes, row: Row) -> None:
        _, _, mode, uid, gid, mtime, _, digest = row[:EXTRA]
        at_once = not mode & self.masked
        fd = os.open(name, CREATE, mode if at_once else 0o600, dir_fd=self.fd)
        try:
            if len(row) > EXTRA:
                write_content(fd, file_state(row) | row[EXTRA], self.tools.blobs)
            else:
                for piece in self.tools.blobs.read(digest):
                    write_all(fd, piece)
            if not self.owner and (uid, gid) != self.me:
                os.fchown(fd, uid, gid)
            if len(row) > EXTRA:
                write_xattrs(fd, row[EXTRA].get("xattrs", {}), fresh=True)
            if not at_once:
                os.fchmod(fd, mode)
            os.utime(fd, ns=(mtime, mtime))
        finally:
            os.close(fd)

    def _link(self, name: bytes, first: str) -> None:
        parent, _, base = first.rpartition("/")
        source = self.handles.open(parent)
        os.link(unquote(base), name, src_dir_fd=source, dst_dir_fd=self.fd, follow_symlinks=False)


def node_state(row: Row) -> FileState:
    kind, _, mode, uid, gid, mtime = row[:WHAT]
    state: FileState = {"type": kind, "mode": mode, "uid": uid, "gid": gid, "mtime": mtime}
    if row[TYPE] == "symlink":
        state["target"] = row[WHAT]
    elif row[TYPE] in ("char", "block"):
        state["rdev"] = row[WHAT]
    if "xattrs" in extra(row):
        state["xattrs"] = row[EXTRA]["xattrs"]
    return state


def file_state(row: Row) -> FileState:
    return node_state(row) | {"size": row[WHAT], "digest": row[DIGEST]}


# Files with several names: the inode itself is kept in a directory of ours, so that undo makes the group whole.


NOT_HELD = "other names of {name} stay with the old file; undo makes a separate one"


@contextmanager
def _opened_held(tools: Tools) -> Generator[int, None, None]:
    """A handle on the directory of held inodes; -1 if there is none."""
    try:
        fd = os.open(tools.held, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW) if tools.held else -1
    except OSError:
        fd = -1
    try:
        yield fd
    finally:
        if fd >= 0:
            os.close(fd)


def can_hold(tools: Tools, place: Place) -> bool:
    """Whether an inode from there can be moved here: the same mount of the same filesystem."""
    with _opened_held(tools) as fd:
        return fd >= 0 and mount_of(fd) == mount_of(place.fd) != b""


def mount_of(fd: int) -> bytes:
    try:
        with open(f"/proc/self/fdinfo/{fd}", "rb") as lines:
            mount = next((line for line in lines if line.startswith(b"mnt_id:")), b"")
            return mount + b"%d" % os.fstat(fd).st_dev
    except OSError:
        return b""


def hold(tools: Tools, name: str, place: Place) -> bool:
    """Take the inode at the place away into our directory, in one step. False if it could not be moved."""
    with _opened_held(tools) as fd:
        if fd < 0:
            return False
        try:
            try:
                rename_new(place.fd, place.name, fd, name.encode())
            except FileExistsError:
                if not _is_the_same(status_at(fd, name), place.stat()):
                    return False  # another inode is held under this name, and stays there
                os.unlink(place.name, dir_fd=place.fd)
            os.fsync(fd)
        except OSError:
            return False
        return True


def _is_the_same(one: os.stat_result | None, other: os.stat_result | None) -> bool:
    if one is None or other is None:
        return False
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def link_held(tools: Tools, name: str, place: Place, wanted: FileState) -> bool:
    """Give the held inode the place's name again, if it still is what was captured."""
    with _opened_held(tools) as fd:
        try:
            if fd < 0 or not same(read_file(fd, name, place.resource, None), wanted):
                return False
            os.link(name, place.name, src_dir_fd=fd, dst_dir_fd=place.fd, follow_symlinks=False)
        except FileExistsError:
            raise
        except (OSError, CannotCapture):
            return False
        return True


def name_to_hold(tools: Tools, left: FileState, otherwise: str) -> str:
    """Under what name to hold what an undo left: the one it was held under before. So not only the redo can be taken
    back, which displaces it now, but also the effect that displaced it first and is then in force again."""
    earlier: str | bool = left.get("held") or left.get("holds") or ""
    if not isinstance(earlier, str) or not earlier:
        return otherwise
    with _opened_held(tools) as fd:
        return earlier if fd >= 0 and status_at(fd, earlier) is None else otherwise


def release_returned(tools: Tools, place: Place, state: FileState) -> None:
    """Let go of every inode of this state that has its own name again, so that no name of ours stays in its group."""
    if not ("held" in state or state.get("holds")) or place.stat() is None:
        return
    with _opened_held(tools) as fd:
        if fd < 0:
            return
        held = [("", state["held"])] if "held" in state else []  # by path inside, empty for the thing itself
        if not held:
            rows = read_manifest(tools.blobs, state["manifest"])
            held = [(row[PATH], extra(row)["held"]) for row in rows if "held" in extra(row)]
        released = False
        for path, name in held:
            if _is_the_same(status_at(fd, name), _status_below(place, path)):
                os.unlink(name, dir_fd=fd)
                released = True
        if released:
            os.fsync(fd)


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
        return status_at(fd, unquote(name))
    finally:
        os.close(fd)


def stays_apart(tools: Tools, state: FileState) -> str:
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


def _waits(tools: Tools, name: str, wanted: FileState) -> bool:
    """Whether the held inode is still what was captured."""
    with _opened_held(tools) as fd:
        try:
            status = status_at(fd, name) if fd >= 0 else None
            if status is None:
                return False
            # Reading is for the case of doubt: a tree may have thousands of them.
            if (status.st_size, status.st_mtime_ns) == (wanted["size"], wanted["mtime"]):
                return stat.S_IMODE(status.st_mode) == wanted["mode"]
            return same(read_file(fd, name, name, None), wanted)
        except (OSError, CannotCapture):
            return False


def release_held(tools: Tools, effect: str) -> None:
    """Let go of all inodes that are held for an effect."""
    with _opened_held(tools) as fd:
        for name in os.listdir(fd) if fd >= 0 else ():
            if name.startswith(effect):
                os.unlink(name, dir_fd=fd)
