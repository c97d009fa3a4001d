"""A rehearsal of an ordinary user, in a user namespace."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.scenes import USER, Home, make_home

pytestmark = [pytest.mark.able("user namespaces"), pytest.mark.root]

LIMIT = 240


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    made = make_home()
    shutil.copy(Path(__file__).parent / "user_driver.py", made.library)
    (made.library / "user_driver.py").chmod(0o644)
    try:
        yield made
    finally:
        shutil.rmtree(made.directory)


def test_a_user_rehearses_his_effects_and_a_plan(home: Home) -> None:
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

    assert [proof for _, proof, _ in told["effects"]] == ["works"] * len(told["effects"]), json.dumps(
        told, indent=1
    )
    assert [proof for _, proof, _ in told["plan"]] == ["works", "works"], json.dumps(told, indent=1)
    assert told["same"] is True
    assert told["states"] == ["done"]
    assert told["sound"] is True
    assert told["left"] == []
