"""One target first: what fails is taken back, and nothing else is."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

import takeback
from takeback.errors import Misuse, Stopped
from takeback.runs.canary import CanaryOutcome, CanaryResult
from takeback.runs.run import Run
from tests.behaviour.conftest import Scene

TARGETS = ["a", "b", "c"]
MADE, BACK, LEFT, NOT = (
    CanaryOutcome.MADE,
    CanaryOutcome.TAKEN_BACK,
    CanaryOutcome.LEFT,
    CanaryOutcome.NOT_BEGUN,
)


def tried(scene: Scene, check: Callable[[str], bool], wait: float = 0) -> CanaryResult:
    with scene.tb.run("canary", agent="deployer") as run:
        return run.canary(
            TARGETS, lambda name: run.write(scene.world / name, f"new {name}"), check, wait=wait
        )


def outcomes(result: CanaryResult) -> list[CanaryOutcome]:
    return [one.outcome for one in result.targets]


def texts(scene: Scene) -> list[str | None]:
    return [scene.text(name) for name in TARGETS]


def test_all_are_made_when_all_pass(scene: Scene) -> None:
    seen = list[str]()
    result = tried(scene, lambda name: seen.append(name) is None, wait=0.05)

    assert (result.outcome, result.ok) == ("done", True)
    assert texts(scene) == ["new a", "new b", "new c"]
    assert seen == ["a", "a", "b", "c"]  # the first one again, after the wait
    assert [len(one.effects) for one in result.targets] == [1, 1, 1]


def test_the_others_are_not_begun_when_the_first_one_fails(scene: Scene) -> None:
    scene.put("a", "old")
    result = tried(scene, lambda name: False)

    assert outcomes(result) == [BACK, NOT, NOT]
    assert result.outcome == "refused"
    assert result.targets[0].why == "the check failed"
    assert texts(scene) == ["old", None, None]


def test_only_what_failed_is_taken_back(scene: Scene) -> None:
    def check(name: str) -> bool:
        if name == "b":
            raise ValueError("no answer")
        return True

    result = tried(scene, check)

    assert outcomes(result) == [MADE, BACK, MADE]
    assert result.outcome == "partial"
    assert result.targets[1].why == "the check failed: ValueError: no answer"
    assert texts(scene) == ["new a", None, "new c"]


def test_a_first_one_that_fails_after_the_wait_is_taken_back(scene: Scene) -> None:
    answers = [True, False]
    result = tried(scene, lambda name: answers.pop(0), wait=0.01)
    assert outcomes(result) == [BACK, NOT, NOT]
    assert result.targets[0].why == "the check after the wait failed"


def test_a_change_that_fails_in_the_middle_is_taken_back_whole(scene: Scene) -> None:
    def change(run: Run, name: str) -> None:
        run.write(scene.world / name, "1")
        run.write(scene.world / f"{name}2", "2")
        if name == "b":
            raise OSError("the disk of b")

    with scene.tb.run("canary") as run:
        result = run.canary(TARGETS, lambda name: change(run, name), lambda name: True)
    assert outcomes(result) == [MADE, BACK, MADE]
    assert (scene.text("b"), scene.text("b2"), scene.text("c2")) == (None, None, "2")
    assert result.targets[1].why == "the change failed: OSError: the disk of b"


def test_what_cannot_be_taken_back_is_left_and_named(scene: Scene) -> None:
    def check(name: str) -> bool:
        if name == "b":
            scene.put("b", "someone's")
        return name != "b"

    result = tried(scene, check)
    assert outcomes(result) == [MADE, LEFT, MADE]
    assert result.outcome == "stuck"
    assert "the check failed; " in result.targets[1].why
    assert texts(scene) == ["new a", "someone's", "new c"]


def test_a_stop_ends_it_and_its_run_is_taken_back(scene: Scene) -> None:
    def check(name: str) -> bool:
        scene.tb.stop(agent="deployer")
        return True

    with pytest.raises(Stopped):
        tried(scene, check)
    assert texts(scene) == [None, None, None]


@pytest.mark.parametrize(
    ("targets", "check", "wait"),
    [([], bool, 0), ("abc", bool, 0), (3, bool, 0), (["a"], None, 0), (["a"], bool, -1), (["a"], bool, "1")],
)
def test_what_makes_no_sense_is_refused(scene: Scene, targets: object, check: object, wait: object) -> None:
    with pytest.raises(Misuse), scene.tb.run("canary") as run:
        run.canary(targets, lambda name: None, check, wait=wait)  # type: ignore[arg-type]


def test_a_check_that_says_neither_yes_nor_no_is_refused(scene: Scene) -> None:
    with pytest.raises(Misuse, match="The check returned None"):
        tried(scene, lambda name: None)  # type: ignore[arg-type, return-value]
    assert texts(scene) == [None, None, None]


PROGRAM = """
import os, sys, takeback

def at(place):
    if place == sys.argv[1]:
        os._exit(9)

with takeback.open() as tb, tb.run("canary") as run:
    def change(name):
        at(f"before {name}")
        run.write(name, "new")
        at(f"after {name}")
    def check(name):
        at(f"check {name}")
        return name != "b"
    run.canary(["a", "b", "c"], change, check, wait=0.01)
    at("end")
"""


@pytest.mark.parametrize(
    "place", [f"{when} {name}" for name in "abc" for when in ("before", "after", "check")] + ["end"]
)
@pytest.mark.sampled(3)
def test_killed_anywhere_all_of_the_run_is_taken_back(scene: Scene, place: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, place], cwd=scene.world.root, check=False,
        env={**os.environ, "TAKEBACK_STORE": scene.tb.path},
    )  # fmt: skip
    assert done.returncode == 9
    with takeback.open(scene.tb.path) as tb:
        tb.recover()
        assert not [one for one in tb.effects() if one.state.value in ("intended", "stuck")]
    assert texts(scene) == [None, None, None]
