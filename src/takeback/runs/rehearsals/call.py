"""Make a call of an action and undo it, at the test endpoint that the action declares, in a process of its own."""

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, cast

from takeback.adapters.call.action import Action, Compensation
from takeback.adapters.call.adapter import CallAdapter
from takeback.engine.parts import Parts, adapter_of
from takeback.engine.rehearse import judged, plan_of, told_of
from takeback.errors import TakebackError
from takeback.model.effect import Effect
from takeback.model.rehearsal import Rehearsed, Viability
from takeback.model.resource import path_of
from takeback.runs.commands.scratch import workshop
from takeback.runs.rehearsals.room import PLACE

_START = "import sys; sys.path[:] = {path!r}; from takeback.api.rehearsal_call import main; main()"
_MORE = 60.0  # seconds, beyond those that the call and its undo may take
_LAST_LINES = 3


def rehearse_call(parts: Parts, effect: Effect) -> Rehearsed:
    started = time.perf_counter()
    try:
        plan_of(parts, effect)
        adapter = cast("CallAdapter", adapter_of(parts, "call"))
        proof, why = _rehearsed(parts, effect, adapter.actions.of(effect.change))
    except TakebackError as error:
        proof, why = judged(error)
    return told_of(effect, proof, why, int((time.perf_counter() - started) * 1000))


def _rehearsed(parts: Parts, effect: Effect, action: Action) -> tuple[Viability, str]:
    if action.terms.rehearse is None:
        return Viability.CANNOT, f"{action.name} declares no test endpoint (rehearse=)"
    if not action.everywhere:
        return Viability.CANNOT, f"{action.name} can be imported by its own process only"
    seconds = action.terms.timeout + _MORE
    if isinstance(action.way_back, Compensation):
        seconds += action.way_back.timeout
    store = os.fsdecode(path_of(parts.off_limits))
    settings: Mapping[str, str] = {}
    if not callable(action.terms.rehearse):
        settings = action.terms.rehearse
    import subprocess

    code = _START.format(path=[path for path in sys.path if path])
    with workshop(os.path.join(store, PLACE)) as mine:
        asked: dict[str, Any] = {
            "store": os.path.join(mine, "store"),
            "action": effect.change.args["action"],
            "home": effect.change.args["home"],
            "arguments": effect.change.args["arguments"],
        }
        try:
            ended = subprocess.run(
                (sys.executable, "-c", code), input=json.dumps(asked).encode(), capture_output=True,
                env={**os.environ, **settings}, timeout=seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Viability.FAILS, f"at its test endpoint it took more than {seconds:g} s"
    try:
        told: dict[str, str] = json.loads(ended.stdout)
        return Viability(told["outcome"]), told["why"]
    except (ValueError, KeyError):
        said = ended.stderr.decode(errors="replace").strip().splitlines()[-_LAST_LINES:]
        return Viability.CANNOT, f"its process ended early ({'; '.join(said) or ended.returncode})"
