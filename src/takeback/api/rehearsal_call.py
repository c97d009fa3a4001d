"""The process that calls an action and its undo at a test endpoint, with a store of its own that is thrown away.

It is started by `takeback.runs.rehearsals.call`.
"""

import json
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

from takeback.adapters.call.action import Action
from takeback.adapters.call.compensator import Actions
from takeback.errors import TakebackError
from takeback.model.plan import Outcome
from takeback.model.rehearsal import Viability


def main() -> None:
    tell = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="surrogateescape")
    os.dup2(2, 1)  # what an action prints is no answer
    asked: dict[str, Any] = json.load(sys.stdin)
    try:
        action = Actions(lambda: True).find(asked["action"], *asked["home"])
        with _at_its_endpoint(action):
            proof, why = _tried(asked["store"], action, json.loads(asked["arguments"]))
    except Exception as error:  # noqa: BLE001 any error of the user's code is the answer
        proof, why = Viability.FAILS, f"{type(error).__name__}: {error}"
    tell.write(json.dumps({"outcome": proof.value, "why": why}))
    tell.flush()


def _at_its_endpoint(action: Action) -> "AbstractContextManager[Any]":
    """Variables are set already."""
    if not callable(action.terms.rehearse):
        return nullcontext()
    found = action.terms.rehearse()
    if hasattr(found, "__enter__"):
        return cast("AbstractContextManager[Any]", found)
    return nullcontext()


def _tried(store: str, action: Action, arguments: dict[str, Any]) -> tuple[Viability, str]:
    import takeback.api

    with takeback.api.open(store) as tb:
        try:
            with tb.run("rehearsal", on_death="accept") as run:
                run.call(action, **arguments)
        except TakebackError as error:
            return Viability.CANNOT, f"the call itself failed at its test endpoint: {error}"
        effect = tb.effect("@")
        result = tb.undo(effect)
    bad = [one for one in result.targets if one.outcome is not Outcome.UNDONE]
    if bad or result.outcome != "done":
        return Viability.FAILS, f"its undo ended {result.outcome}" + (f": {bad[0].detail}" if bad else "")
    if action.terms.verify is None and getattr(action.way_back, "verify", None) is None:
        return (
            Viability.WORKS,
            "at its test endpoint; the undo returned, and no verify= looks whether that is true",
        )
    return Viability.WORKS, "at its test endpoint"
