"""What an ordinary user does in his own process; started by `UserScene`."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import scenes  # type: ignore[import-not-found]  # a copy that lies beside this one

from takeback.errors import TakebackError
from takeback.sandbox.ability import ability
from takeback.sandbox.protocol import Stack


def main(directory: str) -> None:
    scene = scenes.RootScene(Path(directory))
    try:
        for line in sys.stdin:
            try:
                told = {"answer": _answer(scene, json.loads(line))}
            except (TakebackError, OSError, AssertionError) as error:
                told = {"error": f"{type(error).__name__}: {error}"}
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()
    finally:
        scene.close()


def _answer(scene: Any, question: dict[str, Any]) -> Any:
    if question["what"] == "run":
        more = question["more"]
        if "stack" in more:
            root, layers = more["stack"]
            more["stack"] = Stack(root, tuple(layers))
        if "hidden" in more:
            more["hidden"] = tuple(more["hidden"])
        return scene.run(*question["argv"], **more)._asdict() | {"layer": scene.layer}
    if question["what"] == "ability":
        return ability(question["place"])
    return [
        (os.fsdecode(one.path), one.source and os.fsdecode(one.source), one.below) for one in scene.lefts()
    ]
