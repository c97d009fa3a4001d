"""Whether what was moved aside is what an effect found there; only then may it be removed."""

import os
import stat

from takeback.adapters.file.custody import Custody, is_captured
from takeback.adapters.file.paths import Place, open_below
from takeback.adapters.file.states import State
from takeback.adapters.file.tree import first_difference
from takeback.adapters.file.trouble import CannotCapture
from takeback.adapters.tree.closed import readable
from takeback.adapters.tree.states import alike, is_dir, see, signed_alike
from takeback.storage.protocols import Blobs

_LIST = os.O_RDONLY | os.O_DIRECTORY


class Keeping(Custody):
    """The entries of a directory that goes, each with its state; for `remove_tree`."""

    def __init__(self, inside: dict[str, State], blobs: Blobs) -> None:
        super().__init__({"type": "dir", "entries": len(inside)}, blobs, None)
        self._inside = inside

    def ours(self, fd: int, name: str, path: str) -> bool:
        state = self._inside.get(path)
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return True
        if state is None:
            return False
        if signed_alike(status, state) and stat.S_IMODE(status.st_mode) == state["mode"]:
            return True
        try:
            return alike(see(Place(fd, os.fsencode(name), path), state), state)
        except (CannotCapture, FileNotFoundError):
            return False

    def left_out(self, path: str) -> bool:
        return "excluded" in self._inside.get(path, {})

    def held_name(self, path: str) -> str:
        return self._inside.get(path, {}).get("held", "")


def is_kept(place: Place, state: State, inside: dict[str, State], blobs: Blobs) -> bool:
    """Whether all of what is at this place is in the store."""
    if not is_dir(state):
        return is_captured(place, state, blobs, None) or _is_near(place, state)
    if not alike(see(place, state), state):
        return False
    try:
        with readable(place, state, inside):
            return not intruder_in(place, inside, blobs)
    except (CannotCapture, PermissionError):
        return False


def _is_near(place: Place, state: State) -> bool:
    """The same but for properties that come last, or for the stat cache of an index of git."""
    if "late" not in state and "meaning" not in state:
        return False
    try:
        return place.stat() is not None and alike(see(place, state), state)
    except CannotCapture:
        return False


def intruder_in(place: Place, inside: dict[str, State], blobs: Blobs) -> str:
    """The first entry of a directory that is not ours; empty if there is none."""
    keeping = Keeping(inside, blobs)
    fd = open_below(place.fd, place.name, _LIST, cross_mounts=False)
    try:
        return first_difference(fd, place.resource, keeping.ours, len(inside))
    finally:
        os.close(fd)
