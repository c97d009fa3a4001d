"""Several processes at once on one store and one path: one after the other, or refused with a reason, never mixed."""

import itertools
import multiprocessing
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import takeback
from takeback.api import opened_of
from takeback.model.effect import State
from tests.crash.scenes import Scene, assert_settled

ROUNDS = 50
processes = multiprocessing.get_context("fork")

Work = Callable[[takeback.Takeback, int, int], Any]


def at_once(scene: Scene, workers: int, rounds: int, work: Work) -> list[str]:
    """Each worker is a process; in each round they start together. How every attempt ended."""
    barrier = processes.Barrier(workers)
    outcomes: Any = processes.Queue()
    started = [
        processes.Process(target=_worker, args=(scene, barrier, outcomes, worker, rounds, work), daemon=True)
        for worker in range(workers)
    ]
    for process in started:
        process.start()
    ended = [outcomes.get(timeout=120) for _ in range(workers * rounds)]
    for process in started:
        process.join(timeout=30)
        assert process.exitcode == 0
    return ended


def _worker(scene: Scene, barrier: Any, outcomes: Any, worker: int, rounds: int, work: Work) -> None:
    for number in range(rounds):
        barrier.wait(timeout=60)
        try:
            with scene.open() as tb:
                done = work(tb, worker, number)
            outcomes.put("done" if done else "nothing to do")
        except takeback.TakebackError as error:
            outcomes.put(type(error).__name__ if error.hint else f"{error} without a hint")
        except BaseException as error:  # noqa: BLE001  # told to the test, which fails by it
            outcomes.put(f"{type(error).__name__}: {error}")


def only(ended: list[str], *allowed: str) -> Counter[str]:
    counts = Counter(ended)
    assert counts.keys() <= set(allowed), counts
    return counts


@pytest.mark.sampled(2, whole=True)
@pytest.mark.parametrize("workers", [2, 4])
def test_writes_to_one_path_come_one_after_the_other(scene: Scene, workers: int) -> None:
    scene.prepare()
    before = scene.picture()

    def work(tb: takeback.Takeback, worker: int, number: int) -> Any:
        with tb.run(f"worker {worker}", agent=f"agent {worker}") as run:
            return run.write(scene / "run.sh", f"{worker} {number}\n" * 500)

    counts = only(at_once(scene, workers, ROUNDS * 2 // workers, work), "done", "Drifted", "StoreBusy")
    assert counts["done"] >= ROUNDS

    with scene.open() as tb:
        made = tb.effects(path=scene / "run.sh", state="done")
        assert len(made) == counts["done"]
        for earlier, later in itertools.pairwise(made):
            assert later.targets[0].before["digest"] == earlier.targets[0].after["digest"]
        for effect in reversed(made):
            tb.undo(effect)
    assert scene.picture() == before
    assert_settled(scene, "afterwards")


@pytest.mark.sampled(2, whole=True)
def test_a_run_that_fails_beside_another_takes_back_only_its_own(scene: Scene) -> None:
    scene.prepare()

    def work(tb: takeback.Takeback, worker: int, number: int) -> Any:
        try:
            with tb.run(f"worker {worker}") as run:
                run.write(scene / f"own {worker}", f"{number}\n")
                run.write(scene / "shared", f"{worker} {number}\n")
                if worker == 1:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            return True
        except (takeback.Drifted, takeback.StoreBusy):
            # The other one was faster at "shared", and this run took itself back as well: it has another go.
            return work(tb, worker, number)
        return True

    only(at_once(scene, 2, ROUNDS, work), "done")
    assert (scene.world / "own 0").read_text() == f"{ROUNDS - 1}\n"
    assert not (scene.world / "own 1").exists()
    with scene.open() as tb:
        assert not tb.effects(state=State.STUCK)
        assert tb.verify(read_data=True).findings == ()
    assert not scene.scratch()


@pytest.mark.sampled(2, whole=True)
def test_an_effect_is_undone_by_one_of_many_who_try(scene: Scene) -> None:
    scene.prepare()
    original = scene.picture()

    def work(tb: takeback.Takeback, worker: int, number: int) -> Any:
        return tb.undo(tb.effects(path=scene / f"file {number}")[0]).undo

    rounds = 20
    with scene.open() as tb, tb.run("many") as run:
        for number in range(rounds):
            run.write(scene / f"file {number}", f"{number}")
    counts = only(
        at_once(scene, 3, rounds, work),
        "done",
        "nothing to do",
        "Refused",
        "Drifted",
        "StoreBusy",
        "Conflict",
    )
    assert counts["done"] == rounds
    assert scene.picture() == original
    assert_settled(scene, "afterwards")


@pytest.mark.sampled(2, whole=True)
def test_an_undo_and_a_write_at_once_leave_one_of_the_two_worlds(scene: Scene) -> None:
    scene.prepare()

    def work(tb: takeback.Takeback, worker: int, number: int) -> Any:
        if worker:
            return tb.undo(tb.effects(path=scene / f"file {number}")[0])
        with tb.run("writer") as run:
            return run.write(scene / f"file {number}", "written")

    with scene.open() as tb, tb.run("many") as run:
        for number in range(ROUNDS):
            run.write(scene / f"file {number}", f"{number}")
    # A file that the other one replaces while it is read cannot be captured: a refusal too.
    refusals = ("Refused", "Drifted", "StoreBusy", "Conflict", "Blocked", "CannotCapture")
    only(at_once(scene, 2, ROUNDS, work), "done", *refusals)
    for number in range(ROUNDS):
        path = scene.world / f"file {number}"
        assert not path.exists() or path.read_text() == "written"
    with scene.open() as tb:
        assert not tb.effects(state=State.STUCK)
        for number in range(ROUNDS):
            for effect in tb.effects(path=scene / f"file {number}", state="done", newest=True):
                if not effect.is_undo:
                    tb.undo(effect)
    assert not list(scene.world.glob("file *"))
    assert_settled(scene, "afterwards")


def test_a_store_made_by_several_at_once_is_one_store(scene: Scene) -> None:
    def work(tb: takeback.Takeback, worker: int, number: int) -> Any:
        with tb.run(f"worker {worker}") as run:
            return run.write(scene / f"file {worker}", f"{number}")

    for _ in range(10):
        scene.build()
        only(at_once(scene, 3, 1, work), "done")
        with scene.open() as tb:
            assert len(tb.effects()) == 3
            assert tb.verify(read_data=True).findings == ()


@pytest.mark.sampled(2, whole=True)
def test_forget_and_sweep_beside_a_writer_never_take_what_he_needs(scene: Scene) -> None:
    scene.prepare()
    original = scene.picture()

    def work(tb: takeback.Takeback, worker: int, number: int) -> Any:
        if worker:
            tb.forget()
            tb.sweep()
            return True
        with tb.run("writer") as run:
            return run.write(scene / "run.sh", f"{number}" * 100_000)

    only(at_once(scene, 2, ROUNDS, work), "done")
    with scene.open() as tb:
        assert tb.verify(read_data=True).findings == ()
        for effect in tb.effects(path=scene / "run.sh", state="done", newest=True):
            tb.undo(effect)
    assert scene.picture() == original


def test_an_edit_between_the_look_and_the_capture_is_noticed(scene: Scene) -> None:
    """The same race, held still: else an undo would leave a file out without saying so."""
    scene.prepare()
    with scene.open() as tb:
        with tb.run("two files") as run:
            effect = run.write_all({scene / "one": "1", scene / "two": "2"})
        assert effect
        adapter: Any = opened_of(tb).parts.adapters["file"]
        capture = adapter.capture

        def after_someone_else(effect: takeback.Effect, offer: Any) -> Any:
            (scene.world / "one").write_text("someone else's")
            return capture(effect, offer)

        adapter.capture = after_someone_else
        with pytest.raises(takeback.Refused, match="one"):
            tb.undo(effect, on_conflict="skip")

        assert tb.effect(effect.id).state is State.DONE
        assert ((scene.world / "one").read_text(), (scene.world / "two").read_text()) == (
            "someone else's",
            "2",
        )
        assert not tb.effects(state=State.STUCK)
