"""The laws of adapters, for boxes."""

import os
from pathlib import Path
from typing import Any

import pytest

from takeback.adapters.box import BoxAdapter, box_change
from takeback.model.box import Link, Point, box_resource, point_from_json, point_to_json
from takeback.model.change import Change, OnConflict
from takeback.storage.layers import Layers
from takeback.testing import AdapterSuite
from takeback.testing.adapter_suite import Desk
from tests.memory import MemoryBlobs

BOX = "b" * 20
START = Point("start", "", "/srv")
THERE = Point("there", f"{BOX}/one", "/srv/a b\udcff")
ELSEWHERE = Point("elsewhere", "", "/")


class BoxScene:
    """A box with one layer that nobody has moved to yet."""

    def __init__(self, place: Path) -> None:
        self.blobs = MemoryBlobs()
        self.path = str(place / "layers")
        self.layers = Layers(self.path)
        os.mkdir(self.path)
        self.layers.make(BOX, {"base": "/"}, START)
        os.mkdir(self.layers.place_of(THERE.layer))
        self.layers.add(Link(THERE.layer, "", 1))

    def adapter(self) -> BoxAdapter:
        return BoxAdapter(Layers(self.path))

    def change(self) -> Change:
        return box_change("run", box_resource(BOX), "touch x", START, THERE, {})

    def world(self) -> Any:
        names = {name for name in os.listdir(os.path.join(self.path, BOX)) if name not in ("moving",)}
        return Layers(self.path).head(BOX), names

    def reset(self) -> None:
        now = self.layers.head(BOX)
        assert self.layers.move(BOX, now, START)

    def disturb(self) -> None:
        now = self.layers.head(BOX)
        assert self.layers.move(BOX, now, ELSEWHERE)


class TestBoxAdapter(AdapterSuite):
    @pytest.fixture
    def scene(self, tmp_path: Path) -> BoxScene:
        return BoxScene(tmp_path)


def test_force_goes_back_from_wherever_the_box_stands_and_can_be_brought_back(tmp_path: Path) -> None:
    scene = BoxScene(tmp_path)
    effect = Desk(scene.adapter()).do(scene.change())
    scene.disturb()

    undo = Desk(scene.adapter()).undo(effect, OnConflict.FORCE)
    assert scene.layers.head(BOX) == START

    Desk(scene.adapter()).undo(undo)
    assert scene.layers.head(BOX) == ELSEWHERE


def test_a_point_is_the_same_after_it_was_written_down() -> None:
    assert point_from_json(point_to_json(THERE)) == THERE
    assert point_from_json(point_to_json(START)) == START
