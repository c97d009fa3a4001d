"""A workflow of 100 steps, each of which is on the disk before the next: beside DBOS and LangGraph."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from tests.bench.measure import Line, Subject, Table, Wishes, in_turns
from tests.bench.programs import MISSING, Child, Program, child, databases, peers_are_here

STEPS = 100
BAR = 3
KINDS = ("remember", "call")
PEERS = {"dbos": "DBOS", "langgraph": "LangGraph, sync"}


def measure(wishes: Wishes) -> Table:
    steps = 10 if wishes.quick else STEPS
    used: dict[str, list[float]] = {}
    with ExitStack() as stack:
        address = stack.enter_context(databases(wishes))
        programs = dict(_programs(wishes, address))
        children = {name: stack.enter_context(child(one, "steps")) for name, one in programs.items()}
        for one in children.values():
            one.hear()  # that it is ready
        subjects: dict[str, Subject] = {
            name: _subject(one, steps, used.setdefault(name, [])) for name, one in children.items()
        }
        taken = in_turns(subjects, wishes.rounds)
    lines: list[Line] = []
    for place in ("SQLite", "PostgreSQL"):
        for kind in KINDS:
            ours = taken[f"{kind} {place}"]
            told = f"{place}, steps with run.{kind}"
            beside = [(PEERS[peer], taken[f"{peer} {place}"]) for peer in PEERS if f"{peer} {place}" in taken]
            lines += [Line(told, ours, "s", name, theirs, BAR) for name, theirs in beside]
            lines += [] if beside else [Line(told, ours, "s")]
    lines += [
        Line(f"processor time: {name}", sorted(values)[len(values) // 2], "s")
        for name, values in used.items()
    ]
    notes = (
        f"for one of {steps} steps, from the start of the workflow to its end; every step adds one to a number",
        "remember: what the step returned is recorded, as the peers do. call: first that it will be made, then what "
        "came of it, so two commits",
        "a process each, asked in turn; DBOS 3.x as its guide says, LangGraph with its saver and durability=sync",
    )
    title = "A step of a workflow (ratio of speeds; higher is better)"
    return Table(title, tuple(lines), notes if peers_are_here() else (*notes, MISSING))


def _programs(wishes: Wishes, address: Callable[[str], str]) -> Iterator[tuple[str, Program]]:
    """By what it is and where it keeps its state. Everybody has a database of their own."""
    for kind in KINDS:
        yield f"{kind} SQLite", Program("takeback", os.path.join(wishes.directory, kind), kind)
        yield f"{kind} PostgreSQL", Program("takeback", address(kind), kind)
    if peers_are_here():
        yield "dbos SQLite", Program("dbos", f"sqlite:///{wishes.directory}/dbos.sqlite")
        yield "dbos PostgreSQL", Program("dbos", address("dbos"))
        yield "langgraph SQLite", Program("langgraph", os.path.join(wishes.directory, "langgraph.sqlite"))
        yield "langgraph PostgreSQL", Program("langgraph", address("langgraph"))


def _subject(one: Child, steps: int, used: list[float]) -> Subject:
    def work() -> float:
        said = one.ask(steps)
        assert said["reached"] == steps
        used.append(said["processor"] / steps)
        return said["seconds"] / steps

    return work
