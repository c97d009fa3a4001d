"""Remove what was moved aside: never across a mount, never through a link, and no entry that is not in the store."""

import errno
import os
import stat
from collections.abc import Callable

from takeback.adapters.file.build import Tools
from takeback.adapters.file.custody import Custody, quoted
from takeback.adapters.file.hold import hold
from takeback.adapters.file.paths import Place, open_below
from takeback.adapters.file.states import State
from takeback.adapters.file.tree import listing
from takeback.model.resource import unquote

Ours = Callable[[int, str, str], bool]


class Intruder(Exception):
    """An entry appeared or changed after the check; the path says which."""


def remove_built(place: Place) -> None:
    """Something of our own making that nobody was ever shown."""
    status = place.stat()
    if status is None:
        return
    if stat.S_ISDIR(status.st_mode):
        _empty(place, _of_our_making, None, None)
        os.rmdir(place.name, dir_fd=place.fd)
    else:
        os.unlink(place.name, dir_fd=place.fd)


def _of_our_making(fd: int, name: str, path: str) -> bool:
    return True


def remove_file(place: Place, state: State, tools: Tools) -> None:
    """A file, link or special file whose state is in the store; an inode with other names is held instead."""
    name = state.get("held", "")
    if not (name and hold(tools, name, place)):
        os.unlink(place.name, dir_fd=place.fd)


def remove_tree(place: Place, custody: Custody, tools: Tools) -> None:
    """All of it, each entry checked right before; stops with Intruder at the first that is not ours."""
    _empty(place, custody.ours, custody, tools)
    try:
        os.rmdir(place.name, dir_fd=place.fd)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise Intruder("") from None
        raise


def remove_what_is_ours(place: Place, custody: Custody, tools: Tools) -> None:
    """The rest of an interrupted removal; what is not in the store stays where it is."""
    try:
        remove_tree(place, custody, tools)
    except Intruder:
        return


def _empty(place: Place, ours: Ours, custody: Custody | None, tools: Tools | None) -> None:
    root = open_below(place.fd, place.name, os.O_RDONLY | os.O_DIRECTORY, cross_mounts=False)
    try:
        directories: list[str] = []
        for fd, path, entries in listing(root, place.resource):
            inside = path + "/" if path else ""
            for entry in entries:
                name = inside + quoted(entry.name)
                if entry.is_dir(follow_symlinks=False):
                    directories.append(name)
                    continue
                if not ours(fd, entry.name, name):
                    raise Intruder(name)
                held = custody.held_name(name) if custody else ""
                if not (
                    held and tools and hold(tools, held, Place(fd, os.fsencode(entry.name), place.resource))
                ):
                    os.unlink(entry.name, dir_fd=fd)
        _remove_directories(root, directories)
    finally:
        os.close(root)


def _remove_directories(root: int, directories: list[str]) -> None:
    opened, fd = "", os.dup(root)
    try:
        for path in reversed(directories):
            parent, _, name = path.rpartition("/")
            if parent != opened:
                os.close(fd)
                fd = -1
                fd = open_below(root, unquote(parent), os.O_PATH | os.O_DIRECTORY, cross_mounts=False)
                opened = parent
            try:
                os.rmdir(unquote(name), dir_fd=fd)
            except OSError as error:
                if error.errno == errno.ENOTEMPTY:
                    raise Intruder(path) from None
                raise
    finally:
        if fd >= 0:
            os.close(fd)
