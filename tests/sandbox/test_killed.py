"""Whoever is killed, and whenever: no process, no mount and no scratch is left for long."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from takeback.errors import ResourceUnreachable
from tests.sandbox.scenes import RootScene

pytestmark = pytest.mark.root

CALLER = """
import os, sys
from takeback.sandbox.protocol import Order, Stack
from takeback.sandbox.sandbox import Sandbox
place, layer, script = sys.argv[1:]
with Sandbox(place) as sandbox:
    sandbox.run(Order(("/bin/sh", "-c", script), "/", {"PATH": "/usr/bin:/bin"}, (0, 1, 2)), Stack(), layer)
"""


def wait_until(true: Callable[[], bool]) -> None:
    """Up to two minutes, which is for ever."""
    for _ in range(2400):
        if true():
            return
        select.select([], [], [], 0.05)
    raise AssertionError("It did not come true.")


def living(word: str) -> list[str]:
    """Processes with this word among their arguments."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if word.encode() in (entry / "cmdline").read_bytes():
                    found.append(entry.name)
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_caller_takes_everything_with_it(tmp_path: Path, number: signal.Signals) -> None:
    place, layer, word = tmp_path / "place", tmp_path / "layer", f"takeback-{os.getpid()}-{number}"
    script = f": {word}; echo x >{tmp_path}/file; echo ready; sleep 1000 & sleep 1000"
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER, place, layer, script],
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )  # fmt: skip
    try:
        assert caller.stdout and caller.stdout.readline() == b"ready\n"
        caller.send_signal(number)
        caller.wait(120)
        wait_until(lambda: not living(word))
        wait_until(lambda: os.listdir(place) == [])
        assert not layer.exists() and not (tmp_path / "file").exists()
    finally:
        caller.kill()
        caller.wait()
        assert caller.stdout
        caller.stdout.close()


def test_a_killed_servant_is_told_and_a_new_one_cleans_up(root_scene: RootScene) -> None:
    there, here = os.pipe()
    nothing = os.open("/dev/null", os.O_RDWR)
    try:
        running = root_scene.start("echo ready; sleep 1000", stdio=(nothing, here, nothing))
        assert os.read(there, 100) == b"ready\n"
        [(_, servant)] = root_scene.sandbox._servants.values()  # pyright: ignore[reportPrivateUsage]
        os.kill(servant, signal.SIGKILL)
        with pytest.raises(ResourceUnreachable, match="nothing was changed"):
            running.wait()
    finally:
        for fd in (there, here, nothing):
            os.close(fd)
    root_scene.close()
    # The one who sweeps outlives the servant.
    wait_until(lambda: os.listdir(root_scene.place) == [])
    assert root_scene.run("true").exit_code == 0


def test_what_nobody_swept_is_swept_by_the_next(root_scene: RootScene) -> None:
    """As if all of them were killed at once, in the middle of a command."""
    left = root_scene.place / "run-0123456789ab"
    (left / "1" / "work" / "work").mkdir(parents=True)
    (left / "lock").touch()
    (left / "1" / "work" / "work").chmod(0)

    root_scene.run("true")
    root_scene.close()

    assert os.listdir(root_scene.place) == []


def test_a_command_that_is_killed_by_the_caller_leaves_no_layer(root_scene: RootScene) -> None:
    there, here = os.pipe()
    nothing = os.open("/dev/null", os.O_RDWR)
    try:
        running = root_scene.start("echo ready; sleep 1000", stdio=(nothing, here, nothing))
        assert os.read(there, 100) == b"ready\n"
        running.kill()
        with pytest.raises(ResourceUnreachable):
            running.wait()
    finally:
        for fd in (there, here, nothing):
            os.close(fd)
    root_scene.close()
    assert os.listdir(root_scene.layers) == [] and os.listdir(root_scene.place) == []


def test_an_interrupt_of_the_caller_ends_the_command(root_scene: RootScene) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    there, here = os.pipe()
    nothing = os.open("/dev/null", os.O_RDWR)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        running = root_scene.start("echo ready; sleep 1000", stdio=(nothing, here, nothing))
        assert os.read(there, 100) == b"ready\n"
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Interrupted):
            running.wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        for fd in (there, here, nothing):
            os.close(fd)
    root_scene.close()
    assert os.listdir(root_scene.layers) == [] and os.listdir(root_scene.place) == []


def test_nothing_is_mounted_and_nobody_is_left_after_a_command(root_scene: RootScene) -> None:
    mounts = Path("/proc/self/mountinfo").read_text().count(str(root_scene.place))
    root_scene.run("sleep 1000 & mkdir -m 0 closed; echo x >closed/x")
    root_scene.sandbox.close()

    assert os.listdir(root_scene.place) == []
    assert Path("/proc/self/mountinfo").read_text().count(str(root_scene.place)) == mounts == 0


ON_A_TERMINAL = CALLER.replace("sandbox.run(", "raise SystemExit(sandbox.run(").replace(
    "layer)\n", "layer).exit_code)\n"
)
ON_A_TERMINAL = "import signal; signal.signal(signal.SIGINT, lambda *_: None)\n" + ON_A_TERMINAL


def test_a_terminal_is_handed_on(tmp_path: Path) -> None:
    """^C reaches the command, which is in front; `tty` finds it."""
    control, terminal = os.openpty()
    script = "tty >/dev/null || exit 3; trap 'exit 42' INT; echo ready >/dev/tty; sleep 1000 & wait"
    caller = subprocess.Popen(
        ["setsid", "--ctty", sys.executable, "-c", ON_A_TERMINAL, tmp_path / "place", tmp_path / "layer", script],
        stdin=terminal, stdout=terminal, stderr=terminal,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )  # fmt: skip
    try:
        os.close(terminal)
        said = b""
        while b"ready" not in said:
            said += os.read(control, 100)
        os.write(control, b"\x03")
        assert caller.wait(120) == 42, said
    finally:
        caller.kill()
        caller.wait()
        os.close(control)
