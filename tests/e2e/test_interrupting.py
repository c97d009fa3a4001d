"""A signal while a command waits: told in a line, and nothing it started lives on."""

import os
import pty
import signal
import subprocess

import pytest

from tests.e2e.conftest import COMMAND, CommandLine, surroundings
from tests.world import World


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_standard_input_is_awaited_is_told(
    takeback: CommandLine, world: World, number: signal.Signals
) -> None:
    os.mkfifo(world / "input")
    with subprocess.Popen(
        [*COMMAND, "write", "a"], cwd=world.root, env=surroundings(), stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdin
        wait_until_it_reads(child.pid)
        child.send_signal(number)
        assert child.stderr
        told = child.stderr.read()

    assert (child.returncode, told) == (128 + number, "Interrupted; nothing was changed.\n")
    assert not (world / "a").exists()


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_instead_of_an_answer_leaves_it_held_and_tells_how_to_go_on(
    takeback: CommandLine, world: World, number: signal.Signals
) -> None:
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "run", "--ask", "--", "touch", "a"], cwd=world.root, env=surroundings(), stdin=follower,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        os.close(follower)
        try:
            assert child.stderr
            told = ""
            while not told.endswith("Enter: leave it held] "):
                piece = child.stderr.read(1)
                assert piece, told
                told += piece
            child.send_signal(number)
            told = child.stderr.read()
        finally:
            child.kill()
            os.close(leader)

    name = takeback.effect()["id"][:8]
    ways = f"`takeback apply {name}` makes it, `takeback discard {name}` drops it"
    assert told == f"Interrupted; nothing was changed, and what it did is held: {ways}.\n"
    assert child.returncode == 128 + number and not (world / "a").exists()
    (run,) = takeback.done("runs", "--json").json
    assert run["state"] == "accepted"
    takeback.done("apply", name)
    assert (world / "a").exists()


@pytest.mark.parametrize(
    ("options", "script", "code"),
    [
        ((), "trap 'heard=1' INT; echo ready; until [ $heard ]; do sleep .1; done; echo mine > a", 0),
        (("--on-failure", "leave"), "echo mine > a; echo ready; exec sleep 1000", 130),
    ],
    ids=["it goes on", "it ends and is kept"],
)
def test_ctrl_c_at_a_terminal_is_the_commands_own_affair(
    takeback: CommandLine, world: World, options: tuple[str, ...], script: str, code: int
) -> None:
    leader, follower = pty.openpty()
    with subprocess.Popen(
        ["setsid", "--ctty", "--wait", *COMMAND, "run", *options, "--", "sh", "-c", script],
        cwd=world.root, env=surroundings(), stdin=follower, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        os.close(follower)
        try:
            assert child.stdout and child.stderr
            assert child.stdout.readline() == "ready\n"
            os.write(leader, b"\x03")
            told = child.stdout.read(), child.stderr.read()
        finally:
            child.kill()
            os.close(leader)

    assert child.returncode == code, told
    assert (world / "a").read_text() == "mine\n"
    takeback.done("undo")
    assert not (world / "a").exists()


def test_a_signal_that_is_not_the_terminals_is_for_us(takeback: CommandLine, world: World) -> None:
    leader, follower = pty.openpty()
    script = "trap '' INT; echo mine > a; echo $PPID; sleep 100"
    with subprocess.Popen(
        ["setsid", "--ctty", "--wait", "sh", "-c", '"$@" & echo $!; fg 2>/dev/null; wait', "-",
         *COMMAND, "run", "--", "sh", "-c", script],
        cwd=world.root, env=surroundings(), stdin=follower, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        os.close(follower)
        try:
            assert child.stdout and child.stderr
            pid = int(child.stdout.readline())
            child.stdout.readline()
            os.kill(pid, signal.SIGINT)
            told = child.stderr.read()
        finally:
            child.kill()
            os.close(leader)

    assert "dropped; nothing was changed" in told
    assert not (world / "a").exists()


def wait_until_it_reads(pid: int) -> None:
    """The kernel tells which call a process sleeps in, and on which file: read of 0."""
    read = {"x86_64": 0, "aarch64": 63}[os.uname().machine]
    while True:
        with open(f"/proc/{pid}/syscall") as file:
            words = file.read().split()
        if words[:2] == [str(read), "0x0"]:
            return


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["for real", "dry run"])
def test_a_signal_ends_a_running_check_with_all_it_started(
    takeback: CommandLine, world: World, number: signal.Signals, dry: tuple[str, ...]
) -> None:
    for name in ("started", "held"):
        os.mkfifo(world / name)
    # The inner shell keeps `held` open for writing as long as it lives.
    check = "sh -c 'sh -c \"echo > started; exec cat\" 3> held < started; true'"
    with subprocess.Popen(
        [*COMMAND, "write", "a", "--check", check, *dry], cwd=world.root, env=surroundings(),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        with open(world / "held") as held, open(world / "started", "w"):
            child.send_signal(number)
            assert held.read() == ""  # comes only when all who held it are gone
        assert child.stderr
        told = child.stderr.read()

    assert (child.returncode, told) == (128 + number, "Interrupted; nothing was changed.\n")


LOADING = """
import runpy, sys

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise KeyboardInterrupt

sys.modules.pop(sys.argv[1], None)
sys.meta_path.insert(0, Interrupted())
runpy.run_module("takeback", run_name="__main__")
"""


@pytest.mark.real
@pytest.mark.parametrize("module", ["takeback.frontends.cli.main", "gc", "takeback.frontends.cli.command"])
def test_finding_12_an_interrupt_while_takeback_is_loaded_ends_without_a_traceback(module: str) -> None:
    done = subprocess.run(
        [COMMAND[0], "-c", LOADING, module], env=surroundings(), capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


LATE = """
import os, signal
from takeback.frontends.cli.commands import run
from takeback.frontends.cli.main import main

run._told = lambda *words: os.kill(os.getpid(), signal.SIGINT)
main()
"""
WAYS = {
    "a drop": (
        ["run", "--", "sh", "-c", "echo a > a; exit 3"],
        "Interrupted; nothing was changed; `takeback apply {id}` makes what it had done so far.\n",
    ),
    "what is held": (
        ["run", "--hold", "--", "touch", "a"],
        "Interrupted; nothing was changed, and what it did is held: `takeback apply {id}` makes it, "
        "`takeback discard {id}` drops it.\n",
    ),
}


def interrupted(world: World, script: str, *words: str) -> tuple[int, str, str]:
    said = subprocess.run(
        [COMMAND[0], "-c", script, *words],
        cwd=world.root,
        env=surroundings(),
        capture_output=True,
        text=True,
        check=False,
    )
    return said.returncode, said.stdout, said.stderr


@pytest.mark.root
@pytest.mark.parametrize("way", WAYS)
def test_finding_12_an_interrupt_before_a_drop_or_what_is_held_was_told_names_it(
    takeback: CommandLine, world: World, way: str
) -> None:
    words, told = WAYS[way]

    said = interrupted(world, LATE, *words)

    (held,) = takeback.done("log", "--held", "--json").json
    assert said == (130, "", told.format(id=held["id"][:8]))
    takeback.done("apply", held["id"])
    assert (world / "a").exists()


APPENDED = """
import os, signal
from takeback.frontends.cli.main import main
from takeback.storage.sqlite.journal import SqliteJournal

append = SqliteJournal.append

def interrupted(self, *words):
    appended = append(self, *words)
    os.kill(os.getpid(), signal.SIGINT)
    return appended

SqliteJournal.append = interrupted
main()
"""


@pytest.mark.root
@pytest.mark.parametrize("now", [(), ("--now",)])
def test_finding_12_an_interrupted_discard_tells_what_became_of_it(
    takeback: CommandLine, world: World, now: tuple[str, ...]
) -> None:
    """The signal comes with the record that it is dropped, and is heard before anything is erased."""
    takeback.done("run", "--hold", "--name", "careful", "--", "touch", "a")

    said = interrupted(world, APPENDED, "discard", "--run", "careful", *now)

    assert said == (130, "", "Interrupted; it was dropped.\n")
    assert [one["state"] for one in takeback.done("log", "--held", "--json").json] == ["dropped"]
