"""What a machine allows is tried, told, and leaves nothing behind."""

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import takeback
from takeback.sandbox.ability import ability, clear
from tests.sandbox.scenes import Home, UserScene, picture

pytestmark = pytest.mark.root
SOURCE = Path(__file__).parents[2] / "src"


def test_root_can_and_nothing_is_left_of_the_try(tmp_path: Path) -> None:
    before = picture(tmp_path)

    able = ability(str(tmp_path / "not" / "there" / "yet"))

    assert able.engine == "root" and able.why == ""
    assert able.layers_at == str(tmp_path / "not" / "there" / "yet")
    assert picture(tmp_path) == before


def test_an_ordinary_user_can_too(user_scene: UserScene) -> None:
    engine, why, layers_at, *_ = user_scene.ask(what="ability", place=str(user_scene.directory))
    assert (engine, why, layers_at) == ("user", "", str(user_scene.directory))


@pytest.mark.able("user namespaces")
def test_nobody_can_too_though_the_files_of_others_look_like_his(home: Home) -> None:
    with tempfile.TemporaryDirectory(prefix="takeback-nobody-", dir="/var/tmp") as place:
        Path(place).chmod(0o755)
        scene = UserScene(home, 65534, Path(place))
        try:
            ended = scene.run("echo x > made; mkdir /usr/made-by-nobody")
            assert (ended.exit_code, [one.path for one in scene.lefts()]) == (
                1,
                [os.fsencode(scene.world / "made")],
            )
        finally:
            scene.close()


@pytest.mark.able("user namespaces")
def test_one_who_may_make_no_namespaces_is_told_why(tmp_path: Path) -> None:
    tell = "from takeback.sandbox.ability import ability; import sys; print(ability(sys.argv[1]))"
    asked = subprocess.run(
        ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "unshare", "-U", "sh", "-c",
         'echo 0 >/proc/sys/user/max_user_namespaces 2>/dev/null; exec "$@"', "sh",
         sys.executable, "-c", tell, tmp_path],
        env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert "Ability(engine=''" in asked.stdout, asked.stderr
    assert "could not be set up" in asked.stdout
    assert os.listdir(tmp_path) == []


CONTAINER = """
set -e
mount -t tmpfs t "$1"
cd "$1"
mkdir upper work root
mount -t overlay o -o lowerdir=/,upperdir=upper,workdir=work root
for name in dev proc sys; do mount --rbind /$name root/$name; done
mount -t tmpfs -o size=64m shm root/dev/shm
cd root
pivot_root . mnt
umount -l /mnt
cd /
test "$(stat -f -c %T /)" = overlayfs
shift
exec "$@"
"""


@pytest.mark.able("root directory on a disk")
def test_in_a_container_layers_lie_in_memory(tmp_path: Path) -> None:
    """Its root is an overlay, which can be no upper."""
    code = """
import os, sys
import takeback
from takeback.sandbox.ability import ability, clear
from takeback.sandbox.differences import differences
from takeback.sandbox.protocol import Order, Stack
from takeback.sandbox.sandbox import Sandbox
able = ability("/root/store")
print(able.engine, able.layers_at)
layers = ()
with Sandbox(able.layers_at + "/place") as sandbox:
    for number in range(3):
        layer = able.layers_at + f"/layer{number}"
        order = Order(("sh", "-c", "echo -n x >>/opt/tb"), "/", dict(os.environ), (0, 1, 2))
        sandbox.run(order, Stack("/", layers), layer)
        layers = (layer, *layers)
print([(left.path, open(left.source).read()) for left in differences(layers[0], Stack("/", layers[1:]))])
print(os.path.exists("/opt/tb"))
"""
    told = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", CONTAINER, "sh", tmp_path,
         sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    able, left, touched = told.stdout.splitlines()
    assert able == "root /dev/shm/takeback-0"
    assert left == "[(b'/opt/tb', 'xxx')]"
    assert touched == "False"


def leftover(directory: Path) -> Path:
    """As a killed process leaves it: a layer, and the directory of its servant, whose lock nobody holds."""
    place = directory / ".takeback-try"
    (place / "layer-1-00000000" / "0").mkdir(parents=True)
    (place / "layer-1-00000000" / "0" / "file").write_text("x")
    (place / "layer-1-00000000" / "0").chmod(0)
    (place / "run-000000000000" / "root").mkdir(parents=True)
    (place / "run-000000000000" / "lock").touch()
    return place


def test_what_a_killed_try_left_is_cleared_by_the_next_one(tmp_path: Path) -> None:
    place = leftover(tmp_path)

    assert ability(str(tmp_path)).engine == "root"

    assert not place.exists()


def test_what_a_killed_try_left_is_cleared_by_recover(tmp_path: Path) -> None:
    with takeback.open(str(tmp_path / "store")) as tb:
        place = leftover(tmp_path / "store")
        tb.recover()

    assert not place.exists()


def test_nothing_is_cleared_while_another_one_tries(tmp_path: Path) -> None:
    place = leftover(tmp_path)
    lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert not clear(str(tmp_path))
        assert (place / "layer-1-00000000").is_dir()
    finally:
        os.close(lock)
    assert clear(str(tmp_path))
    assert not place.exists()
