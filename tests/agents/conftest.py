"""Where a scene is played, and that nothing of it runs on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.stage import Place, clear, set_out


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = set_out(tmp_path)
    yield made
    clear(made.home)
