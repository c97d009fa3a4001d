"""Every door to files keeps the laws of doors."""

from pathlib import Path

import pytest

from takeback.testing.door_suite import DoorSuite
from tests.doors.files import PROGRAMS, VERBS, FileDoor


class TestVerbs(DoorSuite):
    @pytest.fixture(params=VERBS, ids=lambda story: story.door)
    def scene(self, request: pytest.FixtureRequest, swift_path: Path) -> FileDoor:
        return FileDoor(swift_path, request.param)


class TestPrograms(DoorSuite):
    @pytest.fixture(params=PROGRAMS, ids=lambda story: story.door)
    def scene(self, request: pytest.FixtureRequest, tmp_path: Path) -> FileDoor:
        return FileDoor(tmp_path, request.param)
