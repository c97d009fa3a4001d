"""The filter that spares tests the wait for the disk."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NO_FILE = 999_999  # no process has that many open: a real sync of it fails
ASK = f"""
import ctypes, os, sys
from tests.unsynced import answer_at_once
assert answer_at_once()
for sync in (os.fsync, os.fdatasync):
    sync({NO_FILE})
assert ctypes.CDLL(None).syncfs({NO_FILE}) == 0
os.sync()
open(sys.argv[1], "w").write("written")
os.execv(sys.executable, [sys.executable, "-c", "import os; os.fsync({NO_FILE}); print('ended well')"])
"""


def test_a_sync_is_answered_at_once_also_in_the_programs_that_are_started(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", ASK, str(tmp_path / "file")],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (said.returncode, said.stdout, said.stderr) == (0, "ended well\n", "")
    assert (tmp_path / "file").read_text() == "written"
