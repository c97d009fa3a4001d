"""The directories of many paths, each opened once and without following any symbolic link."""

import errno
import os
from collections.abc import Collection

from takeback.adapters.file.build import chmod_inode
from takeback.adapters.file.kernel import AT_ROOT
from takeback.adapters.file.paths import KeptOpen, Place, open_below
from takeback.adapters.tree.states import LOOK, OPEN, closed_mode, is_closed
from takeback.errors import Misuse
from takeback.model.remedy import Target
from takeback.model.resource import ancestors, path_of, unquote

_UNLOCKED = 256
_READ = os.O_RDONLY | os.O_DIRECTORY
_PATH = os.O_PATH | os.O_DIRECTORY


class Places(KeptOpen):
    """By the resource of a directory. Handles are shared: a place from here is not to be closed."""

    most = 64

    def __init__(self, targets: Collection[Target] = (), unlock: bool = False) -> None:
        """Of an effect's own paths that are or will be symbolic links it is known that they are no directories.
        `unlock`: those that are closed even to their owner are opened while something in them is looked at."""
        super().__init__()
        self._closed = {
            target.resource
            for target in targets
            if unlock and is_closed(target.before, target.after, to=LOOK)
        }
        # Directories opened for a look: handle and mode, outermost first.
        self._unlocked: list[tuple[int, int]] = []
        self._links = {
            target.resource
            for target in targets
            if "symlink" in (target.before["type"], target.after["type"])
        }

    def note_link(self, resource: str) -> None:
        """Here is a symbolic link; nothing lies below it, whatever is to come there."""
        self._links.add(resource)

    def close(self) -> None:
        self.lock_again()
        super().close()

    def at(self, resource: str) -> Place:
        """The name in its directory; FileNotFoundError or NotADirectoryError where there is no such directory."""
        parent, _, name = resource.rpartition("/")
        if not name:
            raise Misuse("The root directory cannot be a target.", hint="Name something inside it.")
        return Place(self.open(parent), unquote(name), resource)

    def if_there(self, resource: str) -> Place | None:
        try:
            return self.at(resource)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def inode(self, resource: str) -> tuple[int, int] | None:
        place = self.if_there(resource) if resource else None
        status = place.stat() if place else None
        return (status.st_dev, status.st_ino) if status else None

    def within_reach(self, resource: str) -> Place | None:
        """None also where a symbolic link is on the way that is none of the effect's."""
        try:
            return self.if_there(resource)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            return None

    def names_in(self, place: Place) -> list[bytes]:
        """Entries of the directory at this place, without mount points."""
        try:
            fd = open_below(place.fd, place.name, _READ, cross_mounts=False)
        except PermissionError:
            if not self._unlock(place.resource):
                raise
            fd = open_below(place.fd, place.name, _READ, cross_mounts=False)
        try:
            return [os.fsencode(name) for name in os.listdir(fd)]
        finally:
            os.close(fd)

    def _opened(self, name: str) -> int:
        path = path_of(name) or b"/"
        try:
            return open_below(AT_ROOT, path, _READ)
        except PermissionError:
            return open_below(AT_ROOT, path, _READ if self._unlock(name) else _PATH)
        except OSError as error:
            if error.errno == errno.ELOOP and not self._links.isdisjoint((name, *ancestors(name))):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
            raise

    def forget(self, resource: str) -> None:
        """This directory, or an entry of it, has been replaced: forget the old handles."""
        for each in [one for one in self._kept if one == resource or one.startswith(resource + "/")]:
            os.close(self._kept.pop(each))

    def _unlock(self, resource: str) -> bool:
        """Whether a directory of the effect's was in the way, and is open for now."""
        closed = self._closed.intersection((resource, *ancestors(resource)))
        if not closed:
            return False
        if len(self._unlocked) > _UNLOCKED:
            self.lock_again()
        before = len(self._unlocked)
        for each in sorted(closed, key=len):
            place = self.at(each)
            status = place.stat()
            mode = closed_mode(status, LOOK) if status else -1
            if mode >= 0:
                chmod_inode(place.fd, place.name, mode | OPEN)
                self.forget(each)
                self._unlocked.append((open_below(place.fd, place.name, _READ, cross_mounts=False), mode))
        return len(self._unlocked) > before

    def lock_again(self) -> None:
        """Restore the mode of directories that were opened for a look, innermost first; by handle, so also if they have
        moved."""
        while self._unlocked:
            fd, mode = self._unlocked.pop()
            try:
                os.fchmod(fd, mode)
            finally:
                os.close(fd)
