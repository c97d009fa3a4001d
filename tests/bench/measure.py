"""Take turns, take medians: every subject is measured once a round, so that a noisy machine is noisy for all."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Subject = Callable[[], float]  # does it once and says how many seconds that took


class Wishes(NamedTuple):
    """What the command line asked for."""

    directory: str
    rounds: int
    quick: bool
    full: bool


class Line(NamedTuple):
    """One row: our number beside a reference, and the ratio that is asked for."""

    what: str
    ours: float
    unit: str  # "s" or "B"; "" for a plain number
    against: str = ""
    reference: float = 0.0
    bar: float | None = None  # None: only told
    # "speed": reference / ours is at least the bar. "cost": ours / reference is at most the bar.
    rule: str = "speed"

    @property
    def ratio(self) -> float | None:
        if not self.against or not self.ours or not self.reference:
            return None
        return self.reference / self.ours if self.rule == "speed" else self.ours / self.reference

    @property
    def short(self) -> bool:
        if self.bar is None:
            return False
        if self.ratio is None:
            return self.ours > self.bar
        return self.ratio < self.bar if self.rule == "speed" else self.ratio > self.bar


class Table(NamedTuple):
    title: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()


def in_turns(subjects: Mapping[str, Subject], rounds: int) -> dict[str, float]:
    """The median of each. One round more than asked for is run, and the first does not count."""
    taken: dict[str, list[float]] = {name: [] for name in subjects}
    for turn in range(rounds + 1):
        for name, subject in subjects.items():
            seconds = subject()
            if turn:
                taken[name].append(seconds)
    return {name: statistics.median(values) for name, values in taken.items()}


def seconds_of(act: Callable[[], object], times: int = 1) -> float:
    """Of one of so many acts."""
    start = time.perf_counter()
    for _ in range(times):
        act()
    return (time.perf_counter() - start) / times


def wall_time(command: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    """From start to end of a process; one that fails is not measured but reported."""
    start = time.perf_counter()
    ended = subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=_usual(os.environ if environment is None else environment),
    )
    seconds = time.perf_counter() - start
    if ended.returncode:
        said = ended.stderr.decode(errors="replace").strip()
        raise SystemExit(f"{' '.join(command)} ended with {ended.returncode}: {said}")
    return seconds


def processor_time(command: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    """Of a process and of all that it started and waited for."""
    given = _usual(os.environ if environment is None else environment)
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, nothing, number) for number in range(3)]
        pid = os.posix_spawn(command[0], list(command), given, file_actions=actions)
        _, status, used = os.wait4(pid, 0)
    finally:
        os.close(nothing)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime


def _usual(environment: Mapping[str, str]) -> dict[str, str]:
    """As a user's own: compiled modules are kept, so that only the first start compiles them."""
    return {name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"}


def takeback_command() -> list[str]:
    """As installed beside this interpreter, or the same thing by its name in the package."""
    script = os.path.join(os.path.dirname(sys.executable), "takeback")
    if os.access(script, os.X_OK):
        return [script]
    return [
        sys.executable,
        "-c",
        "import sys; from takeback.frontends.cli.main import main; sys.exit(main())",
    ]


def bytes_below(directory: str) -> int:
    """The lengths of all files, not their blocks: those depend on the filesystem. A file with several names (squashed
    layers share theirs) is there once. Without the 1 MB that a store sets aside for a full disk, whatever is in it."""
    sizes: dict[tuple[int, int], int] = {}
    for place, _, names in os.walk(directory):
        if os.path.basename(place) == "spare":
            continue
        for name in names:
            status = os.lstat(os.path.join(place, name))
            sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())
