"""A fork that costs little, in a process that has thousands of tests in memory.

Tests that die at each boundary fork thousands of times, and each time the kernel copies the tables of all pages and
Python's collector touches what it walks through. Once everything is collected nothing of it changes any more: it is
taken out of the collector's sight and moved into large pages, of which there are five hundred times fewer.
"""

import ctypes
import gc
from contextlib import suppress
from pathlib import Path

import pytest

_LARGE = 2 << 20
_MAY_BE_LARGE, _MAKE_LARGE = 14, 25  # MADV_HUGEPAGE, and MADV_COLLAPSE since Linux 6.1


class Forks:
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items and not session.config.option.collectonly:
            gc.collect()
            gc.freeze()
            use_large_pages()


def use_large_pages() -> None:
    """Where the kernel has none for us everything stays as it is."""
    madvise = ctypes.CDLL(None).madvise
    with suppress(OSError):
        for start, end in _own_memory(Path("/proc/self/maps").read_text()):
            for place in range(start, end, _LARGE):  # one that cannot be made must not keep us from the next
                page = ctypes.c_void_p(place), ctypes.c_size_t(_LARGE)
                if not madvise(*page, _MAY_BE_LARGE):
                    madvise(*page, _MAKE_LARGE)


def _own_memory(maps: str) -> list[tuple[int, int]]:
    """What is ours alone, belongs to no file and holds at least one large page."""
    found: list[tuple[int, int]] = []
    for line in maps.splitlines():
        where, rights, _, _, inode, *name = line.split()
        if rights == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
            start, end = (int(edge, 16) for edge in where.split("-"))
            start, end = -(-start // _LARGE) * _LARGE, end // _LARGE * _LARGE
            if start < end:
                found.append((start, end))
    return found
