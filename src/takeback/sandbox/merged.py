"""What several uppers of an overlay show together, without mounting them: the rules of the kernel's own lookup.

A directory of an upper goes on in the layers below it, under the same name or, when it was renamed, under the name that
its `redirect` tells; an opaque one ends there. What lies below all the uppers is not looked at: a directory only tells
where in that world it goes on.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from takeback.sandbox.layer import is_whiteout


class Entry(NamedTuple):
    path: bytes  # below the mount point, without a slash at the beginning; empty for the mount point itself
    source: bytes  # the topmost thing of that name: for a whiteout the whiteout
    status: os.stat_result  # of the source
    below: (
        bytes | None
    )  # a directory: where it goes on in the world below (absolute there); None: it does not
    hides: bool  # something may lie below it under the name it has
    bottom: bytes = b""  # a directory: the lowest of those it is put together from

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_gone(self) -> bool:
        return is_whiteout(self.status)


class _Place(NamedTuple):
    """A directory of one upper, or of the world below (number = how many uppers there are)."""

    number: int
    path: bytes


class _Found(NamedTuple):
    parts: tuple[_Place, ...]  # topmost first
    status: os.stat_result | None
    below: bytes | None


def walk(uppers: Sequence[bytes], prefix: str) -> Iterator[Entry]:
    """Everything in them, the topmost upper first in `uppers`; parents before what is in them. `prefix` is that of
    overlay's own attributes."""
    return _Merged(uppers, prefix).entries()


class _Merged:
    def __init__(self, uppers: Sequence[bytes], prefix: str) -> None:
        self._uppers = tuple(uppers)
        self._opaque = f"{prefix}opaque"
        self._redirect = f"{prefix}redirect"

    def entries(self) -> Iterator[Entry]:
        roots = self._roots(0)
        top = os.lstat(roots[0].path)
        yield Entry(b"", roots[0].path, top, b"/", True, self._uppers[-1])
        waiting: list[tuple[bytes, tuple[_Place, ...]]] = [(b"", roots)]
        while waiting:
            path, parts = waiting.pop()
            hides = parts[-1].number == len(self._uppers)
            for name in self._names(parts):
                found = self._lookup(parts, name)
                if found.status is None:
                    continue
                inner = os.path.join(path, name) if path else name
                yield Entry(
                    inner, found.parts[0].path, found.status, found.below, hides, found.parts[-1].path
                )
                if stat.S_ISDIR(found.status.st_mode):
                    more = () if found.below is None else (_Place(len(self._uppers), found.below),)
                    waiting.append((inner, found.parts + more))

    def _roots(self, number: int) -> tuple[_Place, ...]:
        """Of the uppers from this one on, and of the world below."""
        mine = enumerate(self._uppers[number:], number)
        return (*(_Place(place, path) for place, path in mine), _Place(len(self._uppers), b"/"))

    def _names(self, parts: tuple[_Place, ...]) -> list[bytes]:
        names: set[bytes] = set()
        for place in parts:
            if place.number < len(self._uppers):
                names.update(os.listdir(place.path))
        return sorted(names)

    def _lookup(self, parts: tuple[_Place, ...], name: bytes) -> _Found:
        found: list[_Place] = []
        top: os.stat_result | None = None
        wanted, left = name, list(parts)
        while left:
            place = left.pop(0)
            if place.number == len(self._uppers):
                return _Found(tuple(found), top, os.path.join(place.path, wanted))
            path, status, stops, after = self._step(place, wanted)
            if status is not None:
                if top is not None and not stat.S_ISDIR(status.st_mode):
                    break  # a directory over something that is none: they do not merge
                found.append(_Place(place.number, path))
                top = top or status
            if stops:
                break
            if after != wanted and after.startswith(b"/"):
                left = list(self._roots(place.number + 1))
            wanted = after
        return _Found(tuple(found), top, None)

    def _step(self, place: _Place, wanted: bytes) -> tuple[bytes, os.stat_result | None, bool, bytes]:
        """In one upper: where, what is there, whether nothing below counts any more, and what to look for below."""
        path, after, stops = place.path, wanted, False
        names = wanted.strip(b"/").split(b"/")
        for count, name in enumerate(names, 1):
            path = os.path.join(path, name)
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                return path, None, stops, after
            if not stat.S_ISDIR(status.st_mode):
                return path, status if count == len(names) else None, True, after
            if stops := self._attribute(path, self._opaque) == b"y" or stops:
                continue
            if redirect := self._attribute(path, self._redirect):
                # A name of a directory on the way changes that part of the path, and nothing after it.
                rest = names[count:]
                if not redirect.startswith(b"/"):
                    before = after.strip(b"/").split(b"/")[: -len(rest) - 1]
                    redirect = (b"/" if wanted.startswith(b"/") else b"") + b"/".join([*before, redirect])
                after = b"/".join([redirect, *rest])
        return path, status, stops, after  # pyright: ignore[reportPossiblyUnboundVariable]

    def _attribute(self, path: bytes, name: str) -> bytes:
        try:
            return os.getxattr(path, name, follow_symlinks=False)
        except OSError:
            return b""
