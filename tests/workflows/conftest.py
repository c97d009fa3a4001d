"""A store, a world, and workers: in this process, where a test calls them, or real ones."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.model.run import RunInfo
from tests.e2e.conftest import COMMAND, CommandLine, surroundings
from tests.world import World

LONG = 120  # seconds that nothing here takes on any machine


class Bench:
    """An open store, and a worker that works when it is told to."""

    def __init__(self, tb: takeback.Takeback, world: World) -> None:
        self.tb = tb
        self.world = world
        self.ahead = 0  # how many seconds the clock is put forward

    def work(self, *workflows: takeback.Workflow) -> None:
        self.tb.work(*workflows, until_idle=True)

    def done(self, workflow: takeback.Workflow, *args: Any, **kwargs: Any) -> Any:
        """Its result, after one shift."""
        run = self.tb.submit(workflow, *args, **kwargs)
        self.work(workflow)
        return self.tb.result(run, 0)

    def look(self, run: RunInfo) -> RunInfo:
        return self.tb.find_run(run.id)

    def text(self, name: str) -> str | None:
        path = self.world / name
        return path.read_text() if path.exists() else None


@pytest.fixture(params=["on disk", "in PostgreSQL"])
def address(request: pytest.FixtureRequest, store: Path) -> str:
    """Of the store; workers and commands find it in TAKEBACK_STORE."""
    if request.param == "on disk":
        return str(store)
    os.environ["TAKEBACK_STORE"] = request.getfixturevalue("pg_database").url
    return os.environ["TAKEBACK_STORE"]


@pytest.fixture
def bench(address: str, world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with takeback.open(address) as tb:
        made = Bench(tb, world)

        def now() -> int:
            return time.time_ns() // 1000 + made.ahead * 1_000_000

        for place in ("takeback.api", "takeback.api.store", "takeback.api.workflows", "takeback.api.workers"):
            monkeypatch.setattr(f"{place}.now", now)
        yield made
        assert tb.verify(read_data=True).findings == ()


@pytest.fixture
def command(world: World) -> CommandLine:
    return CommandLine(os.fspath(world.root))


class Workers:
    """Real worker processes over a module `flows` that a test writes."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.started: list[subprocess.Popen[str]] = []

    def module(self, text: str) -> None:
        (self.place / "flows.py").write_text(text)

    def start(self, *words: str) -> "subprocess.Popen[str]":
        child = subprocess.Popen(
            [*COMMAND, "worker", "flows", *words], cwd=self.place, env=surroundings(), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.started.append(child)
        return child

    def ready(self, *words: str) -> "subprocess.Popen[str]":
        """One that has begun to work."""
        child = self.start(*words)
        assert child.stdout is not None
        assert child.stdout.readline().startswith("Working on")
        return child

    def finished(self, *words: str) -> "subprocess.CompletedProcess[str]":
        child = self.start("--until-idle", *words)
        out, err = child.communicate(timeout=LONG)
        assert child.returncode == 0, err
        assert "Traceback" not in err
        return subprocess.CompletedProcess(child.args, 0, out, err)

    def end(self) -> None:
        for child in self.started:
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
                child.kill()
            child.communicate()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    place = tmp_path / "app"
    place.mkdir()
    made = Workers(place)
    sys.path.insert(0, str(place))
    yield made
    made.end()
    sys.path.remove(str(place))
    sys.modules.pop("flows", None)


def until(holds: Callable[[], Any], what: str) -> Any:
    """What it answers when it is true at last."""
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        if found := holds():
            return found
        os.sched_yield()
        select_a_moment()
    raise AssertionError(f"never: {what}")


def select_a_moment() -> None:
    import select

    select.select([], [], [], 0.01)
