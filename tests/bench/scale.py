"""With 100,000 effects in the store: what everyday commands cost, beside the same with 100."""

import contextlib
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import takeback
from takeback.api import Takeback
from takeback.model.ids import new_id
from takeback.model.record import Draft, Kind, Record
from takeback.runs.run import core_of
from tests.bench.measure import (
    Line,
    Subject,
    Table,
    Wishes,
    in_turns,
    seconds_of,
    takeback_command,
    wall_time,
)

FEW = 100
IN_A_RUN = 100


class Scene(NamedTuple):
    """A store with so many effects, and the oldest of them, whose file stands as it left it."""

    store: str
    old: str


def measure(wishes: Wishes) -> Table:
    from takeback.frontends.cli.main import main

    many = 2_000 if wishes.quick else 100_000
    scenes = {
        "few": scene_of(os.path.join(wishes.directory, "few"), FEW),
        "many": scene_of(os.path.join(wishes.directory, "many"), many),
    }
    deeds: dict[str, Callable[[Scene], Sequence[str]]] = {
        "log -n 20": lambda scene: ["log", "-n", "20"],
        "status": lambda scene: ["status"],
        "plan the undo of an old effect": lambda scene: ["undo", "--dry-run", scene.old],
    }
    subjects: dict[str, Subject] = {}
    for size, scene in scenes.items():
        subjects[f"open {size}"] = _opening(scene)
        subjects[f"write {size}"] = _writing(scene)
        for deed, words in deeds.items():
            subjects[f"{deed} {size}"] = _in_process(main, scene, words(scene))
            subjects[f"{deed} {size} process"] = _process(scene, words(scene))
    taken = in_turns(subjects, wishes.rounds)
    lines = [
        Line("open the store", taken["open many"], "s", f"{FEW} effects", taken["open few"], 2.0, "cost")
    ]
    for deed in deeds:
        ours, few = taken[f"{deed} many"], taken[f"{deed} few"]
        lines.append(Line(f"{deed}, in process", ours, "s", f"{FEW} effects", few, 2.0, "cost"))
        ours, few = taken[f"{deed} many process"], taken[f"{deed} few process"]
        lines.append(Line(f"{deed}, as a command", ours, "s", f"{FEW} effects", few, 2.0, "cost"))
    lines.append(
        Line(
            "guarded write, one file",
            taken["write many"],
            "s",
            f"{FEW} effects",
            taken["write few"],
            None,
            "cost",
        )
    )
    notes = (
        f"runs of {IN_A_RUN} effects, each with its two records, targets and blobs, written through the journal",
        "in process: the command line's own code, from opening the store to the last line printed",
    )
    return Table(f"A store with {many:,} effects (ratio of times; lower is better)", tuple(lines), notes)


def _opening(scene: Scene) -> Subject:
    return lambda: seconds_of(lambda: takeback.open(scene.store).close(), 5)


def _writing(scene: Scene) -> Subject:
    path = os.path.join(os.path.dirname(scene.store), "other.txt")

    def act() -> float:
        with takeback.open(scene.store) as tb, tb.run("write") as run:
            return seconds_of(lambda: run.write(path, os.urandom(100)), 5)

    return act


def _in_process(main: Callable[[Sequence[str]], int], scene: Scene, words: Sequence[str]) -> Subject:
    def act() -> None:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            if main([*words, "--store", scene.store]):
                raise SystemExit(f"takeback {' '.join(words)} failed: {said.getvalue()}")

    return lambda: seconds_of(act, 5)


def _process(scene: Scene, words: Sequence[str]) -> Subject:
    return lambda: wall_time([*takeback_command(), *words, "--store", scene.store])


def scene_of(directory: str, effects: int) -> Scene:
    os.mkdir(directory)
    store = os.path.join(directory, "store")
    path = os.path.join(directory, "file.txt")
    with open(path, "w", encoding="ascii") as file:
        file.write("before\n")
    with takeback.open(store) as tb:
        with tb.run("the first", agent="bench") as run:
            first = run.write(path, "after\n")
        assert first
        intent, done = tb.store.journal.records(effect=first.id)
        for start in range(1, effects, IN_A_RUN):
            with tb.run(f"run {start}", agent=f"agent {start // IN_A_RUN % 7}") as run:
                drafts = list(_like(tb, intent, done, run.id, range(start, min(start + IN_A_RUN, effects))))
                tb.store.journal.append(core_of(run).lease, drafts)
        counted = tb.store.journal.tally()["done"]
        assert counted == effects, (counted, effects)
    return Scene(store, first.id)


def _like(tb: Takeback, intent: Record, done: Record, run: str, numbers: range) -> Iterator[Draft]:
    """Records as a write of another file would have made them, with blobs of their own."""
    resource: str = intent.body["resource"]
    ((_, before, after),) = intent.body["remedy"]["targets"]
    told = json.dumps(intent.body)
    for number in numbers:
        id, path = new_id(), f"{resource.rpartition('/')[0]}/{number % 997}/file-{number}.txt"
        old = tb.store.blobs.put(f"before {number}\n".encode(), like=path)
        new = tb.store.blobs.put(f"after {number}\n".encode(), like=path)
        text = told.replace(resource, path).replace(before["digest"], old).replace(after["digest"], new)
        body: dict[str, Any] = json.loads(text.replace(intent.effect, id)) | {"key": new_id()}
        yield Draft(Kind.INTENT, run, id, body)
        yield Draft(Kind.DONE, run, id, done.body)
