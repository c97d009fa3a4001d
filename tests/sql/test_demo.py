"""`make demo-sql` tells the truth: it ends with 0 only if every claim that it printed was found to hold."""

import subprocess
import sys

import pytest

from tests.docs.pages import ROOT
from tests.servers.postgres import Postgres
from tests.servers.process import LIMIT, PASSWORD


@pytest.mark.slow
def test_every_claim_of_the_story_holds(postgres: Postgres) -> None:
    """The fixture is asked for only so that this is skipped where there is no server."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo_sql"],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=3 * LIMIT,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "✘" not in done.stdout and done.stdout.count("✔") >= 15
    assert PASSWORD not in done.stdout
