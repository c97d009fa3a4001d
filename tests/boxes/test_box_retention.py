"""Layers stay as long as something could come back to them, and no longer."""

import json
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

import takeback
from takeback.api import Takeback
from takeback.storage.layers import Layers
from tests.damage import another_byte, rewrite_records
from tests.world import World

pytestmark = pytest.mark.root


def layers_of(store: Path, box: str) -> int:
    place = store / "layers" / box
    return len([one for one in os.scandir(place) if one.is_dir()]) if place.exists() else 0


def make_box(store: Path, world: World, *lines: str) -> str:
    with takeback.open(store) as tb, tb.run("builds") as run, run.sandbox(cwd=world.root) as box:
        for line in lines:
            assert box.run(line).effect
        return box.id


def shown(tb: Takeback, box: str) -> bytes:
    with tb.run("looks") as run, run.sandbox(box=box) as opened:
        return opened.run("ls; cat a").stdout


def test_nothing_is_swept_that_an_undo_needs(store: Path, world: World) -> None:
    box = make_box(store, world, "echo 1 > a", "echo 2 > a", "echo 3 > a")
    with takeback.open(store) as tb:
        tb.sweep(grace=0)
        assert layers_of(store, box) == 3
        with tb.run("undoes") as run, run.sandbox(box=box) as opened:
            opened.undo(2)
        tb.sweep(grace=0)
        assert shown(tb, box) == b"a\n1\n"
        tb.redo()
        assert shown(tb, box) == b"a\n3\n"


def test_what_lies_between_points_is_squashed_when_it_was_forgotten(store: Path, world: World) -> None:
    box = make_box(store, world, "head -c 100000 /dev/urandom > a", "echo b > b", "echo 3 > a", "rm b")
    with takeback.open(store) as tb:
        steps = [one.id for one in tb.effects() if not one.is_undo]
        tb.forget(steps[:3])
        assert tb.sweep(grace=0) > 90_000
        assert layers_of(store, box) == 2
        assert shown(tb, box) == b"a\n3\n"
        with tb.run("undoes") as run, run.sandbox(box=box) as opened:
            opened.undo()
            assert opened.run("ls; cat a").stdout == b"a\nb\n3\n"
        assert tb.verify().sound


def test_a_damaged_record_bars_a_sweep_until_it_is_forgotten(store: Path, world: World) -> None:
    box = make_box(store, world, "echo 1 > a")
    with takeback.open(store) as tb, tb.run("writes") as run:
        written = run.write(world.root / "file", "text")
        assert written
    rewrite_records(store, "kind = 'intent' AND effect = ?", (written.id,), another_byte)

    with takeback.open(store) as tb:
        with pytest.raises(takeback.RecordInvalid, match="layers it needs are unknown"):
            tb.sweep(grace=0)
        tb.forget(written.id)
        tb.sweep(grace=0)
        assert layers_of(store, box) == 1
        assert shown(tb, box) == b"a\nfile\n1\n"


def test_a_box_keeps_its_work_though_nothing_can_be_undone_any_more(store: Path, world: World) -> None:
    box = make_box(store, world, "echo 1 > a", "echo 2 > a")
    with takeback.open(store) as tb:
        tb.forget([one.id for one in tb.effects()])
        tb.sweep(grace=0)
        assert layers_of(store, box) == 1
        assert shown(tb, box) == b"a\n2\n"


def test_a_box_that_is_where_it_began_goes_when_it_is_forgotten(store: Path, world: World) -> None:
    box = make_box(store, world, "echo 1 > a")
    with takeback.open(store) as tb:
        with tb.run("commits") as run, run.sandbox(box=box) as opened:
            opened.commit()
            opened.undo(2)
        tb.sweep(grace=0)
        assert (store / "layers" / box).exists()
        tb.forget([one.id for one in tb.effects()])
        tb.sweep(grace=0)
        assert not (store / "layers" / box).exists()


def test_a_box_that_was_discarded_goes_with_its_layers_when_it_is_forgotten(
    store: Path, world: World
) -> None:
    box = make_box(store, world, "echo 1 > a", "echo 2 > a")
    with takeback.open(store) as tb:
        with tb.run("discards") as run, run.sandbox(box=box) as opened:
            opened.discard()
        tb.sweep(grace=0)
        assert layers_of(store, box) == 2
        tb.forget([one.id for one in tb.effects()])
        tb.sweep(grace=0)
        assert not (store / "layers" / box).exists()


def test_branches_of_a_run_that_failed_go_in_one_sweep_when_they_are_forgotten(
    store: Path, world: World
) -> None:
    with takeback.open(store) as tb:
        with pytest.raises(RuntimeError), tb.run("fails") as run, ExitStack() as boxes:
            box = boxes.enter_context(run.sandbox(cwd=world.root))
            for number in range(3):
                assert box.run(f"echo {number} > a").effect
                box = boxes.enter_context(box.branch())
            raise RuntimeError
        tb.sweep(grace=0)
        tb.redo()
        tb.undo([one for one in tb.effects(state="done") if not one.is_undo])
        tb.forget([one.id for one in tb.effects()])
        tb.sweep(grace=0)
    assert os.listdir(store / "layers") == []


def test_a_box_that_is_open_is_left_alone(store: Path, world: World) -> None:
    with takeback.open(store) as tb, tb.run("builds") as run, run.sandbox(cwd=world.root) as box:
        box.run("echo 1 > a")
        with takeback.open(store) as other:
            other.sweep(grace=0)
        assert box.run("cat a").stdout == b"1\n"


def test_a_branch_keeps_what_it_grew_from(store: Path, world: World) -> None:
    with takeback.open(store) as tb:
        with tb.run("builds") as run, run.sandbox(cwd=world.root) as box:
            box.run("echo 1 > a")
            with box.branch() as branch:
                branch.run("echo 2 > b")
            box.undo()
        tb.forget([one.id for one in tb.effects()])
        tb.sweep(grace=0)
        with tb.run("looks") as run, run.sandbox(box=branch.id) as opened:
            assert opened.run("cat a b").stdout == b"1\n2\n"


def test_what_a_killed_process_left_goes(store: Path, world: World) -> None:
    box = make_box(store, world, "echo 1 > a")
    left = store / "layers" / box / "left"
    (left / "0").mkdir(parents=True)
    (left / "layer.json").write_text(json.dumps({}))
    with takeback.open(store) as tb:
        tb.sweep(grace=0)
    assert not left.exists() and layers_of(store, box) == 1
    half = store / "layers" / "half"
    half.mkdir()
    with takeback.open(store) as tb:
        tb.sweep(grace=600)
        assert half.exists()
        tb.sweep(grace=0)
    assert not half.exists()
    assert Layers(str(store / "layers")).boxes() == [box]


def test_the_variables_of_a_box_are_in_no_record_and_go_when_they_are_forgotten(
    store: Path, world: World
) -> None:
    (world.root / "secret").write_text("hunter2hunter2")
    with takeback.open(store) as tb, tb.run("builds") as run, run.sandbox(cwd=world.root) as box:
        first = box.run(f"cd {world.root}; export TOKEN=$(cat secret)").effect
        assert first and first.remedy
        (digest,) = first.remedy.blobs
        records = json.dumps([record.body for record in tb.store.journal.records()])
        assert "hunter2" not in records
        heads = [path.read_text() for path in (store / "layers").rglob("HEAD")]
        assert heads and "hunter2" not in "".join(heads)
        box.undo()
        assert box.run("echo ${TOKEN-gone}").stdout == b"gone\n"
        tb.redo()
        tb.sweep(grace=0)
        assert box.run("echo $TOKEN").stdout == b"hunter2hunter2\n"
        box.run("unset TOKEN; echo x > x")
    with takeback.open(store) as tb:
        tb.forget([one.id for one in tb.effects()])
        tb.sweep(grace=0)
        assert not tb.store.blobs.has(digest)
        assert tb.verify(read_data=True).sound
        with tb.run("goes on") as run, run.sandbox(box=box.id) as again:
            assert again.run("ls; echo ${TOKEN-gone}").stdout == b"secret\nx\ngone\n"


def test_the_variables_of_where_a_box_stands_stay_when_its_steps_are_forgotten(
    store: Path, world: World
) -> None:
    box = make_box(store, world, "export TOKEN=kept; echo 1 > a")
    with takeback.open(store) as tb:
        tb.forget([one.id for one in tb.effects()])
        tb.sweep(grace=0)
        with tb.run("goes on") as run, run.sandbox(box=box) as again:
            assert again.run("echo $TOKEN").stdout == b"kept\n"
