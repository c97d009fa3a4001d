from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback
from takeback.api import Takeback
from takeback.runs.boxes.box import Box
from takeback.runs.run import Run
from tests.world import World


@pytest.fixture
def tb(store: Path) -> Iterator[Takeback]:
    with takeback.open(store) as opened:
        yield opened


@pytest.fixture
def run(tb: Takeback) -> Iterator[Run]:
    with tb.run("a build") as opened:
        yield opened


@pytest.fixture
def box(run: Run, world: World) -> Iterator[Box]:
    """Over the machine's own files, standing in an empty directory."""
    with run.sandbox(cwd=world.root) as opened:
        yield opened
