"""`takeback stop`: what it prints, and that it ends what runs in other processes within a second."""

import os
import pwd
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.conftest import COMMAND, CommandLine, Said, surroundings
from tests.world import World

REASON = "it deletes too much"

BEA = f"{pwd.getpwuid(os.getuid()).pw_name} (bea)"  # the account of these tests, and the name that was typed


class Running:
    """A command that says when it runs, in a process of its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(60)
        self.started: list[subprocess.Popen[str]] = []

    @property
    def long(self) -> str:
        """What it does first, and that it then never ends by itself."""
        port = self._listener.getsockname()[1]
        return f"echo half > half; bash -c ': > /dev/tcp/127.0.0.1/{port}'; sleep 600"

    def start(self, *words: str) -> "subprocess.Popen[str]":
        child = subprocess.Popen(
            [*COMMAND, *words], cwd=self._world.root, env=surroundings(), text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.started.append(child)
        self._listener.accept()[0].close()
        return child

    def end(self) -> None:
        self._listener.close()
        for child in self.started:
            if child.poll() is None:
                child.kill()
            child.communicate()


@pytest.fixture
def running(world: World) -> Iterator[Running]:
    with closing(_Ended(Running(world))) as made:
        yield made.running


class _Ended:
    def __init__(self, running: Running) -> None:
        self.running = running

    def close(self) -> None:
        self.running.end()


def half(world: World) -> bool:
    return (world / "half").exists()


# In this project: what a person reads.


def test_it_says_what_is_stopped_and_how_to_lift_it(takeback: CommandLine) -> None:
    said = takeback.done("stop", "--agent", "cli", "--why", REASON, "--by", "bea")
    assert said.out.splitlines() == [
        "Agent cli is stopped: from now on every change that it asks for is refused.",
        "Changes under way are finished or taken back; `takeback undo` and looking still work.",
        "hint: A person lifts it with `takeback stop --lift --agent cli`.",
    ]
    refused = takeback("write", "a", input="x")
    assert (refused.code, refused.out) == (3, "")
    assert f"Agent cli was stopped by {BEA}: it deletes too much." in refused.err
    again = takeback.done("stop", "--agent", "cli")
    assert "It was stopped already" in again.out
    assert f"by {BEA}" in takeback.done("stop", "--list").out
    lifted = takeback.done("stop", "--lift")
    assert lifted.out == f"Agent cli may work again; it was stopped by {BEA}.\n"
    takeback.done("write", "a", input="x")


def test_status_and_doctor_show_it(takeback: CommandLine) -> None:
    takeback.done("stop", "--all", "--by", "bea", "--why", REASON)
    assert takeback.done("status").out.startswith(f"Stopped  Everything, by {BEA} just now")
    (stop,) = takeback.done("status", "--json").json["stops"]
    assert (stop["agent"], stop["run"], stop["remark"], stop["why"]) == ("", "", "bea", REASON)
    found = [one for one in takeback("doctor", "--json").json["findings"] if one["name"] == "stopped"]
    assert found[0]["detail"] == f"Everything was stopped by {BEA}: it deletes too much"
    assert takeback.done("stop", "--list", "--json").json == [stop]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--agent", "a", "--all"),
        ("--list", "--all"),
        ("--list", "--lift"),
        ("--agent", ""),
        ("--why", "so"),
    ],
)
def test_what_is_not_clear_stops_nothing(takeback: CommandLine, words: Sequence[str]) -> None:
    said = takeback("stop", *words)
    assert said.code == 2
    assert "hint:" in said.err or "Give one of" in said.err
    assert takeback("stop", "--list").out in ("Nothing is stopped.\n", "")


def test_nothing_to_lift_is_refused(takeback: CommandLine) -> None:
    takeback.done("write", "a", input="x")
    assert takeback("stop", "--lift").code == 3
    assert takeback("stop", "--lift", "--agent", "a").err.startswith("error: Agent a is not stopped.")
    assert takeback("stop", "--run", "nosuch").code == 2


def test_a_dry_run_stops_and_lifts_nothing(takeback: CommandLine) -> None:
    assert takeback.done("stop", "--all", "--dry-run").out == "Everything would be stopped.\n"
    assert takeback.done("stop", "--all", "--dry-run", "--json").json["dry_run"] is True
    takeback.done("write", "a", input="x")
    takeback.done("stop", "--all")
    assert "would be lifted" in takeback.done("stop", "--lift", "--dry-run").out
    assert takeback("write", "a", input="y").code == 3


def test_undo_and_looking_work_while_everything_is_stopped(takeback: CommandLine, world: World) -> None:
    takeback.write("a", "x")
    takeback.done("stop", "--all")
    for words in (
        ("log",),
        ("show", "@"),
        ("diff", "@"),
        ("status",),
        ("pending",),
        ("verify",),
        ("recover",),
    ):
        takeback.done(*words)
    takeback.done("undo")
    assert not (world / "a").exists()
    assert takeback("redo").code == 3


def test_it_stops_what_does_not_exist_yet(takeback: CommandLine) -> None:
    """Before the first change there is no store."""
    takeback.done("stop", "--agent", "later")
    assert takeback("write", "a", "--agent", "later", input="x").code == 3


def test_an_agent_may_stop_and_not_lift(takeback: CommandLine) -> None:
    takeback.done("stop", "--agent", "claude-code", CLAUDECODE="1")
    said = takeback("stop", "--lift", CLAUDECODE="1")
    assert said.code == 3
    assert "is for a person, and Claude Code started this command" in said.err
    assert len(takeback.done("stop", "--list", "--json").json) == 1
    takeback.done("stop", "--lift")


# What runs in another process.


WAYS = {
    "run": ("run", "--", "sh", "-c"),
    "run --in-place": ("run", "--in-place", "--", "sh", "-c"),
    "run --on-failure=leave": ("run", "--in-place", "--on-failure", "leave", "--", "sh", "-c"),
    "shell": ("shell", "--stop-on-failure", "-c"),
}


@pytest.mark.root
@pytest.mark.parametrize("way", WAYS)
def test_a_command_that_runs_is_ended_within_a_second_and_taken_back(
    way: str, takeback: CommandLine, running: Running, world: World
) -> None:
    child = running.start(*WAYS[way], running.long)
    takeback.done("stop", "--agent", "cli", "--by", "bea", "--why", REASON)
    at = time.monotonic()
    _, err = child.communicate(timeout=60)
    seconds = time.monotonic() - at

    assert child.returncode == 125
    assert f"Agent cli was stopped by {BEA}: it deletes too much" in err
    assert not half(world)
    assert seconds < 5
    assert takeback.done("verify").code == 0
    _told_of_drop(takeback, err)


def _told_of_drop(takeback: CommandLine, err: str) -> None:
    drops = takeback.done("status", "--json").json["drops"]
    assert len(drops) == 1
    assert f"takeback apply {drops[0]['effect'][:8]}" in err


@pytest.mark.root
def test_a_program_that_does_not_listen_is_made_to_end(
    takeback: CommandLine, running: Running, world: World
) -> None:
    child = running.start("run", "--in-place", "--", "sh", "-c", f"trap '' TERM; {running.long}")
    takeback.done("stop", "--all")
    child.communicate(timeout=60)
    assert child.returncode == 125
    assert not half(world)


def test_a_command_is_refused_before_it_starts(takeback: CommandLine, world: World, tmp_path: Path) -> None:
    takeback.done("stop", "--agent", "cli")
    mark = tmp_path / "ran"
    for words in (("run",), ("run", "--in-place")):
        said: Said = takeback(*words, "--", "sh", "-c", f"echo > {os.fspath(mark)}")
        assert said.code == 125
        assert "Agent cli was stopped by" in said.err
    assert takeback("shell", "-c", "echo x > y").code == 125
    assert not mark.exists()
    assert not (world / "y").exists()
