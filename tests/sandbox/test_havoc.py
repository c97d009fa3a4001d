"""Random changes: the world below with the differences applied is what the command saw at its end, layer over layer."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from takeback.sandbox.protocol import Stack
from tests.sandbox.havoc import look, one_change, seen
from tests.sandbox.scenes import Scene, give, picture

pytestmark = pytest.mark.root
HAVOC = Path(__file__).parent / "havoc.py"


def make_world(scene: Scene, seed: int) -> None:
    """With no hard links: what a name outside the layer shows after a write is not for differences() to say."""
    rng = random.Random(seed)
    here = os.getcwd()
    os.chdir(scene.world)
    try:
        for name in ("a/b/c", "b/a", "c"):
            os.makedirs(name)
            Path(name, "f").write_text(name)
            Path(name, "g").write_text("g")
        for number in range(10):
            state = rng.getstate()
            try:
                one_change(rng, 1000 + number)
            except (OSError, shutil.Error):
                rng.setstate(state)
                rng.random()
    finally:
        os.chdir(here)
    for directory, _, files in os.walk(scene.world):
        for name in files:
            path = os.path.join(directory, name)
            if not os.path.islink(path) and os.lstat(path).st_nlink > 1:
                os.unlink(path)
    shutil.copy(HAVOC, scene.world.parent / "havoc.py")


def applied(scene: Scene, before: dict[str, list[Any]]) -> dict[str, list[Any]]:
    after = dict(before)
    named: set[bytes] = set()
    root = os.fsencode(scene.world)
    for left in scene.lefts():
        assert left.path not in named, f"{left.path!r} is told twice"
        assert os.path.dirname(left.path) in named or os.path.dirname(left.path) not in {*named}
        named.add(left.path)
        if not left.path.startswith(root):
            raise AssertionError(f"{left.path!r} is none of its doings")
        name = os.path.relpath(os.fsdecode(left.path), scene.world)
        assert left.below is (name in before), f"{left} but {before.get(name)}"
        if left.source is None:
            after.pop(name, None)
        else:
            after[name] = seen(left.source)
    return after


def havoc(scene: Scene, seed: int, layers: int = 3, changes: int = 12) -> int:
    make_world(scene, seed)
    give(scene.world)
    untouched = picture(scene.world)
    before = json.loads(json.dumps(look(str(scene.world))))
    stack: tuple[str, ...] = ()
    for number in range(layers):
        program = (
            "/usr/bin/python3",
            "-B",
            str(scene.world.parent / "havoc.py"),
            f"{seed}-{number}",
            str(changes),
        )
        ended = scene.run(*program, cwd=str(scene.world), stack=Stack("/", stack))
        assert ended.exit_code == 0, scene.said()
        after = json.loads(scene.said())
        told = json.loads(json.dumps(applied(scene, before)))
        assert told == after, f"seed {seed}, layer {number}"
        stack = (scene.layer, *stack)
        before = after
    assert picture(scene.world) == untouched
    return layers


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(5))
def test_havoc(scene: Scene, seed: int) -> None:
    havoc(scene, seed)


@pytest.mark.slow
def test_much_havoc(scene: Scene, record_property: Callable[[str, object], None]) -> None:
    """As many seeds as fit; each in a world of its own."""
    total = 0
    whole = scene.world
    for seed in range(1000, 1012):
        scene.world = whole / str(seed)
        scene.world.mkdir()
        total += havoc(scene, seed, layers=4, changes=15)
    record_property("layers compared", total)
