"""Look at a tree and find which directories are not what the index knows. Nothing is read here and nothing is written.

A name whose inode, size, mode and times are as they were is untouched, unless it was too young to tell when seen.
A directory whose own times are as they were has the same names, so it is not listed again.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from takeback.adapters.file.paths import Handles, status_at
from takeback.adapters.watch.index import MOUNT, MOUNTED, REGENERABLE, UNREADABLE
from takeback.adapters.watch.listings import (
    Listing,
    ListingEntry,
    Row,
    Stamp,
    entries_of,
    folders_of,
    names_of,
    stamp_of,
)
from takeback.errors import NoRemedy, Refused
from takeback.model.progress import SILENT, Progress
from takeback.model.resource import quote, unquote

Hints = Mapping[str, set[bytes]]  # by quoted path of a directory: names in it that may have changed


_ITSELF = frozenset((b"", b"."))  # the directory, as feeds name it


class Doubt(Exception):
    """The reports of a feed do not fit the index: a full scan is needed."""


def too_large(most: int) -> Refused:
    return Refused(
        f"There are more than {most:,} entries below it, too many to watch.",
        hint="Nothing was done. Name a smaller directory, or use --any-root.",
    )


class Bounds(NamedTuple):
    """How large a tree may be; 0 is without bound."""

    entries: int = 0
    bytes: int = 0
    capture: int = 0  # the same, whatever is forced: `max_capture_bytes`


class Rules(NamedTuple):
    """Paths that are left out."""

    # Why a directory is left out ("" if it is not) and what kind of hole that is; asked with its quoted path.
    left_out: Callable[[str], tuple[str, str]]
    names: frozenset[bytes] = frozenset()  # the only names that may be left out
    sticky: bool = False  # what is captured stays so, and what is left out too: someone compares with it


class ListingDraft:
    """A directory that differs from what is known of it."""

    def __init__(self, status: os.stat_result, before: Listing | None) -> None:
        self.status = status
        self.before = before
        self.kept: dict[bytes, ListingEntry] = before.by_name if before else {}
        self.fresh: dict[bytes, int] = {}  # to be read: inode numbers, because all of a status is large
        self.folders: dict[bytes, None] = dict.fromkeys(before.folders if before else ())
        self.left_out: dict[bytes, tuple[str, str, os.stat_result]] = {}

    def drop(self, name: bytes) -> None:
        self.kept.pop(name, None)
        self.fresh.pop(name, None)
        self.folders.pop(name, None)
        self.left_out.pop(name, None)


class Scan:
    def __init__(
        self,
        handles: Handles,
        known: Callable[[str], Row | None],
        unpacked: Callable[[Row], Listing],
        inside: Callable[[str], list[str]],
        rules: Rules,
        bounds: Bounds,
        looked: int,  # the time before the first look, in nanoseconds
    ) -> None:
        self._handles = handles
        self._known = known
        self._unpacked = unpacked
        self._inside = inside
        self._rules = rules
        self._bounds = bounds
        self._looked = looked
        self._pending: list[str] = []
        self.drafts: dict[str, ListingDraft] = {}
        self.gone: dict[str, None] = {}
        self.entries = 0
        self.bytes = 0  # to be read
        self._progress = SILENT

    def everything(self, progress: Progress = SILENT) -> None:
        self._progress = progress
        self._pending.append("")
        self._walk()

    def only(self, hints: Hints) -> None:
        """`Doubt` if that cannot be enough."""
        for path in sorted(hints):
            if path in self.gone:
                continue
            row = self._known(path)
            if row is None:
                if path in self.drafts or self._is_explained(path, hints):
                    continue
                raise Doubt(path)
            self._look_at(path, row, hints[path])
        self._walk()

    def _is_explained(self, path: str, hints: Hints) -> bool:
        """Whether it is inside something that is not looked into; or is new, or in something new: then the directory
        above was reported as changed."""
        above = path
        while above:
            above, _, name = above.rpartition("/")
            row = self._known(above)
            if row is not None:
                left_out = "excluded" in self._unpacked(row).extras.get(name, {})
                return left_out or unquote(name) in hints.get(above, ())
        return False

    def _walk(self) -> None:
        while self._pending:
            path = self._pending.pop()
            # Another directory may have come in the place of one that is gone.
            row = None if path in self.gone else self._known(path)
            self.gone.pop(path, None)
            try:
                fd = self._handles.open(path)
                status = os.fstat(fd)
                folders = self._compare(path, fd, status, row) if row else self._new(path, fd, status)
            except OSError as error:
                self._not_entered(path, error)
                continue
            for name in reversed(folders):
                self._pending.append(_below(path, name))

    def _not_entered(self, path: str, error: OSError) -> None:
        if not path or error.errno in (errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOMEM):
            raise error
        if error.errno == errno.EXDEV:
            self._leave_out(path, "another filesystem is mounted there", MOUNT)
        elif error.errno in (errno.EACCES, errno.EPERM):
            self._leave_out(path, "its entries are not readable", UNREADABLE)
        else:  # it vanished, or is something else by now: its directory's times tell next time
            above, _, name = path.rpartition("/")
            if draft := self._draft(above):
                draft.drop(unquote(name))
            self._forget(path)

    def _leave_out(self, path: str, reason: str, kind: str) -> None:
        above, _, quoted = path.rpartition("/")
        name, draft = unquote(quoted), self._draft(above)
        self._forget(path)
        if draft is None:
            return
        draft.drop(name)
        with suppress(FileNotFoundError):
            if status := status_at(self._handles.open(above), name):
                draft.left_out[name] = (reason, kind, status)

    def _draft(self, path: str) -> ListingDraft | None:
        if path not in self.drafts:
            try:
                status = os.fstat(self._handles.open(path))
            except OSError:
                return None
            row = self._known(path)
            self.drafts[path] = ListingDraft(status, self._unpacked(row) if row else None)
        return self.drafts[path]

    def _forget(self, path: str) -> None:
        for one in self._inside(path):
            self.gone[one] = None
            self.drafts.pop(one, None)

    def _count(self, entries: int) -> None:
        self.entries += entries
        self._progress.moved(items=entries)
        if self._bounds.entries and self.entries > self._bounds.entries:
            raise too_large(self._bounds.entries)

    def _count_bytes(self, status: os.stat_result) -> None:
        if stat.S_ISREG(status.st_mode):
            self.bytes += min(status.st_size, status.st_blocks * 512)
            if self._bounds.capture and self.bytes > self._bounds.capture:
                raise NoRemedy(
                    f"More than {self._bounds.capture:,} bytes would have to be captured first, which is all that may "
                    "be captured for one change.",
                    hint="Nothing was done. `takeback config set max_capture_bytes` changes it; 0 is no limit.",
                )
            if self._bounds.bytes and self.bytes > self._bounds.bytes:
                raise Refused(
                    f"More than {self._bounds.bytes:,} bytes below it would have to be read first.",
                    hint="Nothing was done. Name a smaller directory, or use --any-root.",
                )

    # One directory.

    def _new(self, path: str, fd: int, status: os.stat_result) -> list[bytes]:
        draft = self.drafts[path] = ListingDraft(status, None)
        names, folders = _listed(fd)
        self._count(len(names) + len(folders))
        for name in names:
            self._fresh(draft, name, status_at(fd, name))
        return self._entered(path, fd, draft, folders)

    def _compare(self, path: str, fd: int, status: os.stat_result, row: Row) -> list[bytes]:
        names, folders = names_of(row), folders_of(row)
        same = _same_stamp(stamp_of(row), status)
        draft = None if same else ListingDraft(status, self._unpacked(row))
        if draft is not None:
            self.drafts[path] = draft
            now, dirs = _listed(fd)
            for name in set(draft.kept) - set(now):
                draft.drop(name)
            for name in [name for name in now if name not in draft.kept]:
                draft.drop(name)  # it may have been a folder
                self._fresh(draft, name, status_at(fd, name))
            for name in set(folders) - set(dirs):
                draft.folders.pop(name, None)
                self._forget(_below(path, name))
            folders = tuple(dirs)
        self._count(len(names) + len(folders))
        if same and not self._rules.sticky and only_objects(path, row, self._known):
            return []
        self._compare_names(path, fd, names, row, draft)
        candidates = list(folders)
        if same and '"hole"' in row.extras:  # the rules may have changed, or the right to look
            holes = [unquote(name) for name, more in self._unpacked(row).extras.items() if "hole" in more]
            candidates += [name for name in holes if _is_folder(status_at(fd, name))]
        draft = self.drafts.get(path)
        if draft is None:
            if len(candidates) == len(folders) and self._rules.names.isdisjoint(folders):
                return candidates
            before = self._unpacked(row)
            entered = [name for name in candidates if not self._verdict(path, name, before)[0]]
            draft = self._draft(path) if entered != list(folders) else None
            if draft is None:
                return list(folders)
        return self._entered(path, fd, draft, candidates)

    def _compare_names(
        self, path: str, fd: int, names: tuple[bytes, ...], row: Row, draft: ListingDraft | None
    ) -> None:
        look, shared = os.stat, b"-shm" in row.names
        changed: list[tuple[bytes, os.stat_result | None]] = []
        for name, old in zip(names, entries_of(row), strict=True):
            try:
                now = look(name, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                changed.append((name, None))
                continue
            if (
                now.st_ctime_ns == old[8]
                and now.st_mtime_ns == old[7]
                and now.st_size == old[6]
                and now.st_ino == old[5]
                and now.st_mode == old[0]
                and now.st_dev == old[4]
                and not (shared and name.endswith(b"-shm"))
            ):
                continue
            changed.append((name, now))
        for name, now in changed:
            draft = draft or self._draft(path)
            if draft is None:
                return
            self._take(draft, name, now)

    def _take(self, draft: ListingDraft, name: bytes, now: os.stat_result | None) -> None:
        old = draft.kept.get(name)
        if now is None or stat.S_ISDIR(now.st_mode):
            # Of a directory that is left out nothing but its being there is watched.
            if now is None or old is None or not stat.S_ISDIR(old.mode):
                draft.drop(name)
        elif old and _same_entry(old, now) and not name.endswith(b"-shm"):
            draft.kept[name] = old._replace(dev=now.st_dev)
        else:
            draft.kept.pop(name, None)
            self._fresh(draft, name, now)

    def _fresh(self, draft: ListingDraft, name: bytes, now: os.stat_result | None) -> None:
        if now is not None:
            draft.fresh[name] = now.st_ino
            self._count_bytes(now)

    def _entered(self, path: str, fd: int, draft: ListingDraft, folders: list[bytes]) -> list[bytes]:
        """Which of its directories are looked into; the others are left out by name."""
        entered: list[bytes] = []
        for name in folders:
            reason, kind = self._verdict(path, name, draft.before)
            if not reason:
                draft.kept.pop(name, None)
                draft.folders[name] = None
                entered.append(name)
                continue
            if name in draft.folders:
                self._forget(_below(path, name))
            draft.drop(name)
            if status := status_at(fd, name):
                draft.left_out[name] = (reason, kind, status)
        return entered

    def _verdict(self, path: str, name: bytes, before: Listing | None) -> tuple[str, str]:
        if self._rules.sticky and before is not None:
            if name in before.folders:
                return "", ""
            extra = before.extras.get(quote(name), {})
            if extra.get("hole") in (REGENERABLE, MOUNT, MOUNTED):
                return extra["excluded"], extra["hole"]
        return self._rules.left_out(_below(path, name)) if name in self._rules.names else ("", "")

    def _look_at(self, path: str, row: Row, names: set[bytes]) -> None:
        """Only these names in it, and the directory itself."""
        try:
            fd = self._handles.open(path)
            status = os.fstat(fd)
        except OSError as error:
            self._not_entered(path, error)
            return
        if not names - _ITSELF and _same_stamp(stamp_of(row), status):
            return
        draft = self.drafts.get(path)
        if draft is None:
            draft = self.drafts[path] = ListingDraft(status, self._unpacked(row))
        for name in names - _ITSELF:
            now = status_at(fd, name)
            if name in draft.folders and not _is_folder(now):
                draft.folders.pop(name)
                self._forget(_below(path, name))
            if now is not None and stat.S_ISDIR(now.st_mode):
                self._look_at_folder(path, fd, draft, name, now)
            elif now is not None and name not in draft.kept:
                draft.fresh[name] = now.st_ino
            else:
                self._take(draft, name, now)

    def _look_at_folder(
        self, path: str, fd: int, draft: ListingDraft, name: bytes, now: os.stat_result
    ) -> None:
        below = _below(path, name)
        row = self._known(below)
        if name in draft.folders and row is not None and below not in self.gone:
            if stamp_of(row).ino != now.st_ino:
                self._forget(below)  # another directory of that name
            # Also with the same number it may be another one: numbers are used again at once, and what was reported
            # of the one that is gone has no path any more. So all in it is compared.
        else:
            self._take(draft, name, now)
            if name in draft.kept:
                return
        self._pending += [_below(path, one) for one in self._entered(path, fd, draft, [name])]


def _listed(fd: int) -> tuple[list[bytes], list[bytes]]:
    names: list[bytes] = []
    folders: list[bytes] = []
    with os.scandir(fd) as found:
        for entry in found:
            # Given a handle, scandir speaks text only.
            name = os.fsencode(entry.name)
            (folders if entry.is_dir(follow_symlinks=False) else names).append(name)
    return sorted(names), sorted(folders)


def _is_folder(status: os.stat_result | None) -> bool:
    return status is not None and stat.S_ISDIR(status.st_mode)


def _same_stamp(stamp: Stamp, status: os.stat_result) -> bool:
    return (stamp.dev, stamp.ino, stamp.mtime, stamp.ctime) == (
        status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
    )  # fmt: skip


def _same_entry(old: ListingEntry, now: os.stat_result) -> bool:
    return (old.ctime, old.mtime, old.size, old.ino, old.mode) == (
        now.st_ctime_ns, now.st_mtime_ns, now.st_size, now.st_ino, now.st_mode
    )  # fmt: skip


def _below(path: str, name: bytes) -> str:
    quoted = quote(name)
    return f"{path}/{quoted}" if path else quoted


# Directories in which git keeps its objects. Such a file is never written a second time: its name says what is in it.
# So at the beginning of a watch the names are enough, where these are as they were. At its end every file is looked at.


_PLACE = re.compile(r"(?P<home>(?:.+/)?)objects/(?P<fan>pack|[0-9a-f]{2})")
_LOOSE = re.compile(rb"(?:[0-9a-f]{38}(?:[0-9a-f]{24})?(?:\0|$))*")
_PACKS = re.compile(rb"(?:pack-[0-9a-f]+\.[a-z]+(?:\0|$))*")
_CTIME = ListingEntry._fields.index("ctime")


def only_objects(path: str, row: Row, known: Callable[[str], Row | None]) -> bool:
    """Whether nothing but objects is in this directory, it is in a git directory, and none was too young to tell."""
    place = _PLACE.fullmatch(path)
    if place is None or row.folders or row.extras or not all(entry[_CTIME] for entry in entries_of(row)):
        return False
    if not (_PACKS if place["fan"] == "pack" else _LOOSE).fullmatch(row.names):
        return False
    home = known(place["home"].removesuffix("/"))
    if home is None:
        return False
    return b"HEAD" in names_of(home) and {b"objects", b"refs"}.issubset(folders_of(home))
