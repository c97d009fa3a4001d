"""Random sessions: whatever is run, failed, taken back, brought back, branched and committed, a box shows what the same
commands leave in a plain directory."""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

import takeback
from takeback.api import Takeback
from takeback.runs.boxes.box import Box
from tests.world import World

pytestmark = pytest.mark.root

LOOK = "find . -mindepth 1 -printf '%p %y %m %l\\n' | sort; find . -type f | sort | xargs -r md5sum"
NAMES = ("a", "b", "c", "d/a", "d/b", "e/f/a", "e/f/b", "e/a", "d", "e", "e/f")


def line(chance: random.Random) -> str:
    one, other = chance.choice(NAMES), chance.choice(NAMES)
    return chance.choice(
        (
            f"mkdir -p $(dirname {one}) && echo {chance.random()} > {one}",
            f"mkdir -p {one} && echo {chance.random()} > {one}/x",
            f"rm -rf {one}",
            f"rm -rf {one}; mkdir -p {one}; echo {chance.random()} > {one}/y",
            f"mv -T {one} {other}",
            f"ln -sfn {one} {other}",
            f"chmod {chance.choice(('700', '755', '711', '600'))} {one}",
            f"echo {chance.random()} >> {one}",
            f"cp -a {one} {other}",
            f"find . -name {os.path.basename(one)} -delete",
        )
    )


class Model:
    """The same commands in a plain directory, with a copy of it for each step."""

    def __init__(self, place: Path, world: World) -> None:
        self.place = place
        self.steps: list[Path] = [place / "0"]
        place.mkdir()
        subprocess.run(["cp", "-a", str(world.root), str(self.steps[0])], check=True)
        self.made = 0

    def run(self, text: str) -> bool:
        """Whether it ended well; kept only then."""
        self.made += 1
        copy = self.place / str(self.made)
        subprocess.run(["cp", "-a", str(self.steps[-1]), str(copy)], check=True)
        ended = subprocess.run(["/bin/sh", "-c", text], cwd=copy, check=False, capture_output=True)
        self.steps.append(copy)
        if ended.returncode:
            self.steps.pop()
        return ended.returncode == 0

    def look(self) -> bytes:
        return subprocess.run(
            ["/bin/sh", "-c", LOOK], cwd=self.steps[-1], check=True, capture_output=True
        ).stdout


def session(tb: Takeback, world: World, place: Path, seed: int, length: int) -> int:
    """How many steps there were."""
    chance = random.Random(seed)
    for name in NAMES[:8]:
        (world / name).parent.mkdir(parents=True, exist_ok=True)
        (world / name).write_text(name)
    first = world.picture()
    model = Model(place, world)
    count = 0
    with tb.run(f"seed {seed}") as run, run.sandbox(cwd=world.root) as box:
        open_box: Box = box
        for _ in range(length):
            act = chance.random()
            if act < 0.78:
                text = line(chance)
                outcome = open_box.run(text)
                assert model.run(text) is outcome.ok, (seed, text, outcome.stderr)
                if outcome.ok and outcome.effect is None:
                    model.steps.pop()  # it changed nothing
                count += outcome.effect is not None
            elif act < 0.9 and len(model.steps) > 1:
                back = chance.randrange(1, min(6, len(model.steps)))
                open_box.undo(back)
                del model.steps[-back:]
            elif act < 0.95:
                known = open_box.branch()
                open_box.run("rm -rf *; echo other > other")  # the branch must not notice
                open_box.undo() if open_box.history()[-1].state == "done" else None
                known.close()
            else:
                open_box._upkeep.wait()  # pyright: ignore[reportPrivateUsage]
            assert open_box.run(LOOK).stdout == model.look(), seed
        before = open_box.run(LOOK).stdout
        merged = open_box.commit().effect
        seen = subprocess.run(["/bin/sh", "-c", LOOK], cwd=world.root, check=True, capture_output=True).stdout
        assert seen == before == open_box.run(LOOK).stdout, seed
        if merged:
            open_box.undo()
        assert world.picture() == first, seed
    shutil.rmtree(place)
    return count


@pytest.mark.parametrize("seed", [1])
def test_a_short_random_session(store: Path, world: World, tmp_path: Path, seed: int) -> None:
    with takeback.open(store) as tb:
        assert session(tb, world, tmp_path / "model", seed, 12) > 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 104))
def test_a_long_random_session(store: Path, world: World, tmp_path: Path, seed: int) -> None:
    with takeback.open(store) as tb:
        assert session(tb, world, tmp_path / "model", seed, 70) > 20
