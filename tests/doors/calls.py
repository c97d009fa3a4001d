"""The door to functions: `run.call`, with an action that is asked about and compensated."""

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import takeback
from takeback.testing.door_suite import DRIFT, REDO, DoorScene
from tests.doors import ledger

ROOT = Path(__file__).parents[2]


class CallDoor(DoorScene):
    door = "run.call"
    exempt: Mapping[str, str] = {
        REDO: "a compensated call cannot be redone: it would be another call",
        DRIFT: "what a call changed is the business of its undo, which is a call itself",
    }

    def __init__(self, place: Path) -> None:
        self.store = os.fspath(place / "store")
        self._ledger = place / "ledger"
        self._ledger.touch()
        os.environ["LEDGER"] = os.fspath(self._ledger)  # each test has surroundings of its own

    def make(self, run: takeback.Run, key: str) -> takeback.Effect:
        run.call(ledger.order, "tea", key=key)
        return run.effects()[-1]

    def world(self) -> Any:
        """How many orders stand: twice made or twice cancelled is another world."""
        words = Counter(line[0] for line in ledger.lines())
        twice = [key for key, times in Counter(map(tuple, ledger.lines())).items() if times > 1]
        return words["order"] - words["cancel"], twice

    def disturb(self) -> None:
        """Exempt."""

    def environment(self) -> Mapping[str, str]:
        return {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep)}
