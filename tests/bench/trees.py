"""Undo of ten thousand deleted files, beside copying them back with cp."""

import os
import random
import shutil
import statistics
import subprocess
from itertools import count

import takeback
from tests.bench.measure import Line, Table, Wishes, seconds_of


def measure(wishes: Wishes) -> Table:
    files = 500 if wishes.quick else 10_000
    tree = os.path.join(wishes.directory, "tree")
    _plant(tree, files)
    names = count()
    copied: list[float] = []
    removed: list[float] = []
    deleted: list[float] = []
    undone: list[float] = []
    for turn in range(wishes.rounds + 1):
        copied.append(_copy(tree, os.path.join(wishes.directory, "copy")))
        removed.append(_remove(os.path.join(wishes.directory, "copy")))
        # A store of its own each time: one that knows the contents already would make the delete look cheap.
        store = os.path.join(wishes.directory, f"store-{next(names)}")
        with takeback.open(store) as tb:
            os.sync()
            with tb.run("delete") as run:
                deleted.append(seconds_of(lambda run=run: run.delete(tree)))
            assert not os.path.exists(tree)
            os.sync()
            undone.append(seconds_of(lambda tb=tb: tb.undo("@")))
            assert sum(len(found) for _, _, found in os.walk(tree)) == files
        shutil.rmtree(store)
        if not turn:  # the first round warms up
            for taken in (copied, removed, deleted, undone):
                taken.clear()
    copying = statistics.median(copied)
    removing = statistics.median(removed)
    deleting = statistics.median(deleted)
    lines = (
        Line(
            f"undo of {files:,} deleted files", statistics.median(undone), "s", "cp -a + sync", copying, 0.5
        ),
        Line(f"delete of {files:,} files, captured first", deleting, "s", "rm -r + sync", removing),
        Line("  the same, beside keeping a copy", deleting, "s", "cp -a + rm -r", copying + removing),
    )
    return Table(
        "A directory of small files (ratio of speeds; higher is better)",
        lines,
        ("files of 100 to 4,000 bytes, 100 to a directory; both ends of each measurement are durable",),
    )


def _plant(tree: str, files: int) -> None:
    chance = random.Random(3)
    for number in range(files):
        place = os.path.join(tree, f"{number // 100:03}")
        os.makedirs(place, exist_ok=True)
        with open(os.path.join(place, f"{number}.txt"), "wb") as file:
            file.write(chance.randbytes(chance.randrange(50, 2000)).hex().encode())


def _copy(tree: str, copy: str) -> float:
    os.sync()
    return seconds_of(lambda: _run(["cp", "-a", tree, copy], ["sync"]))


def _remove(copy: str) -> float:
    return seconds_of(lambda: _run(["rm", "-r", copy], ["sync"]))


def _run(*commands: list[str]) -> None:
    for command in commands:
        subprocess.run(command, check=True)
