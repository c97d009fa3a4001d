"""Make ready what a unit is to become, under a scratch name beside it: complete, but not yet durable."""

import errno
import os

from takeback.adapters.file.build import Tools, build, dress, umask
from takeback.adapters.file.content import write_all, write_content
from takeback.adapters.file.handles import Handles
from takeback.adapters.file.hold import link_held
from takeback.adapters.file.kernel import sync_together
from takeback.adapters.file.paths import Place, open_below
from takeback.adapters.file.states import State, same
from takeback.adapters.file.trouble import CannotCapture
from takeback.adapters.file.xattrs import write_xattrs
from takeback.adapters.tree.lending import Lent
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import is_dir, see
from takeback.model.resource import unquote

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LINK = (
    errno.EXDEV,
    errno.EMLINK,
    errno.EPERM,
    errno.EOPNOTSUPP,
)  # across a mount, one too many, not allowed
_LIST = os.O_RDONLY | os.O_DIRECTORY


class Builder:
    """Remembers where the names of a file were made, so that further names become links to it."""

    def __init__(
        self,
        tools: Tools,
        places: Places,
        adjusted: dict[str, State],
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
        self._made: dict[
            str, tuple[str, bytes]
        ] = {}  # by resource: the directory it waits in, and its name there
        self._me = (os.geteuid(), os.getegid())
        self._waiting: list[int] = []  # files that are not durable yet, open
        self._masked = umask() | 0o7000  # bits a new file does not get by asking

    def make_durable(self) -> None:
        sync_together(self._waiting)
        self.close()

    def start_anew(self) -> None:
        """What was made ready was removed again."""
        self.close()
        self._made.clear()

    def close(self) -> None:
        while self._waiting:
            os.close(self._waiting.pop())

    def make(self, place: Place, state: State, inside: dict[str, State]) -> None:
        """`place` is the scratch name; its resource is that of the unit."""
        if not is_dir(state):
            self._entry(place, state, place.resource, fresh=False)
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

    def complete(self, place: Place, state: State, inside: dict[str, State]) -> None:
        """Of a directory that was partly removed: what is missing is made again."""
        root = open_below(place.fd, place.name, _LIST, cross_mounts=False)
        try:
            self._fill(root, place, inside, existing=True)
            dress(root, state)
        finally:
            os.close(root)

    def _fill(self, root: int, place: Place, inside: dict[str, State], existing: bool) -> None:
        outer = place.resource.rpartition("/")[0]
        with Handles(root) as handles:
            for path, state in inside.items():
                parent, _, name = path.rpartition("/")
                entry = Place(handles.open(parent), unquote(name), f"{place.resource}/{path}")
                try:
                    self._entry(entry, state, entry.resource, fresh=True)
                except FileExistsError:
                    if not existing:
                        raise
                self._remember(state, entry.resource, outer, place.name + b"/" + unquote(path))
                self._tools.progress.moved(items=1)
            for path in reversed(inside):
                if is_dir(inside[path]):
                    fd = handles.open(path)
                    dress(fd, inside[path])

    def _remember(self, state: State, resource: str, directory: str, name: bytes) -> None:
        if state["type"] != "dir":
            self._made[resource] = (directory, name)

    def _entry(self, place: Place, state: State, resource: str, fresh: bool) -> None:
        kind = state["type"]
        if "twin" in state and self._link(place, state):
            return
        if kind == "file":
            if "held" in state and link_held(self._tools, state["held"], place, state):
                return
            if self._lent is None or not self._lent.take(resource, place, state, self._durable and not fresh):
                self._file(place, state, fresh)
        elif kind == "dir":
            os.mkdir(place.name, 0o700, dir_fd=place.fd)
        else:
            build(place, state, self._tools)

    def _file(self, place: Place, state: State, fresh: bool) -> None:
        mode = state["mode"]
        at_once = fresh and not mode & self._masked
        fd = os.open(place.name, _CREATE, mode if at_once else 0o600, dir_fd=place.fd)
        try:
            if "holes" in state:
                write_content(fd, state, self._tools.blobs)
            else:
                for piece in self._tools.blobs.read(state["digest"]):
                    write_all(fd, piece)
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

    def _link(self, place: Place, state: State) -> bool:
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

    def _is_twin(self, found: State, wanted: State) -> bool:
        if wanted["twin"] in self._adjusted:
            return found["type"] == wanted["type"] and found.get("digest") == wanted.get("digest")
        return same(found, wanted)

    def waits_at(self, place: Place, state: State, inside: dict[str, State]) -> None:
        """What a unit is to become is there already, under this scratch name."""
        outer = place.resource.rpartition("/")[0]
        self._remember(state, place.resource, outer, place.name)
        for path, entry in inside.items():
            self._remember(entry, f"{place.resource}/{path}", outer, place.name + b"/" + unquote(path))
