"""The place that is made ready for the next command."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.sandbox.scenes import RootScene
from tests.sandbox.test_killed import wait_until

pytestmark = pytest.mark.root


def servant(scene: RootScene) -> int:
    ((_, pid),) = scene.sandbox._servants.values()
    return pid


def children(pid: int) -> list[int]:
    try:
        told = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except FileNotFoundError:
        return []
    return [int(word) for word in told.split()]


def test_a_mount_that_came_in_between_is_seen(root_scene: RootScene, tmp_path: Path) -> None:
    point = tmp_path / "point"
    point.mkdir()
    for _ in range(3):
        assert root_scene.run(f"test ! -e {point}/inside").exit_code == 0
    subprocess.run(["mount", "-t", "tmpfs", "none", point], check=True)
    try:
        (point / "inside").touch()
        assert root_scene.run(f"test -e {point}/inside && echo >{point}/made").exit_code == 0
        assert not (point / "made").exists()
    finally:
        subprocess.run(["umount", point], check=True)
    assert root_scene.run(f"test ! -e {point}/inside").exit_code == 0


def test_with_and_without_a_network_in_turns(root_scene: RootScene) -> None:
    for network in (True, True, False, False, True):
        root_scene.run("ls /sys/class/net | wc -l; ip -o link 2>/dev/null | wc -l", network=network)
        seen = root_scene.run("test $(wc -l < /proc/net/dev) -eq 3", network=network)
        assert (seen.exit_code == 0) == (not network) or _only_loopback()


def _only_loopback() -> bool:
    return len(Path("/proc/net/dev").read_text().splitlines()) == 3


def test_one_waits_from_the_second_command_on_and_goes_with_its_servant(root_scene: RootScene) -> None:
    root_scene.run("true")
    pid = servant(root_scene)
    wait_until(lambda: len(children(pid)) == 1)  # who only runs one needs none; the other one sweeps
    root_scene.run("true")
    wait_until(lambda: len(children(pid)) == 2)
    waiting = children(pid)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(Path(f"/proc/{one}").exists() for one in waiting))


def test_one_that_was_killed_is_replaced(root_scene: RootScene) -> None:
    for _ in range(3):
        root_scene.run("true")
    pid = servant(root_scene)
    wait_until(lambda: len(children(pid)) == 2)
    waiting = children(pid)[-1]
    os.kill(waiting, signal.SIGKILL)
    wait_until(lambda: " Z " in Path(f"/proc/{waiting}/stat").read_text())
    assert root_scene.run("echo here").exit_code == 0
    assert root_scene.out.read_text() == "here\n"
