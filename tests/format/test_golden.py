"""Stores made by earlier versions stay readable and undoable for ever."""

import json
import tarfile
from collections.abc import Iterator

import pytest

import takeback
from tests.format.golden import ARCHIVE, PLACE, clear


@pytest.fixture
def golden() -> Iterator[takeback.Takeback]:
    clear()
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(PLACE, filter="fully_trusted")  # made by us, from this repository
    with takeback.open(PLACE / "store") as tb:
        yield tb
    clear()


@pytest.mark.root
class TestGoldenStore:
    """As root, because the captured files belong to root."""

    pytestmark = pytest.mark.xdist_group("golden")

    def test_it_is_listed(self, golden: takeback.Takeback) -> None:
        kinds = [(effect.change.kind, effect.state.value) for effect in golden.effects()]
        assert kinds == [
            ("write", "done"),
            ("edit", "done"),
            ("delete", "done"),
            ("move", "done"),
            ("mkdir", "done"),
            ("undo", "undone"),
            ("undo", "done"),
            ("write", "undone"),
            ("undo", "done"),
        ]
        assert [info.name for info in golden.runs()][:2] == ["first", "second"]
        assert json.loads(golden.checkpoints()[0].state) == {"step": 2}

    def test_it_is_sound(self, golden: takeback.Takeback) -> None:
        assert golden.verify(read_data=True).findings == ()

    def test_everything_in_it_can_be_undone(self, golden: takeback.Takeback) -> None:
        world = PLACE / "world"
        golden.undo(golden.find_run("second"))
        golden.undo(list(golden.effects(run="first")))

        assert (world / "notes").read_text() == "before\n"
        assert (world / "conf.toml").read_text() == "# mine\nport = 80  # web\n"
        assert (world / "tree" / "twin").samefile(world / "tree" / "deep" / "file")
        assert (world / "tree" / "big").read_bytes() == bytes(range(256)) * 4000
        assert not (world / "made").exists()
