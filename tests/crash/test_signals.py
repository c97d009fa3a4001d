"""SIGINT and SIGTERM in the middle: the effect in hand is settled, a checkpoint taken, the lease let go."""

import os
import signal
from collections.abc import Callable

import pytest

import takeback
from takeback.model.effect import OPEN_STATES
from takeback.model.run import RunState
from takeback.testing.crash import Boundaries, in_a_process, open_wrapped, wrap_system_calls
from tests.crash.scenes import Scene, assert_settled


def send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def three_files(scene: Scene, run: takeback.Run) -> None:
    for number in range(3):
        run.write(scene / f"file {number}", f"{number}")


def every_boundary(
    scene: Scene, action: Callable[[Boundaries], None], number: int, check: Callable[[int], None]
) -> int:
    def caught(boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        try:
            action(boundaries)
        except KeyboardInterrupt:
            (scene.directory / "ended").write_text("interrupted")
        except SystemExit as ended:
            (scene.directory / "ended").write_text(f"exit {ended.code}")
        else:
            (scene.directory / "ended").write_text("well")

    scene.prepare()
    total, unheard = len(in_a_process(caught, Boundaries()).passed), 0
    for at in range(1, total + 1, 1 if number == signal.SIGTERM else 3):
        scene.prepare()
        end = in_a_process(caught, Boundaries(at, send(number)))
        assert not end.error, f"at {at} ({end.passed[at - 1]}): {end.error}"
        if end.signal:  # nobody was listening yet: as good as killed
            assert end.signal == number
            assert_settled(scene, f"signal at {at}")
            assert len(list(scene.world.glob("file *"))) in (0, 3)
            unheard += 1
            continue
        check(at)
    assert unheard < 15
    return total


@pytest.mark.parametrize(("number", "ended"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "exit 143")])
def test_a_run_that_gets_a_signal_stops_at_a_checkpoint_and_can_go_on(
    scene: Scene, number: int, ended: str
) -> None:
    def action(boundaries: Boundaries) -> None:
        with open_wrapped(str(scene.store), boundaries) as tb, tb.run("three") as run:
            three_files(scene, run)

    suspended = 0

    def check(at: int) -> None:
        nonlocal suspended
        where = f"signal at {at}"
        if (scene.directory / "ended").read_text() != ended:
            pytest.fail(f"{where}: {(scene.directory / 'ended').read_text()}")
        with takeback.open(str(scene.store), recover=False) as tb:
            assert not [one for one in tb.effects() if one.state in OPEN_STATES], where
            assert not scene.scratch(), where
            run = tb.runs()[-1]
            if run.name != "three":  # it came before there was a run
                return
            lease = tb.store.leases.holder(run.id)
            assert lease is None or lease.owner.pid == 0, where
            made = len([one for one in tb.effects(run=run) if one.state == "done"])
            assert len(list(scene.world.glob("file *"))) == made, where
            if run.state is RunState.ACCEPTED:
                assert made == 3, where
                return
            assert run.state is RunState.SUSPENDED, f"{where}: {run.state}"
            suspended += 1
            assert tb.checkpoints(run)[-1].label.startswith("interrupted"), where
            with tb.resume(run) as again:
                three_files(scene, again)
        assert len(list(scene.world.glob("file *"))) == 3, where
        assert_settled(scene, where)

    assert every_boundary(scene, action, number, check) > 30
    assert suspended > 5


def test_an_undo_that_gets_a_signal_is_carried_to_its_end(scene: Scene) -> None:
    scene.prepare()
    original = scene.picture()

    def action(boundaries: Boundaries) -> None:
        with open_wrapped(str(scene.store), boundaries) as tb:
            with tb.run("three") as run:
                three_files(scene, run)
            tb.undo(tb.find_run("three"))

    def check(at: int) -> None:
        with takeback.open(str(scene.store), recover=False) as tb:
            left = [
                run for run in tb.runs() if run.name.startswith("undo") and run.state is not RunState.ACCEPTED
            ]
            assert not left, f"signal at {at}: {left}"
            if any(run.name.startswith("undo") for run in tb.runs()):
                assert scene.picture() == original, f"signal at {at}"
        assert_settled(scene, f"signal at {at}")

    assert every_boundary(scene, action, signal.SIGINT, check) > 60
