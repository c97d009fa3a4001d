"""`tests.calls.payer` as a process of its own."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from examples.office import ROOT


def payer(store: Path, action: str, key: str, *before: str, **variables: str) -> "subprocess.Popen[str]":
    """`before`: what it is started by, for example strace."""
    # The interpreter itself: it is what is stopped and killed.
    words: Sequence[str] = (*before, sys.executable, "-m", "tests.calls.payer", str(store), action, key)
    return subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables}
    )


def said(process: "subprocess.Popen[str]") -> str:
    return process.communicate(timeout=120)[0].strip()
