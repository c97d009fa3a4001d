"""A guarded write of 4 KB, durable, with new content each time: beside its own floor, and beside shadow git."""

import os
import shutil
from collections.abc import Callable
from itertools import count

import takeback
from tests.bench.floors import Floor, ShadowGit
from tests.bench.measure import Line, Subject, Table, Wishes, in_turns, seconds_of

SIZE = 4096
TREE = 1000

Write = Callable[[str, bytes], object]


def measure(wishes: Wishes) -> Table:
    batch = 5 if wishes.quick else 20
    floor = Floor(os.path.join(wishes.directory, "floor"))
    world = os.path.join(wishes.directory, "world")
    os.mkdir(world)
    git = ShadowGit(os.path.join(wishes.directory, "git"), TREE) if shutil.which("git") else None
    with takeback.open(os.path.join(wishes.directory, "store")) as tb, tb.run("bench") as run:

        def guarded(name: str, content: bytes) -> None:
            run.write(os.path.join(world, name), content)

        subjects: dict[str, Subject] = {
            "same": _same(guarded, batch, os.urandom),
            "same floor": _same(floor.write, batch, os.urandom),
            "text": _same(guarded, batch, _text),
            "new": _new(guarded, batch),
            "new floor": _new(floor.write, batch),
        }
        if git:
            subjects["git"] = _same(git.write, 2, os.urandom)
        taken = in_turns(subjects, wishes.rounds)
    floor.close()
    lines = [
        Line("one file, again and again", taken["same"], "s", "floor", taken["same floor"], 0.5),
        Line("the same, with text", taken["text"], "s", "floor", taken["same floor"]),
        Line("a new file each time", taken["new"], "s", "floor", taken["new floor"], 0.5),
    ]
    if git:
        lines.append(
            Line(f"beside a tree of {TREE:,} files", taken["same"], "s", "shadow git", taken["git"], 5.0)
        )
    notes = [
        f"each measurement is {batch} writes through the library in one run; every tenth takes a checkpoint as well",
        "floor: temp + fsync + rename + fsync of the directory, plus two SQLite commits (WAL, FULL), by hand",
        "shadow git: add --all + commit with core.fsync=all"
        if git
        else "git is not installed: no peer was measured",
    ]
    return Table("Guarded write of 4 KB (ratio of speeds; higher is better)", tuple(lines), tuple(notes))


def _text(size: int) -> bytes:
    """What does compress."""
    return "\n".join(f"server_{os.urandom(4).hex()} = {os.urandom(3).hex()}" for _ in range(200)).encode()[
        :size
    ]


def _same(write: Write, batch: int, content: Callable[[int], bytes]) -> Subject:
    return lambda: _timed(write, ["same.bin"] * batch, [content(SIZE) for _ in range(batch)])


def _new(write: Write, batch: int) -> Subject:
    numbers = count()
    return lambda: _timed(
        write, [f"new-{next(numbers)}.bin" for _ in range(batch)], [os.urandom(SIZE) for _ in range(batch)]
    )


def _timed(write: Write, names: list[str], contents: list[bytes]) -> float:
    work = iter(zip(names, contents, strict=True))
    return seconds_of(lambda: write(*next(work)), len(names))
