"""Read what a scan found changed: the bytes go to the blobs, and the directory gets its new listing."""

import os
import stat
import time
from _thread import get_ident
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, cast

from takeback.adapters.file.content import at, read_file, read_xattrs
from takeback.adapters.file.mounts import mounts_below
from takeback.adapters.file.os_errors import CannotCapture
from takeback.adapters.file.paths import Handles, status_at
from takeback.adapters.file.sqlite_files import units_in
from takeback.adapters.tree.states import shell_of
from takeback.adapters.watch.index import CHANGING, MOUNTED, UNREADABLE
from takeback.adapters.watch.listings import Listing, ListingEntry, entry_of, stamped, trusted
from takeback.adapters.watch.roots import Root, resource_in
from takeback.adapters.watch.scan import ListingDraft, Scan
from takeback.errors import TakebackError
from takeback.model.resource import quote
from takeback.storage.protocols import Blobs

_TRIES = 5
_THREADS = 3
_MUCH = 8 << 20  # bytes to read; for less no thread is worth it
_AHEAD = 8  # directories in hand; each has a handle

Extra = dict[str, Any]


def _read_draft(
    fd: int, resource: str, draft: ListingDraft, blobs: Blobs, looked: int, mounted: Container[bytes] = ()
) -> Listing:
    """`resource` is the directory's; `mounted` are names in it that something is mounted on."""
    before = draft.before.extras if draft.before else {}
    none: Extra = {}
    found: dict[bytes, tuple[ListingEntry, Extra]] = {
        name: (entry, before.get(quote(name), none) if before else none) for name, entry in draft.kept.items()
    }
    reading = _Reading(fd, resource, blobs if draft.before else cast(Blobs, _Whole(blobs)))
    for unit in units_in([*draft.kept, *draft.fresh], draft.fresh):
        found |= reading.unit(unit)
        for name in unit:
            if name not in found and name in draft.fresh:
                draft.fresh.pop(name)  # it vanished
    for name in draft.fresh:
        if name in mounted and (hole := reading.hole(name, "another file is mounted there", MOUNTED)):
            found[name] = hole
        if name not in found and (one := reading.one(name)):
            found[name] = one
    for name, (reason, kind, status) in draft.left_out.items():
        found[name] = (entry_of(status, looked), {"excluded": reason, "hole": kind})
    names = tuple(sorted(found))
    seen = [found[name] for name in names]
    return Listing(
        stamped(draft.status, looked),
        shell_of(draft.status, read_xattrs(fd)),
        names,
        tuple([entry for entry, _ in seen]),
        tuple(sorted(draft.folders)),
        {quote(name): extra for name, (_, extra) in zip(names, seen, strict=True) if extra},
    )


def listings(
    handles: Handles, scan: Scan, root: Root, blobs: Blobs, looked: int
) -> Iterator[tuple[str, Listing]]:
    """Of all directories that the scan found changed, by path."""
    several = scan.bytes > _MUCH
    mounted = _mounted(root) if scan.drafts else {}

    def opened() -> Iterator[tuple[str, int]]:
        for path in sorted(scan.drafts):
            try:
                fd = handles.open(path)
                yield path, os.dup(fd) if several else fd
            except OSError:
                continue  # it went away just now; the times of the directory around it tell next time

    threads: set[int] = set()

    def read(path: str, fd: int) -> tuple[str, Listing]:
        threads.add(get_ident())
        resource = resource_in(root.resource, path)
        return path, _read_draft(fd, resource, scan.drafts[path], blobs, looked, mounted.get(path, ()))

    try:
        if several:
            yield from _in_threads(opened(), read)
        else:
            yield from (read(path, fd) for path, fd in opened())
    except TakebackError:
        if threads:
            blobs.disown(threads)  # else the next record would fail for what is lost of it
        raise


def _mounted(root: Root) -> dict[str, set[bytes]]:
    """Mount points below the root, by directory: what is done to a file mounted there, is done elsewhere."""
    found: dict[str, set[bytes]] = {}
    cut = len(root.path.rstrip(b"/")) + 1
    for point in mounts_below(root.resource):
        above, _, name = point[cut:].rpartition(b"/")
        found.setdefault(quote(above), set()).add(name)
    return found


def _in_threads(
    opened: Iterable[tuple[str, int]], read: Callable[[str, int], tuple[str, Listing]]
) -> Iterator[tuple[str, Listing]]:
    """Reading, hashing and packing run at the same time; each handle is closed when its directory was read."""
    from concurrent.futures import Future, ThreadPoolExecutor

    def one(path: str, fd: int) -> tuple[str, Listing]:
        try:
            return read(path, fd)
        finally:
            os.close(fd)

    waiting: deque[Future[tuple[str, Listing]]] = deque()
    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            for path, fd in opened:
                waiting.append(pool.submit(one, path, fd))
                if len(waiting) >= _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            while waiting:
                waiting.popleft().exception()  # its handle is closed


class _Whole:
    """Blobs for what is seen for the first time: there is no earlier version to look for."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def put(self, content: bytes | Iterable[bytes], like: str = "", refs: Sequence[str] = ()) -> str:
        return self._blobs.put(content, refs=refs)


class _Reading:
    def __init__(self, fd: int, resource: str, blobs: Blobs) -> None:
        self.fd = fd
        self.resource = resource
        self.blobs = blobs

    def one(self, name: bytes) -> tuple[ListingEntry, Extra] | None:
        """None if it is gone, or is a directory by now: then the times of the one around it tell next time."""
        looked = time.time_ns()
        try:
            status = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                return None
            if stat.S_ISREG(status.st_mode):
                return self._file(name, looked)
            return entry_of(status, looked), self._node(name, status)
        except FileNotFoundError:
            return None
        except CannotCapture as trouble:
            return self.hole(name, trouble.reason, CHANGING if trouble.readable else UNREADABLE)

    def _file(self, name: bytes, looked: int) -> tuple[ListingEntry, Extra]:
        state = read_file(self.fd, name, f"{self.resource}/{quote(name)}", self.blobs)
        entry = ListingEntry(
            state["mode"] | stat.S_IFREG,
            state["uid"],
            state["gid"],
            state["nlink"],
            state["dev"],
            state["ino"],
            state["size"],
            state["mtime"],
            trusted(state["ctime"], looked) if "ctime" in state else 0,
            bytes.fromhex(state["digest"]),
        )
        return entry, {key: state[key] for key in ("xattrs", "holes") if key in state}

    def _node(self, name: bytes, status: os.stat_result) -> Extra:
        """A symbolic link or a special file; neither is ever opened."""
        extra: Extra = {}
        if stat.S_ISLNK(status.st_mode):
            extra["target"] = quote(os.readlink(name, dir_fd=self.fd))
        elif status.st_rdev:
            extra["rdev"] = status.st_rdev
        if xattrs := read_xattrs(at(self.fd, name)):
            extra["xattrs"] = xattrs
        return extra

    def hole(self, name: bytes, reason: str, kind: str) -> tuple[ListingEntry, Extra] | None:
        status = status_at(self.fd, name)
        if status is None:
            return None
        entry = entry_of(status, time.time_ns())
        if kind != UNREADABLE:  # it may be readable next time
            entry = entry._replace(ctime=0)
        return entry, {"excluded": reason, "hole": kind}

    def unit(self, names: tuple[bytes, ...]) -> dict[bytes, tuple[ListingEntry, Extra]]:
        """Files that mean something only together: read until none of them changed while the others were read."""
        for _ in range(_TRIES):
            signs = [self._sign(name) for name in names]
            found = {name: one for name in names if (one := self.one(name))}
            if [self._sign(name) for name in names] == signs:
                return found
        reason = "its database changes while it is being read"
        return {name: one for name in names if (one := self.hole(name, reason, CHANGING))}

    def _sign(self, name: bytes) -> tuple[int, ...] | None:
        now = status_at(self.fd, name)
        return (now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns) if now else None


def linked_anew(before: Listing | None, now: Listing, fresh: Container[bytes]) -> bool:
    """Whether a file got another name, or lost one."""
    both = zip(now.names, now.entries, strict=True)
    several = {name: (entry.nlink, entry.ino) for name, entry in both if entry.nlink > 1 and name in fresh}
    known = before.by_name if several and before else {}
    return any(
        name not in known or (known[name].nlink, known[name].ino) != one for name, one in several.items()
    )
