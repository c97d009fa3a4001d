"""What a killed takeback must not leave: processes, mounts, layers, scratch."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import poll

MARK = "TAKEBACK_TEST_MARK"
ENOUGH = 120  # seconds


@contextmanager
def marked(mark: str) -> Iterator[None]:
    """Every process that is started meanwhile carries this mark, and so do its own."""
    os.environ[MARK] = mark
    try:
        yield
    finally:
        del os.environ[MARK]


def processes_with(mark: str) -> list[str]:
    """Those that live and were started with this mark; a zombie is nobody's work."""
    wanted = f"{MARK}={mark}".encode()
    found: list[str] = []
    for pid in [name for name in os.listdir("/proc") if name.isdigit()]:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                surroundings = file.read().split(b"\0")
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                line = file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if wanted in surroundings and int(pid) != os.getpid():
            found.append(f"{pid}: {line[:120]}")
    return found


def wait_until_gone(mark: str) -> None:
    """What is told to die needs a moment for it."""
    until = time.monotonic() + ENOUGH
    while left := processes_with(mark):
        assert time.monotonic() < until, f"still there: {left}"
        poll().poll(20)  # milliseconds


def mounts(mark: str) -> list[str]:
    """Of this namespace, which is the user's own, those in which that directory occurs."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        return sorted(line.split(" ", 3)[3] for line in file if mark in line)


def layers_in(store: Path) -> list[str]:
    """Directories of commands that ended: they belong to nobody."""
    found = (path for path in (store / "commands").glob("*") if not path.name.startswith("run-"))
    return sorted(str(path) for path in found if path.is_dir())
