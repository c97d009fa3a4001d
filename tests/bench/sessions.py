"""A thousand commands in one session: does the last cost what the first did?"""

import os
import statistics
from itertools import count

import takeback
from tests.bench.measure import Line, Table, Wishes, bytes_below, seconds_of


def measure(wishes: Wishes) -> Table:
    commands = 60 if wishes.quick else 1000
    tenth = max(10, commands // 10)
    work = os.path.join(wishes.directory, "work")
    os.mkdir(work)
    store = os.path.join(wishes.directory, "store")
    taken: list[float] = []
    grown: list[int] = []
    numbers = count()
    unique = 0
    with takeback.open(store) as tb, tb.run("session") as run, run.sandbox() as box:
        empty = bytes_below(store)
        for _ in range(commands):
            number = next(numbers)
            line, written = _line(work, number)
            unique += written
            taken.append(seconds_of(lambda line=line: _ran(box.run(line))))
            grown.append(_resident())
        tb.store.database.read("PRAGMA wal_checkpoint(TRUNCATE)")
        stored = bytes_below(store) - empty
    first, last = statistics.median(taken[tenth // 2 : tenth + tenth // 2]), statistics.median(taken[-tenth:])
    lines = (
        Line(
            f"one of the last {tenth} of {commands:,} commands", last, "s", "of the first", first, 1.3, "cost"
        ),
        Line("memory at the end", grown[-1], "B", "after the first tenth", grown[tenth], 1.1, "cost"),
        Line("store", stored, "B", "unique changed bytes", unique, 1.1, "cost"),
        Line("the whole session", sum(taken), "s"),
    )
    notes = ("every command writes 4 to 64 KB that do not compress, each tenth of them over an earlier file",)
    return Table("A long session (ratios; lower is better)", lines, notes)


def _line(work: str, number: int) -> tuple[str, int]:
    """A command, and how many bytes it writes that were nowhere before."""
    size = (4, 8, 16, 32, 64)[number % 5] * 1024
    name = f"{work}/{number % 10 if number % 10 == 0 else number}"
    return f"head -c {size} /dev/urandom > {name}; cd {work}; export LAST={number}", size


def _ran(outcome: object) -> None:
    assert getattr(outcome, "exit_code", 1) == 0, outcome


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
