"""A signal while a command waits: told in a line, and nothing it started lives on."""

import os
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
