"""A command that does nothing: what the box costs, beside bubblewrap starting the same, also from a large process."""

import json
import os
import statistics
import subprocess
import sys
from typing import Any

import takeback
from tests.bench.measure import Line, Table, Wishes, in_turns, seconds_of

BWRAP = [
    "bwrap", "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "--unshare-ipc",
    "--unshare-uts", "--die-with-parent", "true",
]  # fmt: skip
LARGE = 600  # MB
LAYERS = 300


def measure(wishes: Wishes) -> Table:
    small = _measured(os.path.join(wishes.directory, "small"), 3 * wishes.rounds, 0)
    large = _measured(os.path.join(wishes.directory, "large"), 3 * wishes.rounds, LARGE)
    first, last = _layers(os.path.join(wishes.directory, "layers"), 60 if wishes.quick else LAYERS)
    against = "bwrap true" if small["bwrap"] else ""
    lines = (
        Line('box.run("true")', small["box"], "s", against, small["bwrap"], 3.0, "cost"),
        Line("  the same, in milliseconds", small["box"], "s", bar=0.010),
        Line(f"  from a process of {LARGE} MB", large["box"], "s", against, large["bwrap"], 3.0, "cost"),
        Line("  from it, in milliseconds", large["box"], "s", bar=0.010),
        Line('run.command("true")', small["command"], "s", against, small["bwrap"], None, "cost"),
        Line("subprocess.run(true)", small["spawn"], "s"),
        Line(f"a command at layer {LAYERS}", last, "s", "at layer 1 to 10", first, 1.3, "cost"),
    )
    notes = ("each box.run is checkpoint, namespaces, overlay, the command, and the look at what it changed",)
    return Table("Entering the sandbox (ratio of wall times; lower is better)", lines, notes)


def _measured(directory: str, rounds: int, megabytes: int) -> dict[str, float]:
    """In a process of its own, as large as asked for."""
    os.mkdir(directory)
    program = [sys.executable, "-m", "tests.bench.entry", directory, str(rounds), str(megabytes)]
    ended = subprocess.run(program, check=True, capture_output=True, text=True)
    return json.loads(ended.stdout)


def _here(directory: str, rounds: int, megabytes: int) -> dict[str, float]:
    ballast = bytearray(megabytes << 20)
    for place in range(0, len(ballast), 4096):  # every page is there
        ballast[place] = 1
    subjects: dict[str, Any] = {"spawn": lambda: seconds_of(lambda: subprocess.run(["true"], check=True))}
    if _there("bwrap"):
        subjects["bwrap"] = lambda: seconds_of(lambda: subprocess.run(BWRAP, check=True))
    with takeback.open(os.path.join(directory, "store")) as tb, tb.run("entry") as run, run.sandbox() as box:
        subjects["box"] = lambda: seconds_of(lambda: box.run("true"))
        subjects["command"] = lambda: seconds_of(lambda: run.command(["true"], cwd="/"))
        taken = in_turns(subjects, rounds)
    return {"bwrap": 0.0} | taken


def _layers(directory: str, count: int) -> tuple[float, float]:
    """Of a command that changes one file: in the first ten layers, and in the last ten."""
    os.mkdir(directory)
    taken: list[float] = []
    with takeback.open(os.path.join(directory, "store")) as tb, tb.run("layers") as run, run.sandbox() as box:
        for number in range(count):
            line = f"echo {number} > {directory}/file{number}"
            taken.append(seconds_of(lambda line=line: box.run(line)))
    return statistics.median(taken[1:11]), statistics.median(taken[-10:])


def _there(program: str) -> bool:
    from shutil import which

    return which(program) is not None


if __name__ == "__main__":
    json.dump(_here(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])), sys.stdout)
