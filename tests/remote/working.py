"""A worker as users start one, over `tests.remote.booking`."""

import subprocess
from collections.abc import Sequence

from examples.office import ROOT
from tests.e2e.conftest import COMMAND, surroundings


def worker(store: str, before: Sequence[str] = (), **variables: str) -> "subprocess.Popen[str]":
    """One that has begun to work. `before`: what it is started by, for example unshare."""
    started = subprocess.Popen(
        [*before, *COMMAND, "--store", store, "worker", "tests.remote.booking"], cwd=ROOT, text=True,
        env=surroundings() | variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert started.stdout is not None
    assert started.stdout.readline().startswith("Working on")
    return started
