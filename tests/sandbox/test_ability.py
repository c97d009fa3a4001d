"""What a machine allows is tried, told, and leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from takeback.sandbox.ability import ability
from tests.sandbox.scenes import UserScene, picture

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


def test_in_a_container_layers_lie_in_memory(tmp_path: Path) -> None:
    """Its root is an overlay, which can be no upper."""
    code = """
import os, sys
from takeback.sandbox.ability import ability
from takeback.sandbox.differences import differences
from takeback.sandbox.order import Order, Stack
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
