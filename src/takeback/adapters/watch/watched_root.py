"""One watched root: scan it, so that the store has all of its content; compare it with the baseline."""

import errno
import os
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from takeback.adapters.file.directory import ReadScope
from takeback.adapters.file.kernel import AT_ROOT
from takeback.adapters.file.os_errors import CannotCapture
from takeback.adapters.file.paths import Handles, open_below, open_place
from takeback.adapters.file.states import ABSENT, FileState
from takeback.adapters.tree.states import see
from takeback.adapters.watch.compare import Compared, differing
from takeback.adapters.watch.feed import Authors, Feed
from takeback.adapters.watch.index import Hole, Index, Seen, WatchClaim, index_name
from takeback.adapters.watch.listings import (
    NO_DIGEST,
    ListingEntry,
    Row,
    digests_of,
    distrusting,
    entries_of,
    packed,
)
from takeback.adapters.watch.processes import mapped_below
from takeback.adapters.watch.read import linked_anew, listings
from takeback.adapters.watch.roots import Root, rules_for
from takeback.adapters.watch.scan import Bounds, Doubt, Hints, Rules, Scan
from takeback.errors import Misuse, Refused, ResourceUnreachable, StoreBusy
from takeback.model.ids import new_id
from takeback.model.progress import SILENT, Progress
from takeback.model.resource import display, quote
from takeback.storage.protocols import Blobs

_LIST = os.O_RDONLY | os.O_DIRECTORY
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # or something else is there, or on the way to it
_SAMPLE = 64
_INO = ListingEntry._fields.index("ino")
_MANY = 200  # directories
_LONG = 120  # seconds; less than a sweep lets young blobs be


Claim = tuple[str, dict[str, Any]]  # token and owner of a watch that begins with a look


class WatchPlace(NamedTuple):
    """Where the indexes are, where the contents go, and what is never looked into."""

    directory: str
    blobs: Blobs
    store: bytes
    opened: dict[str, Index]  # by name: those in use here; to open one takes a millisecond
    room: Callable[[int], None] = lambda more: None  # raises where that many bytes more are too many
    progress: Progress = SILENT
    # Processes that make the changes, where these are not this one and what it started.
    makers: Callable[[], Iterable[int]] | None = None


class Baseline(NamedTuple):
    """The name of an earlier state; its content is durable."""

    root: str
    file: str  # of the index
    generation: int
    token: str


_LOOKS = 4
_BRIEF = 0.2  # seconds; a look at a large tree takes as long even if nothing has to be read


class Looked(NamedTuple):
    generation: int
    read: int = 0  # directories whose listing is new
    bytes: int = 0
    whole: bool = True  # the whole tree was looked at, not only what a feed told


class WatchedRoot:
    """Lives as long as its feed; without a feed it is created for each use."""

    def __init__(self, root: Root, place: WatchPlace, feed: Feed | None = None) -> None:
        self.root = root
        self._place = place
        self.index = Index(place.directory, index_name(root.resource, root.whole), root.resource)
        place.opened.setdefault(self.index.name, self.index)
        self.feed = feed
        self.crowded = False  # the last feed ended, because it had to tell too much
        self._followed = -1  # the generation since which the feed has told everything
        self._began_to_look = 0.0
        self._top: os.stat_result | None = None  # the directory at the last look
        self._known_inodes: array[int] | None = None  # a set would take eight times as much
        self._mapped: dict[str, set[bytes]] = {}  # what may be written without anybody telling
        self.last = Looked(0)
        self._books: dict[str, Authors] = {}  # by the token of the watch
        self._kept = True  # what a look has read is durable at its end

    def follow(self, feed: Feed | None) -> None:
        """Follow changes from now on; the next scan reads everything, because earlier changes were not reported."""
        self.feed = feed
        self._books.clear()
        self._followed = -1

    def close(self) -> None:
        if self._place.opened.get(self.index.name) is self.index:
            del self._place.opened[self.index.name]
        self.index.close()
        if self.feed:
            self.feed.close()
            self.feed = None

    def begin(self, owner: dict[str, Any], bounds: Bounds) -> Baseline:
        """Everything that is there now can be brought back when this returns."""
        token = new_id()
        with self.index.looking():
            self._look_to_begin((token, owner), bounds)
        return self.claimed(token)

    def claim(self, claim: Claim) -> Baseline:
        """From the last look, as long as the watch that it was made for still needs the earlier state."""
        with self.index.looking():
            self.index.claim(claim, self.last.generation)
        return self.claimed(claim[0])

    def claimed(self, token: str) -> Baseline:
        """The beginning of a watch for which there is a claim from the last look."""
        self.end(token)
        if self.feed and (book := self.feed.open_book()) is not None:
            self._books[token] = book
        return Baseline(self.root.resource, self.index.name, self.last.generation, token)

    @property
    def is_there(self) -> bool:
        """At the last look."""
        return self._top is not None

    def _look_to_begin(self, register: Claim | None, bounds: Bounds) -> None:
        sticky = bool(self.index.exists() and self.index.watches())
        for _ in range(_LOOKS):
            begun = time.monotonic()
            looked = self._look(bounds, sticky, register)
            if not self.is_there:
                raise Misuse(
                    f"{display(self.root.resource)} is not a directory any more.",
                    hint="Name a directory to watch.",
                )
            if not looked.read or time.monotonic() - begun < _BRIEF:
                break
            # What was changed while all that was read must be known as it is when the command starts.
            sticky, register = True, None

    def changes(self, baseline: Baseline, then: Claim | None = None, kept: bool = True) -> Compared:
        """The changes from the baseline to now; the present content is in the store as well. `then`: of a watch that
        begins with this look. Not `kept`: that content is durable only when the caller has recorded the changes."""
        with self.index.looking():
            if not self.index.is_claimed(baseline.token):
                raise Refused(
                    f"The baseline of {display(self.root.resource)} is lost, so the changes there are unknown.",
                    hint="Its index was damaged or removed; look at the directory yourself.",
                )
            self._kept = kept
            try:
                self._look(Bounds(), sticky=True, register=then)
            finally:
                self._kept = True
            return self._compared(baseline.generation, self._instead())

    def is_as_at(self, baseline: Baseline) -> bool:
        """Whether nothing at all has changed since then."""
        with self.index.looking():
            if self.feed is None or not self.is_there or not self.index.is_claimed(baseline.token):
                return False
            looked = self._look(Bounds(), sticky=True)
            return self.is_there and looked.generation == baseline.generation

    def since(self, generation: int) -> set[str]:
        """The resources that were seen to change after that generation; nothing is looked at."""
        with self.index.looking():
            return {target.resource for target in self._compared(generation).targets}

    def authors(self, token: str) -> Authors | None:
        """Who made the changes since that watch began; None if that is not known."""
        return self._books.get(token)

    def end(self, token: str) -> None:
        book = self._books.pop(token, None)
        if self.feed and book is not None:
            self.feed.close_book(book)

    def others(self, token: str) -> tuple[WatchClaim, ...]:
        return tuple(watch for watch in self.index.watches() if watch.token != token)

    def holes(self) -> tuple[Hole, ...]:
        return self.index.holes()

    def _instead(self) -> FileState:
        """The present content at the path of the root, if the directory no longer exists."""
        if self.index.row("") is not None:
            return ABSENT
        try:
            with open_place(self.root.resource) as place:
                found = see(place, ABSENT, ReadScope(self._place.blobs))
        except CannotCapture as trouble:
            return {"type": "file", "excluded": trouble.reason}
        except OSError:
            return ABSENT  # what it was in is gone too, or is something else
        self._place.blobs.sync()
        return found

    def _compared(self, generation: int, instead: FileState = ABSENT) -> Compared:
        before = self.index.changed_since(generation)
        after = {path: self.index.listing(path) for path in before}

        def links_before(ino: int) -> Iterable[str]:
            for path, name in self.index.names_of_inode(ino):
                if path not in before:
                    yield f"{path}/{quote(name)}" if path else quote(name)

        return differing(self.root.resource, before, after, links_before, instead)

    # Looking.

    def _look(self, bounds: Bounds, sticky: bool, register: Claim | None = None) -> Looked:
        self._began_to_look = time.monotonic()
        self._mapped = mapped_below(self.root.path, self._place.makers() if self._place.makers else None)
        if self.index.in_doubt:
            lost = dict(self._lost())
            for path, names in lost.items():
                self._mapped.setdefault(path, set()).update(names)
            if not lost:
                self.index.believe()
        try:
            hints = self._hints(sticky)
            if hints is not None and not hints and self._is_there():
                return self._told(Looked(self.index.write({}, register)), whole=False)
            rules = rules_for(self.root, self._place.store, sticky)
            if hints is not None:
                with suppress(Doubt):
                    return self._told(self._seen(rules, bounds, hints, register), whole=False)
            return self._told(self._seen(rules, bounds, None, register), whole=True)
        except BaseException:
            self._followed = -1  # what a feed told for a look that failed, it does not tell again
            raise

    def _lost(self) -> Iterator[tuple[str, set[bytes]]]:
        """Names in directories whose content another process was about to record when it was killed: read again."""
        for path in self.index.in_doubt:
            listing = self.index.listing(path)
            named = listing.by_name.items() if listing else ()
            wanted = ((name, entry.digest) for name, entry in named if entry.digest != NO_DIGEST)
            if names := {name for name, digest in wanted if not self._place.blobs.has(digest.hex())}:
                yield path, names

    def _is_there(self) -> bool:
        """No feed tells that the directory itself, or one around it, was moved away."""
        if self._top is None:
            return False
        try:
            top = open_below(AT_ROOT, self.root.path, _LIST)
        except OSError:
            return False
        try:
            return os.path.samestat(os.fstat(top), self._top)
        finally:
            os.close(top)

    def _told(self, looked: Looked, whole: bool) -> Looked:
        self._followed = looked.generation
        self.last = looked._replace(whole=whole)
        if whole:
            self.index.shrink()
        return self.last

    def _hints(self, sticky: bool) -> Hints | None:
        """None: only the whole tree will do."""
        told = self.feed.drain() if self.feed else None
        if self.feed and self.feed.broken:
            self.crowded = self.feed.crowded
            self.feed.close()
            self.feed = None
        if told is None or not self.index.exists() or not 0 <= self._followed <= self.index.generation:
            return None
        if self.feed and self.feed.unsure and not self.feed.unsure.isdisjoint(self._inodes()):
            return None
        hints = {path: set(names) for path, names in told.items()}
        rules_changed = any(b".gitignore" in names for names in hints.values())
        if rules_changed and not sticky:
            return None
        for path, names in self._mapped.items():
            hints.setdefault(path, set()).update(names)
        if self.index.has_any_links():
            self._add_links(hints)
        return hints

    def _add_links(self, hints: dict[str, set[bytes]]) -> None:
        """A change of a file through one of its names is a change of all names."""
        for path, name in self.index.linked_elsewhere():
            hints.setdefault(path, set()).add(name)
        for path, names in list(hints.items()):
            for name in list(names):
                for where, other in self.index.twins_of(path, name):
                    hints.setdefault(where, set()).add(other)

    def _inodes(self) -> "array[int]":
        """Of all files that the index knows, and some that it knew."""
        generation = self.index.generation
        if self._known_inodes is None or generation != self._followed:
            rows = self.index.rows().values()
            self._known_inodes = array("Q", (entry[_INO] for row in rows for entry in entries_of(row)))
        return self._known_inodes

    def _seen(self, rules: Rules, bounds: Bounds, hints: Hints | None, register: Claim | None) -> Looked:
        begun = time.monotonic()
        looked = time.time_ns()
        try:
            top = open_below(AT_ROOT, self.root.path, _LIST)
        except OSError as error:
            if error.errno in _GONE:
                return self._nothing_there()
            raise ResourceUnreachable(
                f"{display(self.root.resource)} cannot be looked at: {os.strerror(error.errno or 0)}.",
                hint="Check its mode and owner.",
            ) from error
        try:
            self._top = os.fstat(top)
            with Handles(top) as handles:
                known, unpacked = self._known(hints), self.index.lately.unpacked
                scan = Scan(handles, known, unpacked, self._inside, rules, bounds, looked)
                if hints is None:
                    with self._place.progress.stage("Scanning"):
                        scan.everything(self._place.progress)
                else:
                    scan.only(hints)
                    if self.index.has_links(scan.gone):
                        raise Doubt  # what was done through names that are gone, was done to files that are not
                # Most of the new content may be known already, such as moved files.
                self._place.room(scan.bytes if register else 0)
                seen = self._read(handles, scan, looked, careful=hints is not None)
        finally:
            os.close(top)
        return self._written(seen, scan, begun, register)

    def _known(self, hints: Hints | None) -> Callable[[str], Row | None]:
        if not self.index.exists():
            return lambda path: None
        known = self.index.row
        if hints is None:
            rows = self.index.rows()
            known = rows.get
            # Check a sample of the content that the index names: a sweep keeps it, but someone may have replaced the
            # store. Then all of it is read again.
            step = max(1, len(rows) // _SAMPLE)
            samples = (next(digests_of(row), None) for row in list(rows.values())[::step])
            if not all(self._place.blobs.has(digest.hex()) for digest in samples if digest):
                return lambda path: None
        if not self._mapped:
            return known

        def row(path: str) -> Row | None:
            """As if what is mapped had been too young to trust its times."""
            found = known(path)
            return distrusting(found, self._mapped[path]) if found and path in self._mapped else found

        return row

    def _inside(self, path: str) -> list[str]:
        return self.index.inside(path) if self.index.exists() else []

    def _read(self, handles: Handles, scan: Scan, looked: int, careful: bool) -> dict[str, Seen]:
        seen: dict[str, Seen] = dict.fromkeys(scan.gone)
        many = len(scan.drafts) > _MANY
        progress = self._place.progress
        with progress.stage("Reading", "file"):
            progress.expect(sum(len(one.fresh) for one in scan.drafts.values()), scan.bytes)
            for path, listing in listings(handles, scan, self.root, self._place.blobs, looked):
                draft = scan.drafts.pop(path)  # of a large tree, not all of it at once is kept in memory
                progress.moved(items=len(draft.fresh))
                if careful and linked_anew(draft.before, listing, draft.fresh):
                    raise Doubt(path)  # its other names are somewhere in the tree, and no feed tells where
                if listing != draft.before:
                    seen[path] = packed(listing) if many else listing
                    if self._known_inodes is not None:
                        self._known_inodes.extend(draft.fresh.values())
        return seen

    def _written(self, seen: dict[str, Seen], scan: Scan, begun: float, register: Claim | None) -> Looked:
        if seen and self._kept:
            self._place.blobs.sync()
        if time.monotonic() - begun > _LONG:
            self._refuse_swept(seen)
        return Looked(self.index.write(seen, register, self._kept), len(seen), scan.bytes)

    def _refuse_swept(self, seen: dict[str, Seen]) -> None:
        """Refuse if the scan took so long that a sweep may have removed the first content put, which no record named
        yet."""
        for listing in seen.values():
            for digest in (
                digests_of(listing if isinstance(listing, Row) else packed(listing)) if listing else ()
            ):
                if not self._place.blobs.has(digest.hex()):
                    raise StoreBusy(
                        f"A sweep removed the content just read from {display(self.root.resource)}.",
                        hint="Nothing was done: do it again.",
                    )

    def _nothing_there(self) -> Looked:
        self._top = None
        gone: dict[str, Seen] = dict.fromkeys(self._inside(""))
        return Looked(self.index.write(gone), len(gone))
