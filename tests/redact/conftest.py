"""A place of its own for each test, and nobody above it."""

import os
from pathlib import Path

import pytest

from takeback.runs import agent_above


def _nobody(*_: object) -> None:
    """No agent started the tests, whoever did."""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", os.fspath(tmp_path / "state"))
    monkeypatch.setattr(agent_above, "agent_above", _nobody)
