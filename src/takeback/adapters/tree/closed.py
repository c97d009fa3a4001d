"""Directories that are closed even to their owner (mode 000): an ordinary user opens them to look or to empty them.

Who dies meanwhile leaves a mode that verify knows as ours."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from takeback.adapters.file.build import chmod_inode
from takeback.adapters.file.handles import Handles
from takeback.adapters.file.paths import Place, open_below
from takeback.adapters.file.states import State
from takeback.adapters.tree.states import LOOK, OPEN, is_closed, open_mode
from takeback.model.resource import unquote


def open_inside(place: Place, state: State, inside: dict[str, State], to: int = OPEN) -> None:
    """A directory with all that is in it, outermost first."""
    if os.geteuid() == 0:
        return
    if is_closed(state, to=to):
        chmod_inode(place.fd, place.name, open_mode(state["mode"]))
    closed = {path: open_mode(entry["mode"]) for path, entry in inside.items() if is_closed(entry, to=to)}
    _chmod_inside(place, closed)


@contextmanager
def readable(place: Place, state: State, inside: dict[str, State]) -> Iterator[None]:
    """While it is looked at."""
    if os.geteuid() == 0 or not is_closed(state, *inside.values(), to=LOOK):
        yield
        return
    try:
        open_inside(place, state, inside, LOOK)
        yield
    finally:
        back = [path for path in reversed(inside) if is_closed(inside[path], to=LOOK)]
        _chmod_inside(place, {path: inside[path]["mode"] for path in back})
        if is_closed(state, to=LOOK) and place.stat() is not None:
            chmod_inode(place.fd, place.name, state["mode"])


def _chmod_inside(place: Place, modes: dict[str, int]) -> None:
    if not modes:
        return
    root = open_below(place.fd, place.name, os.O_RDONLY | os.O_DIRECTORY, cross_mounts=False)
    try:
        with Handles(root) as handles:
            for path, mode in modes.items():
                parent, _, name = path.rpartition("/")
                try:
                    chmod_inode(handles.open(parent), unquote(name), mode)
                except FileNotFoundError:
                    continue  # removed by the attempt that was interrupted
    finally:
        os.close(root)
