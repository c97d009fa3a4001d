"""Blobs that a child which is killed has put are there for its parent."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from takeback.errors import BlobMissing
from takeback.model.content import name_of
from takeback.storage.blobs.codec import cut
from takeback.storage.protocols import BlobInfo


class SharedBlobs:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(exist_ok=True)

    def put(self, content: bytes | Iterable[bytes], like: str = "", refs: Sequence[str] = ()) -> str:
        whole = b"".join(cut(content))
        digest = name_of(whole).hex()
        for ref in refs:
            assert self.has(ref), "a blob must be there before another refers to it"
        self._write(digest, whole)
        self._write(f"{digest}.refs", " ".join(dict.fromkeys((*self.refs(digest), *refs))).encode())
        return digest

    def _write(self, name: str, content: bytes) -> None:
        making = self._directory / f"{name}.{os.getpid()}"
        making.write_bytes(content)
        making.rename(self._directory / name)

    def read(self, digest: str) -> Iterator[bytes]:
        if not self.has(digest):
            raise BlobMissing(f"Blob {digest} is not in the store.")
        return cut((self._directory / digest).read_bytes())

    def has(self, digest: str) -> bool:
        return (self._directory / digest).exists()

    def refs(self, digest: str) -> tuple[str, ...]:
        named = self._directory / f"{digest}.refs"
        return tuple(named.read_text().split()) if named.exists() else ()

    def sync(self) -> None: ...

    def disown(self) -> None: ...

    def info(self, digests: Sequence[str] | None = None) -> Iterator[BlobInfo]:
        raise NotImplementedError

    def check(self, read_data: bool) -> Iterator[str]:
        raise NotImplementedError

    def sweep(self, live: Callable[[], Iterable[str]], grace: int) -> int:
        needed: set[str] = set()
        unseen = list(live())
        while unseen:
            digest = unseen.pop()
            if digest not in needed:
                needed.add(digest)
                unseen += self.refs(digest)
        for file in self._directory.iterdir():
            if file.name.partition(".")[0] not in needed:
                file.unlink()
        return 0
