"""What cannot go on by itself is told, loudly: by the worker, in `status`, in `show`."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.api import opened_of
from takeback.api.workers import worker_for
from takeback.api.workflows import submit_named
from takeback.audit.status import look
from takeback.model.run import needs_attention
from tests.e2e.conftest import CommandLine
from tests.workflows.conftest import Bench, Workers
from tests.workflows.test_replay import flow, waits_then


def test_a_run_that_diverged_is_loud_in_status_and_show(
    bench: Bench, command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = waits_then(
        bench, lambda run: run.write(bench.world / "a", "1"), lambda run: run.write(bench.world / "a", "2")
    )

    said = command.done("status").out
    assert f"Run {run.id[:8]} needs attention: it cannot continue without a person." in said
    assert "takeback resume" in said and "takeback undo --run" in said
    assert command.done("status", "--json").json["attention"] == [run.id]
    said = command.done("show", run.id[:8]).out
    assert "is recorded as: write" in said and "The function now asks for: write" in said
    told = command.done("show", run.id, "--json").json
    assert told["needs_attention"] is True
    assert [(one["step"], one["kind"]) for one in told["steps"]] == [(1, "change"), (2, "wait")]
    command.done("undo", "--run", run.id)
    assert bench.look(run).state.value == "undone"
    assert command.done("status", "--json").json["attention"] == []


def test_a_run_whose_effect_is_stuck_waits_for_a_person_and_goes_on(
    bench: Bench, command: CommandLine
) -> None:
    @takeback.action(name="post")
    def post(*, key: str) -> None:
        raise TimeoutError("no answer")

    @post.undo
    def recall(receipt: object, *, key: str) -> None: ...

    @flow
    def letter(run: takeback.Run) -> object:
        run.write(bench.world / "a", "1")
        return [run.call(post), run.wait("go")]

    run = bench.tb.submit(letter)
    bench.work(letter)
    waiting = bench.look(run)
    (stuck,) = bench.tb.effects(state="stuck")
    assert needs_attention(waiting)
    assert waiting.awaits == f"settled:{stuck.id}"
    assert f"takeback settle {stuck.id[:8]}" in command.done("status").out
    assert bench.text("a") == "1"
    bench.work(letter)
    assert bench.look(run) == waiting

    bench.tb.settle(stuck, True, receipt={"number": 7})
    bench.work(letter)
    assert bench.look(run).awaits == "go"
    bench.tb.signal(run, "go", 1)
    bench.work(letter)
    assert bench.tb.result(run, 0) == [{"number": 7}, 1]


@pytest.mark.parametrize("happened", [True, False])
def test_a_run_that_is_to_be_taken_back_is_when_its_doubt_is_settled(bench: Bench, happened: bool) -> None:
    recalled: list[object] = []

    @takeback.action(name="tests.doubtful_post")
    def post() -> None:
        raise TimeoutError("no answer")

    @post.undo
    def recall(receipt: object) -> None:
        recalled.append(receipt)

    @flow
    def letter(run: takeback.Run) -> object:
        run.write(bench.world / "a", "1")
        return run.call(post)

    run = bench.tb.submit(letter)
    bench.work(letter)
    bench.tb.undo(run)
    (stuck,) = bench.tb.effects(state="stuck")
    assert not (bench.world / "a").exists()
    assert bench.look(run).state.value == "suspended"
    bench.tb.settle(stuck, happened, receipt="letter 7" if happened else None)
    assert recalled == (["letter 7"] if happened else [])
    assert bench.look(run).state.value == "undone"


def test_finding_17_a_run_that_no_worker_has_taken_is_told_at_once(bench: Bench) -> None:
    @flow
    def deploy(run: takeback.Run) -> None: ...

    run = bench.tb.submit(deploy)
    store = bench.tb.store
    at = run.opened_at

    assert [info.id for info in look(store, 0, at).unclaimed] == [run.id]
    bench.work(deploy)
    assert look(store, 0, at + 90_000_000).unclaimed == ()


def test_a_worker_tells_of_runs_whose_function_is_gone(bench: Bench, workers: Workers) -> None:
    workers.module("import takeback\n\n@takeback.workflow\ndef here(run):\n    return 1\n")
    submit_named(opened_of(bench.tb), "flows:gone", json.dumps({}))

    said = workers.finished()

    assert "needs attention: 1 run of flows:gone cannot continue, because the workflow no" in said.stderr


def test_an_error_of_ours_sets_the_run_aside_and_not_the_worker(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    @flow
    def deploy(run: takeback.Run) -> str:
        return "there"

    def broken(*_: object) -> None:
        raise KeyError("odd")

    run = bench.tb.submit(deploy)
    with monkeypatch.context() as patched:
        patched.setattr("takeback.runs.workflows.worker.history_of", broken)
        bench.work(deploy)
    aside = bench.look(run)
    assert needs_attention(aside)
    assert aside.note == "cannot continue: KeyError: 'odd'"

    bench.tb.resume(run)
    bench.work(deploy)
    assert bench.tb.result(run, 0) == "there"


def test_a_store_in_trouble_is_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker goes on when it can be asked again."""
    told: list[str] = []

    @flow
    def deploy(run: takeback.Run) -> str:
        return "there"

    bench.tb.tell = told.append
    worker = worker_for(opened_of(bench.tb), {"flow": deploy})
    claim = opened_of(bench.tb).parts.leases.claim
    left = [2]

    def busy(*args: Any) -> object:
        if left[0]:
            left[0] -= 1
            raise takeback.StoreBusy("the database is locked")
        return claim(*args)

    def unreachable(seconds: float) -> None:
        raise takeback.ServerUnreachable("nobody answers")

    run = bench.tb.submit(deploy)
    monkeypatch.setattr(opened_of(bench.tb).parts.leases, "claim", busy)
    monkeypatch.setattr(worker, "_place", worker._place._replace(wait=unreachable))
    worker.work(until_idle=True)

    assert bench.tb.result(run, 0) == "there"
    assert told == ["The store cannot be asked for work: the database is locked"] * 2


def test_show_tells_of_a_run_that_ended(command: CommandLine, address: str) -> None:
    place = Path(command.directory)
    (place / "flows.py").write_text(
        "import takeback\n\n@takeback.workflow\ndef greet(run, name):\n"
        "    run.write('a', name)\n    return f'hi {name}'\n"
    )
    run = command.done("submit", "flows:greet", '"kim"', "--json").json["id"]
    command.done("worker", "flows", "--until-idle")

    said = command.done("show", run).out

    for line in ('Called   {"name":"kim"}', 'Result   "hi kim"', "State    accepted", "Workflow flows:greet"):
        assert line in said
    assert f"write {os.path.realpath(place / 'a')}" in said or "write a" in said


def test_show_tells_what_was_taken_back_of_a_run_since(bench: Bench, command: CommandLine) -> None:
    with bench.tb.run("ordinary") as run:
        run.write(bench.world / "a", "1")
        last = run.write(bench.world / "b", "2")
    bench.tb.undo(last)
    assert command.done("show", run.id, "--json").json["state"] == "partly undone"
    listed = {one["id"]: one["state"] for one in command.done("runs", "--json").json}
    assert listed[run.id] == "partly undone"


def test_finding_25_undo_of_a_dead_workflow_says_that_it_is_undone(
    bench: Bench, command: CommandLine, workers: Workers
) -> None:
    first, second = bench.world / "a", bench.world / "b"
    workers.module(
        "import os, signal, takeback\n"
        "die = takeback.checks.after(lambda: os.kill(os.getpid(), signal.SIGKILL))\n"
        "@takeback.workflow\n"
        "def dies(run):\n"
        f"    run.write({str(first)!r}, '1')\n"
        f"    run.write({str(second)!r}, '2', checks=[die])\n"
    )
    run = submit_named(opened_of(bench.tb), "flows:dies", json.dumps({}))
    child = workers.start("--until-idle")
    child.communicate()
    assert child.returncode == -9 and second.exists()

    said = command("undo", "--run", run.id)

    assert said.code == 0, said
    assert "still being made" not in said.err and "in doubt" not in said.err
    assert not first.exists() and not second.exists()
    assert bench.look(run).state.value == "undone"
