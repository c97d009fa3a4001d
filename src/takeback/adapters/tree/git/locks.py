"""Git's own locks, held while paths inside a git directory change; so git waits for us, and we for git.

A lock is a symbolic link that names the effect: made in one step, it cannot be mistaken for git's own file, and what
a killed process left of it is known as ours.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from takeback.adapters.file.adapter import sync_directory
from takeback.adapters.file.paths import Place
from takeback.adapters.tree.git.layout import GitDirs, GitPart, Spot, content_at, may_be_gits, ref_resource
from takeback.adapters.tree.places import Places
from takeback.adapters.tree.states import is_dir
from takeback.errors import StoreBusy
from takeback.model.remedy import Target
from takeback.model.resource import display

_PATIENCE = 1.0  # seconds; git holds a lock for milliseconds
_PAUSE = 0.01
_LIVE = (GitPart.INDEX, GitPart.HEAD, GitPart.REF, GitPart.PACKED, GitPart.LOG, GitPart.TABLE)
_ALWAYS = ("index.lock", "HEAD.lock", "packed-refs.lock")


def refuse_while_git_runs(targets: Sequence[Target], changed: Iterable[str], places: Places) -> None:
    """Before anything is changed. `targets`: of the effect; `changed`: the paths that an undo would change."""
    for lock in locks_for(targets, changed, places):
        until = time.monotonic() + _PATIENCE
        while (place := places.within_reach(lock)) and place.stat() is not None:
            if time.monotonic() >= until:
                raise _busy(lock)
            time.sleep(_PAUSE)
    for home in {lock.rpartition("/")[0] for lock in locks_for(targets, changed, places)}:
        if _collects_garbage(home, places):
            raise _busy(f"{home}/gc.pid")


def locks_for(targets: Sequence[Target], changed: Iterable[str], places: Places) -> list[str]:
    """In the order in which they are taken. A lock that the effect itself made or removed is a file like others."""
    dirs = GitDirs(targets, places)
    known = {target.resource: target for target in targets}
    found: set[str] = set()
    for resource in changed:
        spot = dirs.spot(resource) if may_be_gits(resource) else None
        target = known.get(resource)
        if spot is None or spot.part not in _LIVE:
            continue
        found.update(f"{spot.home}/{name}" for name in _ALWAYS)
        if target is None or not (is_dir(target.before) or is_dir(target.after)):
            found.add(_lock_of(resource, spot))
    return sorted(found.difference(known))


def _lock_of(resource: str, spot: Spot) -> str:
    if spot.part is GitPart.LOG:
        return ref_resource(spot.home, spot.name) + ".lock"
    if spot.part is GitPart.TABLE:
        return f"{spot.home}/reftable/tables.list.lock"
    return resource + ".lock"


def _collects_garbage(home: str, places: Places) -> bool:
    """Whether `git gc` is at work; a file that a killed one left names a process that is gone."""
    content = content_at(places, f"{home}/gc.pid")
    number = content.split()[0] if content and content.split() else b""
    return number.isdigit() and os.path.exists(b"/proc/" + number)


@contextmanager
def locked(effect: str, targets: Sequence[Target], changed: Iterable[str], places: Places) -> Iterator[None]:
    """Raises StoreBusy, with nothing changed, if git does not let go of one in time."""
    taken: list[_Lock] = []
    try:
        for resource in locks_for(targets, changed, places):
            if places.within_reach(resource) is not None:  # else git cannot be in its directory either
                taken.append(_Lock(resource, effect, places))
                taken[-1].take()
        yield
    finally:
        for lock in reversed(taken):
            lock.release()
        _make_durable((lock.resource for lock in taken), places)


def release_left(effect: str, targets: Sequence[Target], changed: Iterable[str], places: Places) -> None:
    """What a process that died while it held them left."""
    left = [_Lock(resource, effect, places) for resource in locks_for(targets, changed, places)]
    _make_durable([lock.resource for lock in left if lock.release()], places)


def _make_durable(locks: Iterable[str], places: Places) -> None:
    """A lock that is there again after a power cut would keep git out."""
    for directory in {lock.rpartition("/")[0] for lock in locks}:
        place = places.within_reach(f"{directory}/x")
        if place is not None:
            sync_directory(place)


class _Lock:
    def __init__(self, resource: str, effect: str, places: Places) -> None:
        self.resource = resource
        self._sign = f"takeback-{effect}".encode()
        self._places = places
        self._times = (0, 0)  # of its directory, before and after it was made

    def take(self) -> None:
        place = self._places.at(self.resource)
        until = time.monotonic() + _PATIENCE
        before = os.fstat(place.fd).st_mtime_ns
        while True:
            try:
                os.symlink(self._sign, place.name, dir_fd=place.fd)
                self._times = (before, os.fstat(place.fd).st_mtime_ns)
                return
            except FileExistsError:
                if self._is_ours(place):
                    return
                if time.monotonic() >= until:
                    raise _busy(self.resource) from None
                time.sleep(_PAUSE)

    def _is_ours(self, place: Place) -> bool:
        try:
            return os.readlink(place.name, dir_fd=place.fd) == self._sign
        except OSError:
            return False

    def release(self) -> bool:
        """Whether it was there. Its directory gets the time that it had, unless that was changed since."""
        place = self._places.within_reach(self.resource)
        if place is None or not self._is_ours(place):
            return False
        status = os.fstat(place.fd)
        before, made = self._times
        os.unlink(place.name, dir_fd=place.fd)
        with suppress(OSError):  # someone else's directory: its time is not ours to choose
            time_back = before if status.st_mtime_ns == made else status.st_mtime_ns
            os.utime(place.fd, ns=(status.st_atime_ns, time_back))
        return True


def _busy(lock: str) -> StoreBusy:
    directory, _, name = display(lock).rpartition("/")
    return StoreBusy(
        f"git is at work in {directory}: {name} exists.",
        hint=f"Nothing was changed. Try again when git has finished; if no git runs, remove {display(lock)}.",
    )
