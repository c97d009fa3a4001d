"""Real workers: taking over, stopping, racing; a paused one that wakes cannot do anything."""

import importlib
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import takeback
from tests.e2e.conftest import CommandLine
from tests.servers.postgres import Postgres
from tests.workflows.conftest import LONG, Bench, Workers, until

FLOWS = """
import os, time
import takeback

def log(place, word):
    with open(f"{place}/log", "a") as file:
        file.write(f"{word} {os.getpid()}\\n")

@takeback.workflow
def short(run, place, name):
    run.remember("once", lambda: log(place, name))
    run.write(f"{place}/{name}", name)
    return name

@takeback.workflow
def gated(run, place, steps):
    '''Waits before each step until a file is there.'''
    for step in range(steps):
        log(place, f"at {step}")
        while not os.path.exists(f"{place}/gate-{step}"):
            time.sleep(0.01)
        run.write(f"{place}/step-{step}", str(step))
    return steps

@takeback.workflow(step_timeout=1)
def hanging(run, place):
    run.write(f"{place}/first", "1")
    log(place, "hangs")
    while not os.path.exists(f"{place}/gate"):
        time.sleep(0.01)
    run.write(f"{place}/second", "2")
    return "there"
"""


@pytest.fixture
def flows(workers: Workers) -> Any:
    workers.module(FLOWS)
    importlib.invalidate_caches()
    return importlib.import_module("flows")


def logged(world: Any) -> list[str]:
    path = world / "log"
    return path.read_text().splitlines() if path.exists() else []


def lasting(bench: Bench, seconds: int) -> None:
    """For the workers that are started from now on."""
    bench.tb.store.keep_settings({"lease_seconds": seconds})


def made_once(bench: Bench, run: takeback.RunInfo, steps: int) -> None:
    done = [one.step for one in bench.tb.effects(run=run, state="done")]
    assert done == list(range(1, steps + 1))


def test_a_worker_carries_out_what_was_submitted_and_ends_when_it_is_idle(
    bench: Bench, workers: Workers, flows: Any
) -> None:
    runs = [bench.tb.submit(flows.short, str(bench.world.root), f"n{number}") for number in range(5)]

    said = workers.finished("--concurrency", "3")

    assert "Working on flows:gated, flows:hanging, flows:short" in said.stdout
    assert [bench.tb.result(run, 0) for run in runs] == [f"n{number}" for number in range(5)]


def test_the_run_of_a_killed_worker_is_taken_over_long_before_its_lease_ends(
    bench: Bench, workers: Workers, flows: Any
) -> None:
    lasting(bench, 100 * LONG)
    run = bench.tb.submit(flows.gated, str(bench.world.root), 3)
    (bench.world / "gate-0").touch()
    first = workers.ready()
    until(lambda: len(logged(bench.world)) == 2, "the second step is reached")
    workers.ready()
    first.kill()
    first.wait(LONG)
    until(lambda: len(logged(bench.world)) == 4, "another worker is there")
    for step in (1, 2):
        (bench.world / f"gate-{step}").touch()

    assert bench.tb.result(run, LONG) == 3
    made_once(bench, run, 3)


def test_sigterm_stops_at_the_next_step_with_a_checkpoint(bench: Bench, workers: Workers, flows: Any) -> None:
    run = bench.tb.submit(flows.gated, str(bench.world.root), 2)
    worker = workers.ready()
    until(lambda: logged(bench.world), "the first step is reached")
    worker.send_signal(signal.SIGTERM)
    assert worker.stderr is not None
    assert worker.stderr.readline().startswith("takeback: Stopping when a run is at the next step")
    (bench.world / "gate-0").touch()
    (bench.world / "gate-1").touch()
    _, err = worker.communicate(timeout=LONG)

    assert (worker.returncode, err) == (0, "")
    stopped = bench.look(run)
    assert (stopped.state.value, stopped.due_at, stopped.note) == ("suspended", 0, "its worker was stopped")
    assert [(one.label, one.automatic) for one in bench.tb.checkpoints(run)] == [
        ("its worker was stopped", True)
    ]
    assert (bench.text("step-0"), bench.text("step-1")) == (None, None)
    workers.finished()
    assert bench.tb.result(run, 0) == 2
    made_once(bench, run, 2)


def test_a_second_signal_ends_it_at_once(bench: Bench, workers: Workers, flows: Any) -> None:
    run = bench.tb.submit(flows.gated, str(bench.world.root), 1)
    worker = workers.ready()
    until(lambda: logged(bench.world), "the first step is reached")
    worker.send_signal(signal.SIGTERM)
    worker.send_signal(signal.SIGINT)
    worker.communicate(timeout=LONG)

    assert worker.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM)  # which of the two was heard last
    (bench.world / "gate-0").touch()
    workers.finished()
    assert bench.tb.result(run, 0) == 1


def test_a_paused_worker_loses_its_run_and_can_do_nothing_when_it_wakes(
    bench: Bench, workers: Workers, flows: Any
) -> None:
    lasting(bench, 1)
    run = bench.tb.submit(flows.gated, str(bench.world.root), 2)
    (bench.world / "gate-0").touch()
    paused = workers.ready()
    until(lambda: len(logged(bench.world)) == 2, "the second step is reached")
    paused.send_signal(signal.SIGSTOP)
    workers.ready()
    until(lambda: len(logged(bench.world)) == 4, "another worker has it")
    (bench.world / "gate-1").touch()
    assert bench.tb.result(run, LONG) == 2
    records = bench.tb.store.journal.tally()["records"]
    (bench.world / "step-1").write_text("a person's")
    paused.send_signal(signal.SIGCONT)
    assert paused.stderr is not None
    assert "was taken over" in paused.stderr.readline()

    assert bench.text("step-1") == "a person's"
    assert bench.tb.store.journal.tally()["records"] == records
    made_once(bench, run, 2)


def test_a_worker_that_hangs_loses_its_run(store: Path, bench: Bench, workers: Workers, flows: Any) -> None:
    lasting(bench, 1)
    run = bench.tb.submit(flows.hanging, str(bench.world.root))
    workers.ready()
    until(lambda: len(logged(bench.world)) == 1, "it hangs")
    workers.ready()
    until(lambda: len(logged(bench.world)) == 2, "somebody else has it")
    (bench.world / "gate").touch()

    assert bench.tb.result(run, LONG) == "there"
    made_once(bench, run, 2)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("racers", "count"), [(2, 200), (8, 60)])
def test_of_many_runs_none_is_lost_and_none_is_made_twice(
    bench: Bench, workers: Workers, flows: Any, racers: int, count: int
) -> None:
    runs = [bench.tb.submit(flows.short, str(bench.world.root), f"n{number}") for number in range(count)]
    racing = [workers.start("--until-idle", "--concurrency", "4") for _ in range(racers)]
    for worker in racing:
        _, err = worker.communicate(timeout=LONG)
        assert (worker.returncode, err) == (0, ""), err

    assert [bench.tb.result(run, 0) for run in runs] == [f"n{number}" for number in range(count)]
    begun = Counter(line.split()[0] for line in logged(bench.world))
    assert begun == {f"n{number}": 1 for number in range(count)}
    assert Counter(one.run for one in bench.tb.effects()) == {run.id: 1 for run in runs}


def test_a_worker_says_what_is_wrong_with_its_module(command: CommandLine) -> None:
    place = Path(command.directory)
    (place / "broken.py").write_text("import takeback\n1 / 0\n")
    (place / "half.py").write_text("import nowhere_to_be_found\n")
    (place / "empty.py").write_text("")
    for module, says in (
        ("missing", "There is no Python module 'missing' here."),
        ("empty.deeper", "There is no Python module 'empty.deeper' here."),
        ("broken", "The module broken cannot be imported: ZeroDivisionError: division by zero."),
        ("half", "The module half cannot be imported: ModuleNotFoundError"),
        ("empty", "The module empty has no workflow."),
        ("broken.py", "'broken.py' is no name of a Python module."),
    ):
        said = command("worker", module, "--until-idle")
        assert said.code == 2
        assert says in said.err and "hint: " in said.err


def test_submit_and_signal_on_the_command_line(command: CommandLine, address: str) -> None:
    place = Path(command.directory)
    (place / "flows.py").write_text(
        "import takeback\n\n@takeback.workflow\ndef deploy(run, version, places=1):\n"
        "    run.write('a', version)\n    return [version, places, run.wait('go')]\n"
    )
    run = command.done("submit", "flows:deploy", '"v1"', "places=2", "--key", "k", "--json").json
    assert (run["workflow"], run["key"], run["state"]) == ("flows:deploy", "k", "open")
    assert command.done("submit", "flows:deploy", '"v1"', "places=2", "--key", "k", "--json").json == run
    assert command("submit", "flows:deploy", '"v2"', "--key", "k").code == 3
    assert command("submit", "flows:deploy", "v1").code == 2
    assert command("submit", "flows:nothing").code == 2
    assert command("submit", "flows").code == 2
    command.done("worker", "flows", "--until-idle")
    assert "waits for 'go'" in command.done("status").out
    command.done("signal", run["id"], "go", '{"by": "kim"}')
    command.done("worker", "flows", "--until-idle")
    (ended,) = command.done("runs", "--json").json
    assert ended["state"] == "accepted"
    assert command("signal", run["id"], "go").code == 3
    with takeback.open(address) as tb:
        assert tb.result(run["id"], 0) == ["v1", 2, {"by": "kim"}]


@pytest.mark.parametrize("address", ["in PostgreSQL"], indirect=True)
def test_a_worker_outlives_its_server(bench: Bench, postgres: Postgres, workers: Workers, flows: Any) -> None:
    """Killed and started again, in the middle of a run and while the worker has nothing to do."""
    run = bench.tb.submit(flows.gated, str(bench.world.root), 2)
    (bench.world / "gate-0").touch()
    worker = workers.ready()
    until(lambda: len(logged(bench.world)) == 2, "the second step is reached")
    postgres.kill()
    (bench.world / "gate-1").touch()
    postgres.start()
    assert bench.tb.result(run, LONG) == 2
    made_once(bench, run, 2)

    postgres.kill()
    postgres.start()
    later = bench.tb.submit(flows.short, str(bench.world.root), "later")
    assert bench.tb.result(later, LONG) == "later"
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=LONG)
    assert worker.returncode == 0
    assert "Traceback" not in err
