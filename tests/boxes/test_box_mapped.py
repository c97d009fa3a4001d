"""A root filesystem of an ordinary user who has numbers for its other users. Needs `tools/set-up long`: newuidmap."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boxes import rootfs
from tests.sandbox.scenes import USER, Home, make_home

pytestmark = [pytest.mark.able("user namespaces"), pytest.mark.root, pytest.mark.long]

LIMIT = 240
# Only in a mount namespace of its own: the machine's /etc stays as it is.
AS_THE_USER = f"""
set -e
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work"
mount -t overlay -o "lowerdir=/etc,upperdir=$1/upper,workdir=$1/work" none /etc
echo {USER}:100000:65536 > /etc/subuid
echo {USER}:100000:65536 > /etc/subgid
shift
exec setpriv --reuid={USER} --regid={USER} --clear-groups "$@"
"""


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    made = make_home()
    shutil.copy(Path(__file__).parent / "mapped_driver.py", made.library)
    (made.library / "mapped_driver.py").chmod(0o644)
    monkeypatch.setattr(rootfs, "PROGRAMS", (*rootfs.PROGRAMS, "chown"))
    try:
        yield made
    finally:
        shutil.rmtree(made.directory)


def test_other_users_of_a_root_filesystem_are_real(home: Home, tmp_path: Path) -> None:
    mine = Path(tempfile.mkdtemp(dir=home.directory))
    rootfs.make_rootfs(mine / "root")
    subprocess.run(["chown", "-R", f"{USER}:{USER}", mine], check=True)
    ended = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", AS_THE_USER, "sh", tmp_path, home.python, "-I", "-B",
         "-c", f"import sys; sys.path[:0] = [{str(home.library)!r}]; import mapped_driver; mapped_driver.main()",
         str(mine)],
        cwd="/", env={"HOME": str(mine), "PATH": os.environ["PATH"]}, timeout=LIMIT, check=False,
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["owned"] == ["33", "44"]
    assert told["dropped"] is True
    assert told["stack"] < 10
    assert told["last"][:2] == ["16", "y"] and told["last"][4:6] == ["7", "7"]
    assert told["back"] == ["z"]
    assert len(told["refused"]) == 3 and all("closed to you" in one for one in told["refused"])
    assert told["sound"] is True and told["layers"] == []
