"""One command line in one tree, run three ways: directly, in the sandbox and merged, in place and watched."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import takeback
from tests.trees.scenes import VARIABLES

ENOUGH = 120  # seconds; whatever waits longer hangs


def python() -> str:
    """One that every user may start; the interpreter of the tests may lie below someone's home."""
    return "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else os.path.realpath(sys.executable)


def variables() -> dict[str, str]:
    return VARIABLES | {"PYTHON": python(), "PYTHONDONTWRITEBYTECODE": "1"}


class Ran(NamedTuple):
    exit_code: int
    said: bytes
    effect: Any = None  # None if nothing changed


def shell(line: str) -> list[str]:
    return ["/bin/sh", "-c", line]


def directly(argv: Sequence[str], root: Path) -> Ran:
    ended = subprocess.run(
        argv,
        cwd=root,
        env=variables(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=ENOUGH,
        check=False,
    )
    # As a shell tells it.
    return Ran(ended.returncode if ended.returncode >= 0 else 128 - ended.returncode, ended.stdout)


def sandboxed(run: takeback.Run, argv: Sequence[str], root: Path, on_failure: str = "leave") -> Ran:
    outcome = run.command(argv, cwd=str(root), env=variables(), on_failure=on_failure, timeout=ENOUGH)
    # Nobody else was at work, so there is nothing to be in conflict with.
    assert not outcome.conflicts, [(one.resource, one.detail) for one in outcome.conflicts[:5]]
    return Ran(outcome.exit_code, outcome.stdout, outcome.effect)


def in_place(run: takeback.Run, argv: Sequence[str], root: Path) -> Ran:
    with run.watch(str(root), any_root=True) as watch:
        ended = directly(argv, root)
    return ended._replace(effect=watch.effect)
