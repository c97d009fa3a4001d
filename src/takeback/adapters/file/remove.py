"""Remove what was moved aside: never across a mount, never through a link, and no entry that is not in the store."""

import errno
import os
import stat
from collections.abc import Callable
from contextlib import nullcontext

from takeback.adapters.file.build import Tools
from takeback.adapters.file.custody import Custody, quoted
from takeback.adapters.file.freeing import Freeing
from takeback.adapters.file.handles import Handles
from takeback.adapters.file.hold import hold
from takeback.adapters.file.paths import Place, open_below
from takeback.adapters.file.states import State
from takeback.adapters.file.tree import listed
from takeback.adapters.file.trouble import Unremovable
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
        with Freeing() as freeing:
            _empty(place, _of_our_making, freeing)
        os.rmdir(place.name, dir_fd=place.fd)
    else:
        os.unlink(place.name, dir_fd=place.fd)


def _of_our_making(fd: int, name: str, path: str) -> bool:
    return True


def remove_file(place: Place, state: State, tools: Tools, freeing: Freeing | None = None) -> None:
    """A file, link or special file whose state is in the store; an inode with other names is held instead."""
    name = state.get("held", "")
    if not (name and hold(tools, name, place)):
        (freeing.unlink if freeing else os.unlink)(place.name, dir_fd=place.fd)


def remove_tree(place: Place, custody: Custody, tools: Tools, freeing: Freeing | None = None) -> None:
    """All of it, each entry checked right before; stops with Intruder at the first that is not ours."""
    with nullcontext(freeing) if freeing else Freeing() as freeing:
        _empty(place, custody.ours, freeing, custody, tools)
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


def _empty(
    place: Place,
    ours: Ours,
    freeing: Freeing,
    custody: Custody | None = None,
    tools: Tools | None = None,
) -> None:
    """What was left out of the capture goes last: until then all can be made whole again."""
    root = open_below(place.fd, place.name, os.O_RDONLY | os.O_DIRECTORY, cross_mounts=False)
    directories: list[str] = []
    left_out: list[str] = []
    try:
        with Handles(root) as handles:
            for fd, path, entries in listed(handles, place.resource):
                inside = path + "/" if path else ""
                for entry in entries:
                    name = inside + quoted(entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(name)
                    elif not ours(fd, entry.name, name):
                        raise Intruder(name)
                    elif custody and custody.left_out(name):
                        left_out.append(name)
                    else:
                        _take_away(fd, entry.name, name, freeing, custody, tools)
                    if tools:
                        tools.progress.moved(items=1)
            for path in left_out:
                parent, _, name = path.rpartition("/")
                fd = handles.open(parent)
                if not ours(fd, os.fsdecode(unquote(name)), path):
                    raise Intruder(path)
                _take_away(fd, os.fsdecode(unquote(name)), path, freeing)
            for path in reversed(directories):
                _remove_directory(handles, path)
    finally:
        os.close(root)


def _take_away(
    fd: int,
    name: str,
    path: str,
    freeing: Freeing,
    custody: Custody | None = None,
    tools: Tools | None = None,
) -> None:
    held = custody.held_name(path) if custody else ""
    if held and tools and hold(tools, held, Place(fd, os.fsencode(name), "")):
        return
    try:
        freeing.unlink(name, dir_fd=fd)
    except OSError as error:
        raise Unremovable(error, path) from error


def _remove_directory(handles: Handles, path: str) -> None:
    parent, _, name = path.rpartition("/")
    try:
        os.rmdir(unquote(name), dir_fd=handles.open(parent))
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise Intruder(path) from None
        raise Unremovable(error, path) from error
