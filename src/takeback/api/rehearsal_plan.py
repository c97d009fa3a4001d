"""Inside a rehearsal: make the changes of a plan, and undo them, newest first."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from takeback.api import Takeback
from takeback.model.effect import Effect, State
from takeback.model.plan import Outcome
from takeback.model.rehearsal import Viability
from takeback.model.resource import file_resource
from takeback.runs.rehearsals.limits import judged_in_layer
from takeback.runs.rehearsals.manifest import broken_promises, manifest, places_of
from takeback.runs.run import Run

Target = list[str]


class Made(NamedTuple):
    effects: tuple[Effect, ...]
    trouble: str  # why it was not made, or not as it should be
    milliseconds: int


def carry_out(tb: Takeback, steps: Sequence[dict[str, Any]], cwd: str, tell: Callable[..., None]) -> None:
    os.chdir(cwd)
    made: list[Made] = []
    with tb.run("rehearsal", on_death="accept") as run:
        for step in steps:
            made.append(_make(tb, run, step))
            if made[-1].trouble:
                break
    for number, one in reversed(list(enumerate(made))):
        _take_back(tb, number, one, tell)
    for number in range(len(made), len(steps)):
        tell(step=number, outcome=Viability.CANNOT.value, why="an earlier step could not be made", targets=[])


def _make(tb: Takeback, run: Run, step: dict[str, Any]) -> Made:
    started = time.perf_counter()
    before = {one.id for one in tb.effects(run=run.id)}
    trouble = ""
    try:
        trouble = _STEPS[step["kind"]](run, step["args"]) or ""
    except Exception as error:  # noqa: BLE001 whatever it raises is the answer
        trouble = f"it could not be made: {judged_in_layer(error)[1]}"
    effects = tuple(one for one in tb.effects(run=run.id, state=State.DONE) if one.id not in before)
    return Made(effects, trouble, int((time.perf_counter() - started) * 1000))


def _take_back(tb: Takeback, number: int, made: Made, tell: Callable[..., None]) -> None:
    started = time.perf_counter()
    proof, why, targets = Viability.WORKS, "", list[Target]()
    adapters = [(one.change.adapter, one.remedy.strategy.value) for one in made.effects if one.remedy]
    for effect in reversed(made.effects):
        try:
            result = tb.undo(effect.id)
        except Exception as error:  # noqa: BLE001
            proof, why = judged_in_layer(error)
            break
        bad = [one for one in result.targets if one.outcome not in (Outcome.UNDONE, Outcome.ALREADY)]
        targets += [[one.resource, Viability.FAILS.value, one.detail] for one in bad]
        for path, words in broken_promises(effect.targets, manifest(places_of(effect))).items():
            targets.append([file_resource(path), Viability.FAILS.value, f"undo left {words}"])
    if targets:
        proof, why = Viability.FAILS, targets[0][2]
    elif proof is Viability.WORKS and made.trouble:
        proof, why = Viability.CANNOT, made.trouble
    elif proof is Viability.WORKS and not made.effects:
        why = "it changes nothing"
    spent = made.milliseconds + int((time.perf_counter() - started) * 1000)
    adapter, strategy = adapters[0] if adapters else ("", "")
    names = dict.fromkeys(target.resource for one in made.effects for target in one.targets)
    targets = targets or [[name, proof.value, why] for name in names]
    tell(
        step=number, outcome=proof.value, why=why, targets=targets, milliseconds=spent, adapter=adapter,
        strategy=strategy,
    )  # fmt: skip


def _run(run: Run, args: dict[str, Any]) -> str:
    import subprocess

    words: Any = args["run"]
    argv = cast("list[str]", words) if isinstance(words, list) else ["/bin/sh", "-c", words]
    cwd = args.get("cwd", ".")
    with run.watch(*args.get("roots", [cwd]), any_root=True):
        ended = subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=2, check=False)
    return f"it ended with exit code {ended.returncode}" if ended.returncode else ""


def _write(run: Run, args: dict[str, Any]) -> None:
    content: Any = args.get("content")
    if content is None:
        with open(args["from"], "rb") as file:
            content = file.read()
    run.write(args["write"], content, mode=_mode(args))


def _mode(args: dict[str, Any]) -> int | None:
    return int(args["mode"], 8) if "mode" in args else None


def _sql(run: Run, args: dict[str, Any]) -> None:
    database = run.sql(args["sql"])
    for statement in args["statements"]:
        database.execute(statement)


_STEPS: "dict[str, Callable[[Run, dict[str, Any]], str | None]]" = {
    "run": _run,
    "write": _write,
    "delete": lambda run, args: run.delete(args["delete"]) and None,
    "move": lambda run, args: run.move(*args["move"]) and None,
    "mkdir": lambda run, args: run.mkdir(args["mkdir"], _mode(args), parents=True) and None,
    "link": lambda run, args: run.symlink(*args["link"]) and None,
    "chmod": lambda run, args: run.chmod(args["chmod"], int(args["mode"], 8)) and None,
    "sql": _sql,
}
