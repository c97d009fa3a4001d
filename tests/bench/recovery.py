"""A worker is killed with -9 in the middle of a step: how soon a fresh process goes on with that run."""

import os
import statistics
from collections.abc import Callable, Iterator

from tests.bench.measure import Line, Table, Wishes
from tests.bench.programs import MISSING, Program, child, databases, peers_are_here

BAR = 1.0  # seconds
INSIDE = 50  # the step of 100 in which it is killed


def measure(wishes: Wishes) -> Table:
    taken: dict[str, list[float]] = {}
    with databases(wishes) as address:
        for turn in range(wishes.rounds + 1):  # the first does not count
            for name, program in _programs(wishes, address, turn):
                seconds = _recovered(program)
                taken.setdefault(name, []).extend([seconds] if turn else [])
    medians = {name: statistics.median(values) for name, values in taken.items()}
    lines: list[Line] = []
    for place in ("SQLite", "PostgreSQL"):
        dbos = medians.get(f"dbos {place}", 0.0)
        for kind, told in (("remember", "in run.remember"), ("probed", "in run.call, its probe asked first")):
            lines += [Line(f"{place}, killed {told}", medians[f"{kind} {place}"], "s", bar=BAR)]
            if dbos:
                lines += [Line("  beside", medians[f"{kind} {place}"], "s", "DBOS", dbos)]
    notes = (
        f"from the end of the imports of a fresh process to the first step that is made: the {INSIDE}th, in which the "
        "first process was killed",
        "DBOS: the second process has the same executor id; with another one nobody goes on with it. LangGraph: "
        "somebody has to call the graph again",
    )
    title = "Going on after kill -9"
    return Table(title, tuple(lines), notes if peers_are_here() else (*notes, MISSING))


def _programs(wishes: Wishes, address: Callable[[str], str], turn: int) -> Iterator[tuple[str, Program]]:
    """Each time a database of its own, with nothing else in it."""

    def place(name: str) -> str:
        return os.path.join(wishes.directory, f"{name}-{turn}")

    for kind in ("remember", "probed"):
        yield f"{kind} SQLite", Program("takeback", place(kind), kind)
        yield f"{kind} PostgreSQL", Program("takeback", address(f"{kind}_{turn}"), kind)
    if peers_are_here():
        yield "dbos SQLite", Program("dbos", f"sqlite:///{place('dbos')}.sqlite")
        yield "dbos PostgreSQL", Program("dbos", address(f"dbos_{turn}"))


def _recovered(program: Program) -> float:
    with child(program, "begin", INSIDE) as first:
        assert first.hear()["inside"] == INSIDE
    with child(program, "recover", INSIDE) as second:
        said = second.hear()
        assert said["inside"] == INSIDE
        return said["seconds"]
