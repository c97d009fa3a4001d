"""A real `apt-get install` in a root filesystem made by debootstrap, taken back. Needs the network and some minutes."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback
from tests.trees.scenes import differences, manifest, without_directory_times

ENOUGH = 1800

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.needs("debootstrap"), pytest.mark.timeout(3600)]


def mirror() -> str:
    """Whatever this machine installs its own packages from."""
    told = subprocess.run(["apt-cache", "policy"], check=True, capture_output=True, text=True).stdout
    found = [word for line in told.splitlines() for word in line.split() if word.startswith("http")]
    return next((word for word in found if word.rstrip("/").endswith("debian")), found[0])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("packages") / "root"
    code = subprocess.run(
        ["sh", "-c", ". /etc/os-release; echo $VERSION_CODENAME"], check=True, capture_output=True
    )
    release = code.stdout.decode().strip()
    words = ["debootstrap", "--variant=minbase", release, str(root), mirror()]
    subprocess.run(words, check=True, timeout=ENOUGH, stdout=subprocess.DEVNULL)
    yield root
    subprocess.run(["rm", "-rf", str(root)], check=True)


def test_an_installed_package_is_taken_back_with_everything_it_brought(store: Path, base: Path) -> None:
    before = without_directory_times(manifest(base))
    with takeback.open(str(store)) as tb, tb.run("packages") as run, run.sandbox(base=str(base)) as box:
        assert box.run("apt-get update -q", timeout=ENOUGH).exit_code == 0
        point = box.run("true > /root/point").effect
        assert point
        line = "DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends ed file"
        installed = box.run(line, timeout=ENOUGH)
        assert installed.exit_code == 0, installed.stderr[-2000:]
        assert box.run("ed --version").exit_code == 0
        # The base does not see it before it is asked to.
        assert not os.path.exists(base / "bin/ed") and not os.path.exists(base / "usr/bin/ed")
        box.undo(1)
        assert box.run("test ! -e /usr/bin/ed -a ! -e /bin/ed && dpkg --audit").exit_code == 0
        assert box.run(line, timeout=ENOUGH).exit_code == 0
        committed = box.commit()
        assert committed.effect
        assert os.path.exists(base / "bin/ed") or os.path.exists(base / "usr/bin/ed")
        tb.undo(committed.effect.id, cascade=True)  # and the step of the box that stands on it
    assert not differences(before, without_directory_times(manifest(base)))
