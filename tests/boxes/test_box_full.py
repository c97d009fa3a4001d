"""No room in the store: nothing is merged or made, the steps stay, it is said, and it works when there is."""

import os
from pathlib import Path

import pytest

import takeback
from takeback.api import opened_of
from takeback.api.upkeep import needs_recovery
from takeback.errors import Misuse, ResourceUnreachable
from takeback.runs.run import core_of
from takeback.sandbox.layer_owner import _have_done
from takeback.storage.layers import Layers
from tests.crash.mounts import fill, tmpfs
from tests.world import World

pytestmark = pytest.mark.root


@pytest.mark.parametrize("left", [0, 4096, 200_000, 6_200_000])
def test_a_commit_without_room_leaves_the_steps(tmp_path: Path, world: World, left: int) -> None:
    with tmpfs(tmp_path / "small", "size=40m") as place:
        with (
            takeback.open(place / "store") as tb,
            tb.run("builds") as run,
            run.sandbox(cwd=world.root) as box,
        ):
            box.run("head -c 6200000 /dev/urandom > a; echo b > b")
            box.run("echo c > c")
            filler = fill(place, leave=left)
            with pytest.raises(ResourceUnreachable) as full:
                box.commit()
            assert full.value.hint and os.listdir(world.root) == []
        with takeback.open(place / "store") as tb:
            assert not needs_recovery(opened_of(tb))
        filler.unlink()
        with takeback.open(place / "store") as tb:
            with tb.run("goes on") as run, run.sandbox(box=box.id) as box:
                assert [step.state for step in box.history()] == ["done", "done"]
                assert box.run("ls").stdout == b"a\nb\nc\n"
                box.commit()
                assert sorted(os.listdir(world.root)) == ["a", "b", "c"]
                box.undo()
                assert os.listdir(world.root) == []
            assert tb.verify(read_data=True).sound


def test_what_is_held_can_be_discarded_on_a_full_disk_and_not_applied(tmp_path: Path, world: World) -> None:
    with tmpfs(tmp_path / "small", "size=40m") as place:
        with takeback.open(place / "store") as tb, tb.run("asks") as run:
            held = run.command("echo 1 > a", cwd=world.root, hold=True).effect
        assert held
        fill(place, leave=0)
        with takeback.open(place / "store") as tb:
            with pytest.raises(ResourceUnreachable, match="is full") as full:
                tb.apply(held)
            assert "Free some space" in full.value.hint
            tb.discard(held)
        assert os.listdir(world.root) == []


def test_what_force_cannot_help_is_not_told_to_be_forced(tmp_path: Path, store: Path, world: World) -> None:
    (world / "sub").mkdir()
    with takeback.open(store) as tb:
        with tb.run("asks") as run:
            held = run.command("echo 1 > sub/a", cwd=world.root, hold=True).effect
        assert held
        os.rename(world / "sub", world / "real")
        os.symlink("real", world / "sub")
        for force in (False, True):
            with pytest.raises(takeback.Conflict, match="sub is now a symbolic link") as told:
                tb.apply(held, force=force)
            assert f"Put the directory {world / 'sub'} back" in told.value.hint
            assert ("--force" in told.value.hint) == force  # what was asked for, once the directory is back
        os.unlink(world / "sub")
        os.rename(world / "real", world / "sub")
        tb.apply(held)
        assert (world / "sub" / "a").read_text() == "1\n"


def test_what_is_in_the_way_of_a_forced_keep_is_to_be_moved_away(store: Path, world: World) -> None:
    (world / "d").mkdir()
    (world / "d" / "a").write_text("a")
    with takeback.open(store) as tb:
        with tb.run("asks") as run:
            held = run.command("rm -r d", cwd=world.root, hold=True).effect
        assert held
        (world / "d" / "mine").write_text("mine")
        with pytest.raises(takeback.Conflict, match=r"holds .*/d/mine") as told:
            tb.apply(held, force=True)
        assert told.value.effect == held.id
        assert f"takeback apply --force {held.id[:8]}" in told.value.hint
        os.rename(world / "d" / "mine", world / "mine")
        tb.apply(held)
        assert os.listdir(world.root) == ["mine"]


def test_a_step_that_could_not_be_told_of_leaves_no_layer(
    store: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> bool:
        raise ResourceUnreachable("no room", hint="make some")

    with takeback.open(store) as tb, tb.run("builds") as run, run.sandbox(cwd=world.root) as box:
        box.run("echo 1 > a")
        place = store / "layers" / box.id
        before = sorted(os.listdir(place))
        with monkeypatch.context() as patched:
            patched.setattr(Layers, "sync_if_small", fails)
            with pytest.raises(ResourceUnreachable, match="no room"):
                box.run("echo 2 > a")
        assert sorted(os.listdir(place)) == before
        assert box.run("cat a").stdout == b"1\n"


def test_a_box_of_a_run_that_has_ended_starts_nothing(store: Path, world: World) -> None:
    with takeback.open(store) as tb:
        run = tb.run("short")
        with run.sandbox(cwd=world.root) as box:
            run.close()
            with pytest.raises(Misuse, match="has ended"):
                box.run("true")
            assert core_of(run).rooms is None


@pytest.mark.able("user namespaces")
def test_what_failed_in_a_process_of_its_own_is_told_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as told:
        _have_done({"squash": [str(tmp_path / "none")] * 2, "into": str(tmp_path / "made")}, "/")
    assert os.fsdecode(told.value.filename).startswith(str(tmp_path / "none"))
