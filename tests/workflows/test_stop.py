"""A durable run that is stopped: it waits at its next step, no worker takes it, and lifted it continues there."""

import importlib
import time
from typing import Any

import pytest

import takeback
from takeback.engine.stop import FRESH
from takeback.errors import Stopped
from tests.workflows.conftest import Bench, Workers, until
from tests.workflows.test_workers import FLOWS, logged


@pytest.fixture
def flows(workers: Workers) -> Any:
    workers.module(FLOWS)
    importlib.invalidate_caches()
    return importlib.import_module("flows")


def test_it_stops_at_its_next_step_and_continues_there_when_lifted(
    bench: Bench, workers: Workers, flows: Any
) -> None:
    run = bench.tb.submit(flows.gated, str(bench.world.root), 3)
    workers.start()
    until(lambda: logged(bench.world), "the first step")
    bench.tb.stop(run=run, by="bea", why="wait")
    after = time.monotonic() + 2 * FRESH
    until(lambda: time.monotonic() > after, "that its worker knows")
    for step in range(3):
        (bench.world / f"gate-{step}").touch()
    stopped = until(lambda: (one := bench.look(run)).state.value == "suspended" and one, "that it stops")

    assert "(bea): wait" in stopped.note
    made = len(bench.tb.effects(run=run, state="done"))
    assert made == 0  # the step that it was about to make
    bench.tb.lift()
    assert until(lambda: bench.look(run).state.value == "accepted", "that it ends")
    assert bench.tb.result(run, 0) == 3
    assert [one.step for one in bench.tb.effects(run=run, state="done")] == [1, 2, 3]


@pytest.mark.parametrize("whom", [{"agent": "deployer"}, {"everything": True}])
def test_no_worker_takes_what_is_stopped_and_others_are_not_held_up(
    bench: Bench, whom: dict[str, Any]
) -> None:
    @takeback.workflow(name="noted")
    def noted(run: takeback.Run, word: str) -> str:
        return run.remember("word", lambda: word)

    held = bench.tb.submit(noted, "held", agent="deployer")
    bench.tb.stop(**whom)
    free = bench.tb.submit(noted, "free", agent="other")
    bench.work(noted)
    assert bench.look(held).state.value == "open"
    assert bench.look(free).state.value == ("open" if "everything" in whom else "accepted")
    bench.tb.lift()
    bench.work(noted)
    assert bench.tb.result(held, 0) == "held"
    assert bench.tb.result(free, 0) == "free"


def test_a_function_that_swallows_the_refusal_goes_no_further(bench: Bench) -> None:
    seen = list[str]()

    @takeback.workflow(name="swallows")
    def swallows(run: takeback.Run, place: str) -> str:
        run.write(f"{place}/first", "1")
        if not seen:
            bench.tb.stop(run=run.id)
        try:
            run.write(f"{place}/second", "2")
        except Stopped:
            seen.append("swallowed")
        try:
            run.write(f"{place}/third", "3")
        except Stopped:
            seen.append("again")
        return "done"

    run = bench.tb.submit(swallows, str(bench.world.root))
    bench.work(swallows)
    assert bench.look(run).state.value == "suspended"
    assert bench.text("third") is None
    bench.tb.lift()
    seen[:] = ["once is enough"]
    bench.work(swallows)
    assert bench.tb.result(run, 0) == "done"
    assert (bench.text("first"), bench.text("second"), bench.text("third")) == ("1", "2", "3")


def test_a_canary_is_continued_where_it_was_and_asks_nothing_twice(bench: Bench) -> None:
    checked = list[str]()

    @takeback.workflow(name="canary")
    def rolled_out(run: takeback.Run, place: str) -> list[str]:
        def check(name: str) -> bool:
            checked.append(name)
            if name == "b" and checked.count("b") == 1:
                bench.tb.stop(run=run.id)
            return name != "b"

        found = run.canary(["a", "b", "c"], lambda name: run.write(f"{place}/{name}", name), check, wait=0.01)
        return [one.outcome.value for one in found.targets]

    run = bench.tb.submit(rolled_out, str(bench.world.root))
    bench.work(rolled_out)
    assert bench.look(run).state.value == "suspended"
    bench.tb.lift()
    bench.work(rolled_out)
    assert bench.tb.result(run, 0) == ["made", "taken back", "made"]
    assert checked == ["a", "a", "b", "c"]
    assert (bench.text("a"), bench.text("b"), bench.text("c")) == ("a", None, "c")
