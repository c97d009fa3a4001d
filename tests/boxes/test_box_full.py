"""No room in the store for a commit: nothing is merged, the steps stay, and it works when there is."""

import os
from pathlib import Path

import pytest

import takeback
from takeback.errors import ResourceUnreachable
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
            assert tb.recovered == ()
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
