"""SIGINT at a moment of a command: what is said must be what is.

A new verb joins the sweep with one `Verb`: how it is asked for, what must hold before, and how the world looks before
and after it."""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.e2e.conftest import surroundings

COMMAND = (sys.executable, "-m", "takeback")
WELL, INTERRUPTED = 0, 130


class Verb(NamedTuple):
    words: tuple[str, ...]
    ready: Callable[[], None]  # puts the world and the store to where it can be asked for
    seen: Callable[[], str]  # "before", "after", or what else the world looks like
    ends: int = WELL  # its exit code if nobody interrupts it
    offers: Callable[[str], str] = lambda said: ""  # takes what was said by its word; what that was


class Sweep:
    def __init__(self, place: Path, verbs: dict[str, Verb], seed: int) -> None:
        self._place = place
        self._verbs = verbs
        self._random = random.Random(seed)
        self._lasts: dict[str, int] = {}
        self.counts: Counter[str] = Counter()

    def once(self, name: str) -> None:
        """The moment is when the process has used so much processor time: that is the same on a busy machine."""
        verb = self._verbs[name]
        verb.ready()
        lasts = self._lasts.get(name)
        if lasts is None:
            lasts = self._lasts[name] = _ticks_of_a_whole(self._place, verb)
            verb.ready()
        code, said = _interrupted(self._place, verb, self._random.uniform(0, lasts * 1.05))
        self._judge(name, verb, code, said)

    def _judge(self, name: str, verb: Verb, code: int, said: str) -> None:
        where = f"{name}: exit code {code}, said {said!r}"
        assert "frontends/cli" not in said, where  # what Python itself says before we are loaded is not ours
        now = verb.seen()
        subprocess.run(
            [*COMMAND, "log"], cwd=self._place, env=surroundings(), capture_output=True, check=True
        )
        then = verb.seen()
        settled = subprocess.run(
            [*COMMAND, "recover"],
            cwd=self._place,
            env=surroundings(),
            capture_output=True,
            text=True,
            check=False,
        )
        later = verb.seen()
        assert now == then, f"{where}: looking changed it from {now} to {then}"
        assert later in ("before", "after"), f"{where}: {later}; {settled}"
        if "not finished" not in said:
            assert now == later, f"{where}: was {now}, and recover made it {later}: {settled.stdout}"
        if "nothing was changed" in said or "nothing was dropped" in said:
            assert now == "before", f"{where}: but it is {now}"
            told = "nothing"
        elif any(words in said for words in ("made: ", "was made", "it was dropped")) or code == WELL:
            assert now == "after", f"{where}: but it is {now}"
            told = "made"
        else:
            told = "unfinished" if "not finished" in said else "silent"
        self.counts[f"{name}: {told}{verb.offers(said)}"] += 1


def _ticks_of_a_whole(place: Path, verb: Verb) -> int:
    """Microseconds of processor time that it takes."""
    before = os.times()
    done = subprocess.run(
        [*COMMAND, *verb.words], cwd=place, env=surroundings(), capture_output=True, check=False
    )
    assert done.returncode == verb.ends, done
    after = os.times()
    spent = after.children_user - before.children_user + after.children_system - before.children_system
    return int(spent * 1e6)


def _interrupted(place: Path, verb: Verb, after: float) -> tuple[int, str]:
    child = subprocess.Popen(
        [*COMMAND, *verb.words], cwd=place, env=surroundings(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    with child:
        while child.poll() is None and _spent(child.pid) * 1e6 < after:
            os.sched_yield()
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
        said, _ = child.communicate(timeout=120)
    return child.returncode, said


def _spent(pid: int) -> float:
    """Seconds of processor time of a process so far, finer than the ticks of /proc/PID/stat."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 1e9
