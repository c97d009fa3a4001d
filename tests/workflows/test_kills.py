"""A worker killed at every touch of the store and of the world: the next one goes on, and nothing happens twice."""

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.testing.crash import (
    Boundaries,
    killed_again_and_again,
    killed_everywhere,
    open_wrapped,
    wrap_system_calls,
)

PLACE = "TAKEBACK_TEST_PLACE"


def place() -> Path:
    return Path(os.environ[PLACE])


def entries() -> Counter[str]:
    """What was done, as the world outside has it; takeback cannot look into it but by asking."""
    ledger = place() / "ledger"
    return Counter(ledger.read_text().split()) if ledger.exists() else Counter()


def enter(word: str) -> None:
    with open(place() / "ledger", "a") as ledger:
        ledger.write(f"{word}\n")


def find_order(key: str, number: int) -> Any:
    return {"number": number} if f"order-{key}" in entries() else None


@takeback.action(verify=find_order)
def order(number: int, *, key: str) -> Any:
    enter(f"order-{key}")
    return {"number": number}


def find_cancelled(receipt: Any, key: str) -> Any:
    return {"cancelled": key} if f"cancel-{key}" in entries() else None


@order.undo(verify=find_cancelled)
def cancel(receipt: Any, *, key: str) -> Any:
    enter(f"cancel-{key}")
    return {}


@takeback.workflow
def shop(run: takeback.Run, fails: bool) -> Any:
    at = place() / "world"
    run.write(at / "a", "one")
    first = run.call(order, 1)
    run.checkpoint("ordered", {"first": first})
    number = run.remember("number", lambda: 7)
    run.write_all({at / "b": "two", at / "c": "three"})
    run.delete(at / "gone")
    run.undo(to="ordered")
    run.write(at / "b", str(number))
    second = run.call(order, 2)
    run.sleep(seconds=0.001)
    if fails:
        raise ValueError("no")
    return [first, second]


class Shop:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = directory / "store"
        self.run: takeback.RunInfo

    def prepare(self, fails: bool) -> None:
        for name in ("world", "store"):
            shutil.rmtree(self.directory / name, ignore_errors=True)
        (self.directory / "ledger").unlink(missing_ok=True)
        (self.directory / "world").mkdir()
        (self.directory / "world" / "gone").write_text("there")
        with takeback.open(str(self.store)) as tb:
            self.run = tb.submit(shop, fails)

    def work(self, boundaries: Boundaries) -> None:
        with open_wrapped(str(self.store), boundaries) as tb:
            tb.work(shop, until_idle=True)

    def closely(self, boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        with takeback.open(str(self.store)) as tb:
            tb.work(shop, until_idle=True)

    def check(self, at: int = 0) -> None:
        """Whoever comes next finishes it."""
        with takeback.open(str(self.store)) as tb:
            tb.work(shop, until_idle=True)
            run = tb.find_run(self.run.id)
            assert tb.verify(read_data=True).findings == (), at
            assert run.state.value in ("accepted", "undone"), (at, run)
            steps = Counter(
                one.step for one in tb.effects(run=run) if one.step and one.state.value != "aborted"
            )
            assert set(steps.values()) == {1}, (at, steps)
            done = entries()
            assert set(done.values()) == {1}, (at, done)
            assert sorted(name.partition("-")[0] for name in done) == self.expected(run), (at, done)
            if run.state.value == "accepted":
                assert tb.result(run, 0) == [{"number": 1}, {"number": 2}]
        assert self.files() == self.wanted(run), at

    def expected(self, run: takeback.RunInfo) -> list[str]:
        return ["order"] * 2 if run.state.value == "accepted" else ["cancel"] * 2 + ["order"] * 2

    def files(self) -> dict[str, str]:
        return {one.name: one.read_text() for one in (self.directory / "world").iterdir()}

    def wanted(self, run: takeback.RunInfo) -> dict[str, str]:
        kept = run.state.value == "accepted"
        return {"a": "one", "b": "7", "gone": "there"} if kept else {"gone": "there"}


@pytest.fixture
def scene(swift_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv(PLACE, str(swift_path))
    return Shop(swift_path)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("how", ["at every touch of a part", "at every system call"])
def test_killed_anywhere_a_run_is_finished_by_the_next_worker(
    scene: Shop, how: str, fails: bool, step: int, record_property: Callable[[str, object], None]
) -> None:
    work = scene.work if how == "at every touch of a part" else scene.closely

    deaths = killed_everywhere(lambda: scene.prepare(fails), work, scene.check, step=step)

    assert deaths > 30 // step
    record_property("workers killed in the middle of a workflow", deaths)


def test_a_run_whose_workers_die_again_and_again_is_finished(scene: Shop) -> None:
    scene.prepare(False)

    assert killed_again_and_again(scene.work) > 20

    scene.check()


@takeback.workflow
def three(run: takeback.Run) -> str:
    at = place() / "world"
    run.write(at / "a", "1")
    run.checkpoint("half")
    run.write(at / "b", "1")
    run.edit_config(at / "c.json", {"/n": 2})
    return run.wait("go")


def test_killed_on_the_way_back_to_a_checkpoint_a_worker_finishes_that_first(scene: Shop) -> None:
    def prepare() -> None:
        scene.prepare(False)
        (scene.directory / "world" / "c.json").write_text('{"n": 1}')
        with takeback.open(str(scene.store)) as tb:
            tb.undo(scene.run)
            scene.run = tb.submit(three)
            tb.work(three, until_idle=True)

    def go_back(boundaries: Boundaries) -> None:
        with open_wrapped(str(scene.store), boundaries) as tb:
            tb.resume(scene.run.id, from_checkpoint="half")

    def check(at: int) -> None:
        with takeback.open(str(scene.store)) as tb:
            tb.work(three, until_idle=True)
            assert tb.find_run(scene.run.id).awaits == "go", at
            tb.signal(scene.run, "go", "there")
            tb.work(three, until_idle=True)
            assert tb.result(scene.run, 0) == "there", at
            made = [one for one in tb.effects(run=scene.run) if one.step]
            assert [one.step for one in made if one.state.value == "done"] == [1, 3, 4], at
            assert {one.state.value for one in made} <= {"done", "undone"}, at
            assert tb.verify(read_data=True).findings == (), at
        assert scene.files() == {"a": "1", "b": "1", "c.json": '{"n": 2}', "gone": "there"}, at

    assert killed_everywhere(prepare, go_back, check, step=2) > 10
