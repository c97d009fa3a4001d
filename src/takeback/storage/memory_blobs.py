"""Blobs in memory: for tests and for runs that need no store; held to the same suite."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from takeback.model.flaw import Flaw
from takeback.model.naming import name_of
from takeback.model.progress import SILENT, Progress
from takeback.storage.blob_reader import damaged, missing
from takeback.storage.codec import cut
from takeback.storage.protocols import BlobInfo


class Kept(NamedTuple):
    content: bytes
    refs: tuple[str, ...]
    created_at: int


class MemoryBlobs:
    def __init__(self, now: Callable[[], int] | None = None) -> None:
        """`now` is in microseconds since 1970."""
        self._now = now or (lambda: time.time_ns() // 1000)
        self._lock = threading.RLock()
        self.kept: dict[str, Kept] = {}

    def put(self, content: bytes | Iterable[bytes], like: str = "", refs: Sequence[str] = ()) -> str:
        whole = b"".join(cut(content))
        digest = name_of(whole).hex()
        with self._lock:
            for ref in refs:
                if ref not in self.kept:
                    raise missing(ref)
            before = self.kept.get(digest)
            union = tuple(dict.fromkeys((*(before.refs if before else ()), *refs)))
            self.kept[digest] = Kept(whole, union, self._now() // 1_000_000)
        return digest

    def read(self, digest: str) -> Iterator[bytes]:
        with self._lock:
            kept = self._get(digest)
        if name_of(kept.content).hex() != digest:
            raise damaged(bytes.fromhex(digest), "its bytes do not have its hash")
        return cut(kept.content)

    def _get(self, digest: str) -> Kept:
        kept = self.kept.get(digest)
        if kept is None:
            raise missing(digest)
        return kept

    def has(self, digest: str) -> bool:
        return digest in self.kept

    def refs(self, digest: str) -> tuple[str, ...]:
        with self._lock:
            return self._get(digest).refs

    def sync(self) -> None:
        """Memory is as durable as it gets."""

    def disown(self, threads: Collection[int] = ()) -> None:
        """A sweep takes it when it is old."""

    def info(self, digests: Sequence[str] | None = None) -> Iterator[BlobInfo]:
        with self._lock:
            names = list(self.kept) if digests is None else [one for one in digests if one in self.kept]
            found = [BlobInfo(one, len(self.kept[one].content), len(self.kept[one].content)) for one in names]
        yield from found

    def check(self, read_data: bool, progress: Progress = SILENT) -> Iterator[Flaw]:
        with self._lock:
            kept = dict(self.kept)
        for digest, one in kept.items():
            progress.moved(len(one.content), 1)
            if read_data and name_of(one.content).hex() != digest:
                error = damaged(bytes.fromhex(digest), "its bytes do not have its hash")
                yield Flaw(str(error), blob=digest)
            for ref in one.refs:
                if ref not in kept:
                    text = f"Blob {digest} refers to blob {ref}, which is not in the store."
                    yield Flaw(text, blob=digest)

    def sweep(
        self,
        live: Callable[[], Iterable[str]],
        grace: int,
        erase: Sequence[str] = (),
        put_until: int = 0,
        progress: Progress = SILENT,
    ) -> int:
        with self._lock:
            now = self._now() // 1_000_000
            young = [
                digest
                for digest, kept in self.kept.items()
                if grace
                and now - kept.created_at <= grace
                and (digest not in erase or kept.created_at > put_until)
            ]
            waiting = [digest for digest in live() if digest in self.kept] + young
            needed: set[str] = set()
            while waiting:
                digest = waiting.pop()
                if digest not in needed:
                    needed.add(digest)
                    waiting += self._get(digest).refs
            dead = [digest for digest in self.kept if digest not in needed]
            return sum(len(self.kept.pop(digest).content) for digest in dead)
