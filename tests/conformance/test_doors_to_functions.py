"""The door to functions keeps the laws of doors."""

from pathlib import Path

import pytest

from takeback.testing.door_suite import DoorSuite
from tests.doors.calls import CallDoor


class TestCalls(DoorSuite):
    @pytest.fixture
    def scene(self, swift_path: Path) -> CallDoor:
        return CallDoor(swift_path)
