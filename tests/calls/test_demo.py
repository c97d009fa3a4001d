"""`make demo-runs` tells the truth: it ends with 0 only if every claim that it printed was found to hold."""

import subprocess
import sys

import pytest

from examples.office import ROOT


def told(*options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo_runs", *options],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "✘" not in done.stdout
    return done.stdout


def test_every_claim_of_the_four_scenarios_holds() -> None:
    assert told("--kills", "0").count("✔") >= 14


@pytest.mark.slow
def test_every_claim_of_the_story_holds() -> None:
    assert told().count("✔") >= 18
