"""Where small worlds live."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def quick_place() -> Iterator[Path]:
    """In memory where possible: a sweep syncs thousands of times, and a kill is not a power cut."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as place:
        yield Path(place)
