"""Make what a state describes, under a scratch name or without one, ready to be put in place."""

import errno
import os
import stat
from typing import NamedTuple

from takeback.adapters.file.content import write_all, write_content
from takeback.adapters.file.handles import Handles
from takeback.adapters.file.kernel import flush_filesystem
from takeback.adapters.file.manifest import (
    DIGEST,
    EXTRA,
    FIRST,
    GID,
    MODE,
    MTIME,
    PATH,
    TYPE,
    UID,
    WHAT,
    Row,
    extra,
    read_manifest,
)
from takeback.adapters.file.paths import Place, open_below
from takeback.adapters.file.states import SPECIAL, State
from takeback.adapters.file.xattrs import at, write_xattrs
from takeback.model.progress import SILENT, Progress
from takeback.model.resource import unquote
from takeback.storage.protocols import Blobs

NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Tools(NamedTuple):
    """What the parts of the adapter work with."""

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


def dress(fd: int, state: State) -> None:
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


def file_fd(place: Place, state: State, tools: Tools) -> int:
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


def build(place: Place, state: State, tools: Tools) -> None:
    """The thing under the place's (scratch) name, complete and durable."""
    kind = state["type"]
    if kind == "file":
        fd = os.open(place.name, _CREATE, 0o600, dir_fd=place.fd)
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


def _build_node(fd: int, name: bytes, kind: str, state: State) -> None:
    """A symbolic link or a special file; neither is ever opened."""
    if kind == "symlink":
        os.symlink(unquote(state["target"]), name, dir_fd=fd)
    else:
        os.mknod(name, 0o600 | SPECIAL[kind], state.get("rdev", 0), dir_fd=fd)
    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
    if not state.get("owner_lost") and (status.st_uid, status.st_gid) != (state["uid"], state["gid"]):
        os.chown(name, state["uid"], state["gid"], dir_fd=fd, follow_symlinks=False)
    write_xattrs(at(fd, name), state.get("xattrs", {}))
    if kind != "symlink":
        chmod_inode(fd, name, state["mode"])
    os.utime(name, ns=(status.st_atime_ns, state["mtime"]), dir_fd=fd, follow_symlinks=False)


def chmod_inode(dir_fd: int, name: bytes, mode: int) -> None:
    """Of whatever has this name, without opening it and without following a link."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=dir_fd)
    try:
        os.chmod(f"/proc/self/fd/{fd}", mode)
    finally:
        os.close(fd)


def _build_tree(place: Place, state: State, tools: Tools) -> None:
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
        restoring = _Restoring(handles, tools, owners, existing)
        if existing:
            restoring.survivors(rows)
        tools.progress.expect(len(rows))
        for row in rows:
            restoring.put(row)
            tools.progress.moved(items=1)
        for row in reversed(rows):
            if row[TYPE] == "dir":
                restoring.finish_directory(row)


class _Restoring:
    """Entry by entry; `fd` is the directory in hand."""

    def __init__(self, handles: Handles, tools: Tools, owners: bool, existing: bool) -> None:
        self.handles = handles
        self.tools = tools
        self.owners = owners
        self.existing = existing
        self.me = (os.geteuid(), os.getegid())
        self.masked = umask() | 0o7000  # bits a new file does not get by asking
        self.fd = -1
        self.surviving: dict[str, str] = {}

    def survivors(self, rows: list[Row]) -> None:
        """Of a file with several names the first may be gone while another is still there: that is the one file."""
        for row in rows:
            if row[TYPE] == "link":
                name = self._at_if_there(row[PATH])
                if name is not None and row[FIRST] not in self.surviving:
                    self.surviving[row[FIRST]] = row[PATH]

    def _at_if_there(self, path: str) -> bytes | None:
        try:
            name = self._at(path)
            os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return name

    def _at(self, path: str) -> bytes:
        """Open the directory of an entry; the entry's own name."""
        parent, _, name = path.rpartition("/")
        self.fd = self.handles.open(parent)
        return unquote(name)

    def put(self, row: Row) -> None:
        name = self._at(row[PATH])
        try:
            self._make(name, row)
        except FileExistsError:
            if not self.existing:
                raise

    def _make(self, name: bytes, row: Row) -> None:
        kind = row[TYPE]
        if kind == "file":
            if self.surviving and row[PATH] in self.surviving:
                self._link(name, self.surviving[row[PATH]])
            elif not (len(row) > EXTRA and "held" in row[EXTRA] and self._link_held(name, row)):
                self._file(name, row)
        elif kind == "dir":
            os.mkdir(name, 0o700, dir_fd=self.fd)
        elif kind == "link":
            self._link(name, row[FIRST])
        else:
            _build_node(self.fd, name, kind, node_state(row) | ({} if self.owners else {"owner_lost": True}))

    def _file(self, name: bytes, row: Row) -> None:
        mode = row[MODE]
        at_once = not mode & self.masked
        fd = os.open(name, _CREATE, mode if at_once else 0o600, dir_fd=self.fd)
        try:
            if len(row) > EXTRA:
                write_content(fd, file_state(row) | row[EXTRA], self.tools.blobs)
            else:
                for piece in self.tools.blobs.read(row[DIGEST]):
                    write_all(fd, piece)
            if self.owners and (row[UID], row[GID]) != self.me:
                os.fchown(fd, row[UID], row[GID])
            if len(row) > EXTRA:
                write_xattrs(fd, row[EXTRA].get("xattrs", {}), fresh=True)
            if not at_once:
                os.fchmod(fd, mode)
            os.utime(fd, ns=(row[MTIME], row[MTIME]))
        finally:
            os.close(fd)

    def _link(self, name: bytes, first: str) -> None:
        parent, _, base = first.rpartition("/")
        source = self.handles.open(parent)
        os.link(unquote(base), name, src_dir_fd=source, dst_dir_fd=self.fd, follow_symlinks=False)

    def _link_held(self, name: bytes, row: Row) -> bool:
        from takeback.adapters.file.hold import link_held

        return link_held(self.tools, extra(row)["held"], Place(self.fd, name, ""), file_state(row))

    def finish_directory(self, row: Row) -> None:
        name = self._at(row[PATH])
        fd = open_below(self.fd, name, os.O_RDONLY | os.O_DIRECTORY, cross_mounts=False)
        try:
            dress(fd, node_state(row) | self._owner())
        finally:
            os.close(fd)

    def _owner(self) -> State:
        return {} if self.owners else {"owner_lost": True}


def node_state(row: Row) -> State:
    state: State = {
        "type": row[TYPE],
        "mode": row[MODE],
        "uid": row[UID],
        "gid": row[GID],
        "mtime": row[MTIME],
    }
    if row[TYPE] == "symlink":
        state["target"] = row[WHAT]
    elif row[TYPE] in ("char", "block"):
        state["rdev"] = row[WHAT]
    if "xattrs" in extra(row):
        state["xattrs"] = row[EXTRA]["xattrs"]
    return state


def file_state(row: Row) -> State:
    return node_state(row) | {"size": row[WHAT], "digest": row[DIGEST]}
