"""The progress of long work: the worker counts, a front end draws."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

_NOTHING: AbstractContextManager[None] = nullcontext()


class Progress:
    """This one draws nothing, and counting costs a call."""

    draws = False

    def stage(self, doing: str, noun: str = "path", ticks: bool = False) -> AbstractContextManager[None]:
        """A stretch of work, such as "Saving". Stages may lie in each other. `ticks`: what is done in it is
        not counted, because somebody else does it; only its time is shown."""
        return _NOTHING

    def expect(self, items: int = 0, bytes: int = 0) -> None:
        """So much more is to be done in this stage."""

    def moved(self, bytes: int = 0, items: int = 0) -> None:
        """So much more of it is done."""

    def aside(self) -> None:
        """Somebody else writes to the terminal now."""


SILENT = Progress()


class _Contents(Protocol):
    def put(self, content: bytes | Iterable[bytes], like: str = "", refs: Sequence[str] = (), /) -> str: ...

    def read(self, digest: str, /) -> Iterator[bytes]: ...


class CountedBlobs:
    """Blobs whose bytes are counted as they come and go."""

    def __init__(self, blobs: _Contents, moved: Callable[[int], None]) -> None:
        self._blobs = blobs
        self._moved = moved

    def put(self, content: bytes | Iterable[bytes], like: str = "", refs: Sequence[str] = ()) -> str:
        if not isinstance(content, bytes):
            return self._blobs.put(self._counted(content), like, refs)
        digest = self._blobs.put(content, like, refs)
        self._moved(len(content))
        return digest

    def read(self, digest: str) -> Iterator[bytes]:
        return self._counted(self._blobs.read(digest))

    def _counted(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            yield piece
            self._moved(len(piece))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)
