"""A call that makes no sense is a Misuse with a hint, not an error of Python's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback import Misuse, Takeback
from tests.world import World

CALLS: list[Callable[[Any], Any]] = [
    lambda tb: tb.effect(5),
    lambda tb: tb.effect("\udcff"),
    lambda tb: tb.keep(5),
    lambda tb: tb.forget([5]),
    lambda tb: tb.redo(5),
    lambda tb: tb.undo(5),
    lambda tb: tb.find_run("\udcff"),
    lambda tb: tb.effects(run=5),
    lambda tb: tb.effects(agent="\udcff"),
    lambda tb: tb.effects(state="bogus"),
    lambda tb: tb.effects(limit=-3),
    lambda tb: tb.effects(path=5),
]
CHANGES: list[Callable[[Any, Any], Any]] = [
    lambda run, file: run.write(None, "x"),
    lambda run, file: run.write(file, "x", key=5),
    lambda run, file: run.write(file, "x", key="\udcff"),
    lambda run, file: run.write(file, "x", needs=[5]),
    lambda run, file: run.delete(5),
    lambda run, file: run.move(file, None),
    lambda run, file: run.symlink(file, 5),
    lambda run, file: run.keep(5),
    lambda run, file: run.edit_config(file, {"/\udcff": 1}),
    lambda run, file: run.edit_config(file, {"/a": "\ud800"}),
    lambda run, file: run.edit_config(file, {"/a": ["\ud800"]}),
    lambda run, file: run.edit_config(file, {"/a~2": 1}),
    lambda run, file: run.edit_config(file, {"/a": nested(3000)}),
    lambda run, file: run.edit_config(file, delete=["/~"]),
    lambda run, file: run.edit_config(file, {5: 1}),
]


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.fixture
def tb(store: Path) -> Any:
    with takeback.open(store) as tb:
        yield tb


@pytest.mark.parametrize("call", CALLS)
def test_a_question_that_makes_no_sense(tb: Takeback, call: Callable[[Any], Any]) -> None:
    with pytest.raises(Misuse) as caught:
        call(tb)
    assert caught.value.hint


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_makes_no_sense(tb: Takeback, world: World, change: Callable[[Any, Any], Any]) -> None:
    (world / "c.json").write_text("{}")
    with tb.run("odd") as run:
        with pytest.raises(Misuse) as caught:
            change(run, world / "c.json")
        assert caught.value.hint
        assert run.effects() == ()
    assert (world / "c.json").read_text() == "{}"


@pytest.mark.parametrize("how", ["take_back", "close", "keep"])
def test_a_run_that_has_ended_says_so(tb: Takeback, world: World, how: str) -> None:
    run = tb.run("short")
    effect = run.write(world / "a", "1")
    run.close()

    with pytest.raises(Misuse, match="has ended"):
        getattr(run, how)(*[effect] * (how == "keep"))
    assert (world / "a").read_text() == "1"


def test_an_empty_path_is_no_store() -> None:
    with pytest.raises(Misuse):
        takeback.open("")
