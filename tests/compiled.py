"""Compile the tests once, before workers start: each of them would do it for itself, and that takes half a minute.

It is pytest's own form of a compiled test, in which each `assert` tells what it saw, at the place where pytest looks.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

ROOT = Path(__file__).parents[1]


class Compiled:
    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Also before xdist starts its workers: it is the last that hears of the session."""
        starts_workers = session.config.getoption("numprocesses", 0)
        if not starts_workers or sys.dont_write_bytecode or "PYTEST_XDIST_WORKER" in os.environ:
            return
        missing = [source for source in sources() if not is_compiled(source)]
        at_once = min(os.cpu_count() or 1, len(missing))
        children = [_forked(session.config, missing[first::at_once]) for first in range(at_once)]
        for child in children:
            os.waitpid(child, 0)  # whatever one did not do, the workers do


def _forked(config: pytest.Config, sources: Sequence[Path]) -> int:
    child = os.fork()
    if child == 0:
        try:
            for source in sources:
                compile_test(config, source)
        finally:
            os._exit(0)
    return child


def sources() -> Iterator[Path]:
    for pattern in ("test_*.py", "conftest.py"):
        yield from sorted((ROOT / "tests").rglob(pattern))


def place_of(source: Path) -> Path:
    return rewrite.get_cache_dir(source) / f"{source.stem}{rewrite.PYC_TAIL}"


def is_compiled(source: Path) -> bool:
    """By the hash of the source that pytest keeps in it."""
    try:
        head = place_of(source).read_bytes()[:16]
    except OSError:
        return False
    return head[:4] == importlib.util.MAGIC_NUMBER and head[8:] == importlib.util.source_hash(
        source.read_bytes()
    )


def compile_test(config: pytest.Config, source: Path) -> None:
    source_hash, code = rewrite._rewrite_test(source, config)
    place = place_of(source)
    place.parent.mkdir(exist_ok=True)
    rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, place)
