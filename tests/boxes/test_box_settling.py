"""When a step is on the disk, and what becomes of one that the machine did not survive."""

from pathlib import Path

import pytest

import takeback
from takeback.runs.boxes.box import Box
from takeback.storage import layers as layers_on_disk
from takeback.storage.layers import read_last, write_last
from tests.world import World

pytestmark = pytest.mark.root

LARGE = "head -c 3000000 /dev/zero > {}"


def nothing_settles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is too slow for what comes."""
    monkeypatch.setattr(layers_on_disk.Layers, "settle", lambda self, box: None)


def test_what_is_small_is_on_the_disk_at_once(box: Box) -> None:
    assert box.run("echo small > small").durable
    assert not box._layers.unsettled(box.id)


def test_what_is_large_is_on_the_disk_after_settling(box: Box) -> None:
    assert not box.run(LARGE.format("large")).durable
    box.settle()
    assert not box._layers.unsettled(box.id)
    assert box.run("wc -c < large").stdout.split() == [b"3000000"]


def test_many_files_are_large_too(box: Box) -> None:
    assert not box.run("for i in $(seq 100); do echo > $i; done").durable


def test_closing_a_box_settles_it(store: Path, world: World) -> None:
    with takeback.open(store) as tb, tb.run("first") as run:
        with run.sandbox(cwd=world.root) as box:
            box.run(LARGE.format("large"))
        assert not run.sandbox(box=box.id)._layers.unsettled(box.id)


def test_steps_that_the_machine_did_not_survive_are_taken_back(
    store: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_settles(monkeypatch)
    with takeback.open(store) as tb, tb.run("first") as run, run.sandbox(cwd=world.root) as box:
        box.run("echo kept > kept")
        box.run(LARGE.format("one"))
        box.run("echo two > two")  # small, but it stands on what is lost
    monkeypatch.setattr(layers_on_disk, "boot_id", lambda: "another")
    with takeback.open(store) as tb, tb.run("second") as run, run.sandbox(box=box.id) as again:
        assert again.lost == 2
        assert again.run("ls").stdout == b"kept\n"
        assert [step.state for step in again.history()] == ["done", "undone", "undone"]
        assert tb.verify().sound
        with pytest.raises(takeback.TakebackError, match="lost the layers"):
            tb.redo(again.history()[1].effect)


def test_what_the_machine_did_survive_is_kept(
    store: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with takeback.open(store) as tb, tb.run("first") as run, run.sandbox(cwd=world.root) as box:
        box.run(LARGE.format("one"))
    monkeypatch.setattr(layers_on_disk, "boot_id", lambda: "another")
    with takeback.open(store) as tb, tb.run("second") as run, run.sandbox(box=box.id) as again:
        assert again.lost == 0 and again.run("ls").stdout == b"one\n"


def test_whoever_opens_the_box_of_a_killed_process_settles_it(
    store: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        nothing_settles(patch)
        with takeback.open(store) as tb, tb.run("first") as run, run.sandbox(cwd=world.root) as box:
            box.run(LARGE.format("one"))
            assert box._layers.unsettled(box.id)
    with takeback.open(store) as tb, tb.run("second") as run, run.sandbox(box=box.id) as again:
        again.settle()
        assert not again._layers.unsettled(box.id)


def test_what_is_not_on_the_disk_is_never_squashed_into_what_is(
    store: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_settles(monkeypatch)
    with takeback.open(store) as tb, tb.run("first") as run, run.sandbox(cwd=world.root) as box:
        box.run(LARGE.format("one"))
        steps = [box.run(f"echo {number} > {number}").effect for number in range(3)]
    monkeypatch.setattr(layers_on_disk, "boot_id", lambda: "another")
    with takeback.open(store) as tb:
        tb.forget([effect.id for effect in steps if effect])
        tb.sweep()
        with tb.run("second") as run, pytest.raises(takeback.TakebackError, match="not there any more"):
            run.sandbox(box=box.id)


def test_a_disk_that_fails_in_the_background_is_told_of_with_the_next_command(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str) -> None:
        raise layers_on_disk.disk.unreachable(path, "synced", OSError(5, "Input/output error"))

    monkeypatch.setattr(layers_on_disk, "sync_filesystem", fail)
    box.run(LARGE.format("large"))
    with pytest.raises(takeback.TakebackError, match="Input/output error"):
        box.settle()


def test_a_line_is_written_over_what_was_cut_off(tmp_path: Path) -> None:
    path = str(tmp_path / "HEAD")
    write_last(path, {"n": 1})
    length = (tmp_path / "HEAD").stat().st_size
    with open(path, "r+b") as file:
        file.seek(8)
        file.write(b'{"n":9')  # killed in the middle of it
    assert read_last(path) == {"n": 1}
    for number in range(2, 4000):  # more than once around
        write_last(path, {"n": number, "x": "y" * 40})
        assert number % 500 or read_last(path)["n"] == number
    assert read_last(path)["n"] == 3999
    assert (tmp_path / "HEAD").stat().st_size == length
    write_last(path, {"x": "y" * 2 * length})
    assert len(read_last(path)["x"]) == 2 * length
