"""Put one unit in place, take it out again, and remove what it displaced.

New content waits under `…~`. It is exchanged with the present content, which waits under the plain scratch name until
everything else is in place too. Only then is it removed. So up to that point the whole effect can go back by renames.
"""

import os
import stat
from contextlib import suppress

from takeback.adapters.file.build import Tools
from takeback.adapters.file.directory import first_difference
from takeback.adapters.file.kernel import Freeing, exchange, rename_new
from takeback.adapters.file.os_errors import CannotCapture
from takeback.adapters.file.paths import Place, Scratch, open_below, status_at
from takeback.adapters.file.remove import (
    Custody,
    Intruder,
    is_captured,
    remove_built,
    remove_file,
    remove_tree,
)
from takeback.adapters.file.states import ABSENT, FileState, difference
from takeback.adapters.file.swap import AGAIN
from takeback.adapters.tree.build import Builder
from takeback.adapters.tree.directories import open_inside, readable
from takeback.adapters.tree.states import alike, is_dir, see, signed_alike
from takeback.adapters.tree.targets import Unit
from takeback.errors import Drifted, Stuck
from takeback.model.resource import display, unquote
from takeback.storage.protocols import Blobs

# Whether what was moved aside is what an effect found there; only then may it be removed.


_LIST = os.O_RDONLY | os.O_DIRECTORY


class Keeping(Custody):
    """The entries of a directory that goes, each with its state; for `remove_tree`."""

    def __init__(self, inside: dict[str, FileState], blobs: Blobs) -> None:
        super().__init__({"type": "dir", "entries": len(inside)}, blobs, None)
        self._inside = inside

    def ours(self, fd: int, name: str, path: str) -> bool:
        state, status = self._inside.get(path), status_at(fd, name)
        if state is None or status is None:
            return status is None
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


def is_kept(place: Place, state: FileState, inside: dict[str, FileState], blobs: Blobs) -> bool:
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


def _is_near(place: Place, state: FileState) -> bool:
    """The same but for properties that come last, or for the stat cache of an index of git."""
    if "late" not in state and "meaning" not in state:
        return False
    try:
        return place.stat() is not None and alike(see(place, state), state)
    except CannotCapture:
        return False


def intruder_in(place: Place, inside: dict[str, FileState], blobs: Blobs) -> str:
    """The first entry of a directory that is not ours; empty if there is none."""
    keeping = Keeping(inside, blobs)
    fd = open_below(place.fd, place.name, _LIST, cross_mounts=False)
    try:
        return first_difference(fd, place.resource, keeping.ours, len(inside))
    finally:
        os.close(fd)


def drifted(resource: str, why: str) -> Drifted:
    return Drifted(f"{display(resource)} is not what it was: {why}.", hint=AGAIN)


class Swap:
    def __init__(self, unit: Unit, place: Place, names: Scratch, tools: Tools) -> None:
        self.unit = unit
        self.place = place
        self.tools = tools
        self.returned = False  # what was displaced is back already
        self.building = place.beside(names.building)
        self.aside = place.beside(names.swapping)
        self.going = place.beside(names.going)

    def prepare(self, builder: Builder) -> None:
        """Prepare the new content beside it. A file that an interrupted attempt displaced is used if it is equal."""
        unit = self.unit
        if unit.goal["type"] == "absent":
            return
        if self.aside.stat() is not None:
            builder.waits_at(self.aside, unit.goal, unit.coming)
            return
        try:
            builder.make(self.building, unit.goal, unit.coming)
        except BaseException:
            remove_built(self.building)
            raise

    def swap(self) -> None:
        unit, place, aside = self.unit, self.place, self.aside
        if unit.goal["type"] == "absent":
            rename_new(place.fd, place.name, place.fd, aside.name)
            if not self._holds(aside, unit.start, unit.leaving):
                found = describe(aside, unit.start, unit.leaving, self.tools)
                self._give_back()
                raise self._drifted(found)
            return
        ready = self._ready()
        if unit.start["type"] == "absent":
            try:
                rename_new(place.fd, ready.name, place.fd, place.name)
            except FileExistsError:
                raise self._drifted(describe(place, unit.start, {}, self.tools)) from None
            return
        if ready is self.building:
            rename_new(place.fd, ready.name, place.fd, aside.name)
        self._exchange()
        if not self._holds(aside, unit.start, unit.leaving):
            found = describe(aside, unit.start, unit.leaving, self.tools)
            self._exchange()
            raise self._drifted(found)

    def _ready(self) -> Place:
        return self.building if self.aside.stat() is None else self.aside

    def _exchange(self) -> None:
        fd = self.place.fd
        if exchange(fd, self.aside.name, fd, self.place.name):
            return
        # Where a filesystem cannot: for a moment nothing has the name; verify and settle know that moment.
        os.rename(self.place.name, self.going.name, src_dir_fd=fd, dst_dir_fd=fd)
        os.rename(self.aside.name, self.place.name, src_dir_fd=fd, dst_dir_fd=fd)
        os.rename(self.going.name, self.aside.name, src_dir_fd=fd, dst_dir_fd=fd)

    def unswap(self) -> None:
        """Back, after `swap`: nothing was removed yet, so renames do it."""
        unit, place, aside = self.unit, self.place, self.aside
        if unit.goal["type"] == "absent":
            self._give_back()
            return
        came = unit.start["type"] == "absent"
        if came:
            rename_new(place.fd, place.name, place.fd, aside.name)
        else:
            self._exchange()
        if self._holds(aside, unit.goal, unit.coming):
            return
        if came:
            self._give_back()
        else:
            self._exchange()
        raise Stuck(
            f"{display(place.resource)} was modified by someone else before it could be undone.",
            hint="The earlier content is in the store; `takeback show` on the effect lists it.",
        )

    def _give_back(self) -> None:
        try:
            rename_new(self.aside.fd, self.aside.name, self.place.fd, self.place.name)
        except FileExistsError:
            raise Stuck(
                f"{display(self.place.resource)} was changed twice by someone else while it was being moved aside.",
                hint=f"The first change is beside it, as {os.fsdecode(self.aside.name)}; both are whole.",
            ) from None

    def discard(self) -> None:
        """Remove prepared content that was not put in place, or was taken out again."""
        remove_built(self.building)
        if self.aside.stat() is not None and self._holds(self.aside, self.unit.goal, self.unit.coming):
            self._remove(self.aside, self.unit.goal, self.unit.coming)

    def clear(self, builder: Builder, freeing: Freeing) -> None:
        """Remove what was displaced. If someone is at work in it, it is made whole and given back."""
        unit = self.unit
        if unit.start["type"] == "absent" or self.aside.stat() is None:
            return
        if not is_dir(unit.start):
            if not self._unwritten():
                self._return_displaced()
                raise self._drifted(describe(self.place, unit.start, {}, self.tools))
            remove_file(self.aside, unit.start, self.tools, freeing)
            return
        try:
            self._remove(self.aside, unit.start, unit.leaving, freeing)
        except (Intruder, OSError) as trouble:
            if self.going.stat() is not None:
                builder.complete(self.going, unit.start, unit.leaving)
                os.rename(
                    self.going.name, self.aside.name, src_dir_fd=self.going.fd, dst_dir_fd=self.aside.fd
                )
            self._return_displaced()
            if not isinstance(trouble, Intruder):
                raise
            where = f"{display(self.place.resource)}/{trouble}".rstrip("/")
            raise Drifted(f"Someone changed {where} while it was being removed.", hint=AGAIN) from trouble

    def _return_displaced(self) -> None:
        if self.unit.goal["type"] == "absent":
            self._give_back()
        else:
            self._exchange()
            self.discard()
        self.returned = True

    def _unwritten(self) -> bool:
        """Since it was displaced and compared; only someone who had it open could have."""
        status = self.aside.stat()
        start = self.unit.start
        if start["type"] != "file" or "size" not in start or status is None:
            return True
        known = start.get("mtime") if "ino" in start and start["ino"] == status.st_ino else None
        if known is None or (status.st_size, status.st_mtime_ns) != (start["size"], known):
            return self._holds(self.aside, start, {})
        return True

    def _holds(self, place: Place, state: FileState, inside: dict[str, FileState]) -> bool:
        return is_kept(place, state, inside, self.tools.blobs)

    def _remove(
        self, place: Place, state: FileState, inside: dict[str, FileState], freeing: Freeing | None = None
    ) -> None:
        """Only after a comparison: all of it is in the store."""
        if not is_dir(state):
            remove_file(place, state, self.tools)
            return
        os.rename(place.name, self.going.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
        open_inside(self.going, state, inside)
        remove_tree(self.going, Keeping(inside, self.tools.blobs), self.tools, freeing)

    def settle(self) -> None:
        """Handle files that a dead process left beside it: use or remove ours, give back those of others."""
        remove_built(self.building)
        unit = self.unit
        if self.going.stat() is not None and self.place.stat() is None and self.aside.stat() is not None:
            # The rest of an exchange, where names cannot be exchanged.
            rename_new(self.going.fd, self.going.name, self.place.fd, self.place.name)
        else:
            self._remove_rest()
        if self.aside.stat() is None:
            return
        if self._holds(self.aside, unit.goal, unit.coming) and not self._holds(
            self.place, unit.goal, unit.coming
        ):
            return  # ready, as `prepare` finds it
        if self._remove_aside():
            return
        found = describe(self.aside, unit.start, unit.leaving, self.tools)
        if self.place.stat() is None:
            self._give_back()
        elif any(self._holds(self.place, state, inside) for state, inside in unit.sides):
            self._exchange()
            self.settle()
        else:
            raise Stuck(
                f"{display(self.place.resource)} was changed by someone else while an effect on it was interrupted.",
                hint=f"An earlier version that is in no store is beside it, as {os.fsdecode(self.aside.name)}.",
            )
        raise self._drifted(found)

    def _remove_rest(self) -> None:
        for state, inside in self.unit.sides:
            status = self.going.stat()
            if status is None:
                return
            with suppress(Intruder):
                if is_dir(state) and stat.S_ISDIR(status.st_mode):
                    open_inside(self.going, state, inside)
                    remove_tree(self.going, Keeping(inside, self.tools.blobs), self.tools)
                elif not is_dir(state) and self._holds(self.going, state, inside):
                    remove_file(self.going, state, self.tools)

    def _remove_aside(self) -> bool:
        """Whether it is in the store, and so was removed."""
        for state, inside in self.unit.sides:
            if self._holds(self.aside, state, inside):
                self._remove(self.aside, state, inside)
                return True
        return False

    def tidy(self) -> None:
        """After the effect came to rest on one side: scratch that is in the store goes, anything else stays."""
        remove_built(self.building)
        self._remove_rest()
        if self.aside.stat() is not None:
            self._remove_aside()

    def _drifted(self, found: FileState) -> Drifted:
        if "intruder" in found:
            return drifted(self.place.resource, f"{found['intruder']} was changed")
        return drifted(self.place.resource, f"it {difference(self.unit.start, found)}")


def describe(place: Place, manner: FileState, inside: dict[str, FileState], tools: Tools) -> FileState:
    try:
        found = see(place, manner)
        if is_dir(found) and is_dir(manner):
            path = unquote(intruder_in(place, inside, tools.blobs))
            return found | {"intruder": display(os.fsdecode(path))}
        return found
    except (CannotCapture, OSError) as trouble:
        return {"type": "file", "excluded": str(trouble)} if place.stat() is not None else ABSENT
