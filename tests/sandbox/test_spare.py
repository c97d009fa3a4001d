"""The place that is made ready for the next command."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from takeback.sandbox.protocol import Stack
from tests.boxes.rootfs import make_rootfs
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
    wait_until(lambda: not any(alive(one) for one in waiting))


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


def alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def is_built(pid: int) -> bool:
    """Whether its root is the one that a command will see."""
    try:
        table = Path(f"/proc/{pid}/mountinfo").read_text()
    except OSError:
        return False
    return any(line.split()[4] == "/" and " overlay takeback " in line for line in table.splitlines())


def built(scene: RootScene, **more: Any) -> int:
    """One that is ready to the last mount. Others mount and unmount too, and then it goes."""
    found: list[int] = []

    def there() -> bool:
        scene.run("true", **more)
        pid = servant(scene)
        for _ in range(100):
            found[:] = [one for one in children(pid)[1:] if is_built(one)]
            if found:
                return True
            os.sched_yield()
        return False

    wait_until(there)
    return found[0]


def test_the_place_is_built_for_a_command_that_goes_on_from_there(root_scene: RootScene) -> None:
    scene = root_scene
    waiting = built(scene)
    assert scene.run(f"echo made > {scene.world}/made; cat {scene.world}/made").exit_code == 0
    assert scene.said() == "made\n" and list(scene.left()) == ["made"]
    assert not Path(f"/proc/{waiting}/fd").exists()
    scene.run(f"cat {scene.world}/made; rm {scene.world}/made", stack=Stack("/", (scene.layer,)))
    assert scene.said() == "made\n"


def test_a_world_that_changed_while_it_waited_is_seen(root_scene: RootScene, tmp_path: Path) -> None:
    root = make_rootfs(tmp_path / "root")
    more: dict[str, Any] = {"stack": Stack(str(root)), "cwd": "/"}
    for number in range(3):
        built(root_scene, **more)
        root.chmod(0o700 + number)
        (root / f"new{number}").mkdir()
        os.rename(root / "etc", root / "other")
        (root / "etc").mkdir()
        root_scene.run("ls -ld /; ls -d /new*; ls /etc; ls /other", **more)
        os.rmdir(root / "etc")
        os.rename(root / "other", root / "etc")
        said = root_scene.said().splitlines()
        assert said[0].startswith(("drwx------", "drwx-----x", "drwx----w-")[number])
        assert said[1:] == [*(f"/new{one}" for one in range(number + 1)), "name"]
        assert root_scene.lefts() == []


def test_the_place_of_the_store_is_covered_though_it_was_moved(root_scene: RootScene, tmp_path: Path) -> None:
    hidden = tmp_path / "above" / "hidden"
    hidden.mkdir(parents=True)
    (hidden / "secret").touch()
    for number in range(2):
        built(root_scene, hidden=(str(hidden),))
        os.rename(tmp_path / "above", tmp_path / f"gone{number}")
        hidden.mkdir(parents=True)
        (hidden / "secret").touch()
        root_scene.run(f"ls -A {hidden}", hidden=(str(hidden),))
        assert root_scene.said() == ""


def test_what_is_unmounted_is_let_go(tmp_path: Path) -> None:
    """Where other tests see nothing of the mount."""
    line = f"import pathlib, tests.sandbox.test_spare as here; here.let_go(pathlib.Path({str(tmp_path)!r}))"
    apart = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", line]
    subprocess.run(apart, check=True, cwd=Path(__file__).parents[2], timeout=600)


def let_go(directory: Path) -> None:
    point = directory / "point"
    point.mkdir()
    scene = RootScene(directory)
    try:
        subprocess.run(["mount", "-t", "tmpfs", "none", point], check=True)
        waiting = built(scene)
        subprocess.run(["umount", point], check=True)
        wait_until(lambda: not Path(f"/proc/{waiting}").exists())
        assert scene.run(f"test -d {point}").exit_code == 0
    finally:
        scene.close()


def test_what_was_built_in_vain_leaves_nothing(root_scene: RootScene, tmp_path: Path) -> None:
    root = make_rootfs(tmp_path / "root")
    other: dict[str, Any] = {"stack": Stack(str(root)), "cwd": "/"}
    for more in ({}, other, {}, {}, other, other, {"network": False}, {"memory": 1 << 28}, {}):
        assert root_scene.run("true", **more).exit_code == 0
    built(root_scene)
    (room,) = root_scene.place.iterdir()
    wait_until(lambda: len([name for name in os.listdir(room) if name.isdigit()]) <= 1)
    root_scene.close()
    assert list(root_scene.place.iterdir()) == []


def test_one_that_was_built_and_then_killed_is_replaced(root_scene: RootScene) -> None:
    waiting = built(root_scene)
    os.kill(waiting, signal.SIGKILL)
    wait_until(lambda: not alive(waiting))
    assert root_scene.run("echo here").exit_code == 0
    assert root_scene.said() == "here\n"
