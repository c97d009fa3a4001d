"""Boxes of an ordinary user."""

import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.scenes import USER, Home, make_home

pytestmark = pytest.mark.root

LIMIT = 240


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    """With the library for compression beside the package."""
    made = make_home()
    found = importlib.util.find_spec("backports")
    for place in found.submodule_search_locations or () if found else ():
        shutil.copytree(place, made.library / "backports", dirs_exist_ok=True)
    shutil.copy(Path(__file__).parent / "user_driver.py", made.library)
    for path in (made.library, *made.library.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    try:
        yield made
    finally:
        shutil.rmtree(made.directory)


def test_a_user_has_boxes_over_the_machine(home: Home) -> None:
    mine = Path(tempfile.mkdtemp(dir=home.directory))
    os.chown(mine, USER, USER)
    ended = subprocess.run(
        ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", home.python, "-I", "-B", "-c",
         f"import sys; sys.path[:0] = [{str(home.library)!r}]; import user_driver; user_driver.main()", str(mine)],
        cwd="/", env={"HOME": str(mine), "PATH": os.environ["PATH"]}, timeout=LIMIT, check=False,
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)

    assert told["first"] == [0, f"{USER}\n", True]
    assert told["failed"] is True
    assert told["stack"] == 3
    assert told["closed"] == ["17", "16"]
    work = mine / "work"
    assert told["shown"] == [f"{work}/moved", "sub", "y", "old", "more", "1"]
    assert told["changes"] == ["added", "deleted", "modified"]
    assert told["committed"] == ["moved", "old", "sub", "y"]
    assert told["undone"] == ["dir", "old", "sub"]
    assert told["sound"] is True
