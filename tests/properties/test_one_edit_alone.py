"""Random edits of regions of one file, taken out with merge, taken back plainly and brought back in any order: the text
is always the one that the edits in force give, as if the others had never been made."""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

import takeback

REGIONS = 5
ENGINES = {"write": 30, "yaml": 12, "json": 12, "config": 12, "command": 4, "watch": 6, "box": 3, "mixed": 12}


class Made(NamedTuple):
    id: str
    region: int
    order: int


class Text:
    """Lines, walls between the regions; no newline at the end."""

    name = "file.txt"
    last = ""

    def whole(self, values: list[int]) -> str:
        text = "".join(f"-- wall {n}\n{self._region(n, value)}" for n, value in enumerate(values))
        return f"{text}-- end{self.last}"

    def _region(self, number: int, value: int) -> str:
        return f"region {number} is {value}\n" * (1 + value % 3) if value else ""


class Yaml(Text):
    name = "file.yaml"

    def whole(self, values: list[int]) -> str:
        return "".join(f"# region {n}\nk{n}:\n  value: {value}\n" for n, value in enumerate(values))


class Json(Text):
    name = "file.json"

    def whole(self, values: list[int]) -> str:
        body = ",\n".join(f'  "k{n}": {{"value": {value}}}' for n, value in enumerate(values))
        return f"{{\n{body}\n}}\n"


LAYOUTS: dict[str, Callable[[], Text]] = {"yaml": Yaml, "json": Json, "config": Yaml, "mixed": Yaml}


class Scene:
    def __init__(self, room: Path, engine: str, dice: random.Random) -> None:
        self.tb = takeback.open(str(room / "store"))
        self.engine = engine
        self.dice = dice
        self.layout = LAYOUTS.get(engine, Text)()
        (room / "tree").mkdir()
        self.file = room / "tree" / self.layout.name
        self.start = [n + 1 for n in range(REGIONS)]
        self.file.write_text(self.layout.whole(self.start))
        self.made: list[Made] = []
        self.values: dict[str, int] = {}
        self.undone: dict[str, int] = {}  # by effect: when it was taken back
        self.clock = 0

    def expected(self, without: str = "", and_with: str = "") -> list[int]:
        values = list(self.start)
        for one in self.made:
            if (one.id not in self.undone or one.id == and_with) and one.id != without:
                values[one.region] = self.values[one.id]
        return values

    def edit(self) -> None:
        region, value = self.dice.randrange(REGIONS), 100 + len(self.made)
        values = self.expected()
        values[region] = value
        engine = self.dice.choice(["write", "config", "watch"]) if self.engine == "mixed" else self.engine
        id = self._carried_out(engine, region, value, self.layout.whole(values))
        self.clock += 1
        self.made.append(Made(id, region, self.clock))
        self.values[id] = value

    def _carried_out(self, engine: str, region: int, value: int, text: str) -> str:
        with self.tb.run(f"edit {len(self.made)}", agent=self.dice.choice(["one", "other"])) as run:
            if engine == "config":
                effect = run.edit_config(self.file, {f"/k{region}/value": value})
            elif engine == "watch":
                with run.watch(self.file.parent) as watched:
                    self.file.write_text(text)
                effect = watched.effect
            elif engine in ("command", "box"):
                line = ["/bin/sh", "-c", 'printf %s "$1" > "$2"', "sh", text, str(self.file)]
                if engine == "command":
                    effect = run.command(line, cwd=str(self.file.parent)).effect
                else:
                    with run.sandbox(cwd=str(self.file.parent)) as box:
                        box.run(line)
                        effect = box.commit().effect
            else:
                effect = run.write(self.file, text)
        assert effect is not None
        return effect.id

    def standing_over(self, effect: str) -> list[Made]:
        place = next(one.order for one in self.made if one.id == effect)
        return [one for one in self.made if one.order > place and one.id not in self.undone]

    def take_back(self, merge: bool) -> None:
        done = [one for one in self.made if one.id not in self.undone]
        if not done:
            return
        one = self.dice.choice(done)
        over = self.standing_over(one.id)
        then = self.expected(without=one.id)
        stacked = any(other.region == one.region for other in over)
        self._try(
            lambda: self.tb.undo(self._whole(one.id), on_conflict="merge" if merge else "refuse"),
            then,
            must=not stacked if merge else not over,
        )
        if self.tb.effect(one.id).state is takeback.State.UNDONE:
            self.clock += 1
            self.undone[one.id] = self.clock

    def _whole(self, effect: str) -> list[str]:
        """The commit of a box is two effects."""
        return [effect, *(one.id for one in self.tb.effects() if effect in one.needs and one.state == "done")]

    def bring_back(self, merge: bool) -> None:
        if not self.undone:
            return
        id = self.dice.choice(list(self.undone))
        one = next(each for each in self.made if each.id == id)
        in_region = [each for each in self.standing_over(id) if each.region == one.region]
        then = self.expected(and_with=id)
        # Without merge it may be refused: what was taken back exactly since is no merge.
        must = merge and not in_region and not self._covers_undone(one)
        self._try(lambda: self.tb.redo(id, on_conflict="merge" if merge else "refuse"), then, must)
        if self.tb.effect(id).state is takeback.State.DONE:
            del self.undone[id]

    def _covers_undone(self, one: Made) -> bool:
        """Something of the same region was taken back too, so that the region is not as this one found it."""
        return any(each.region == one.region and each.id in self.undone for each in self.made if each != one)

    def _try(self, work: Callable[[], takeback.UndoResult], then: list[int], must: bool) -> None:
        before = self.file.read_text()
        result, refusal = None, None
        try:
            result = work()
        except takeback.Refused as error:
            refusal = error
        if result is None:
            assert not must, refusal
            assert self.file.read_text() == before
            return
        assert result.outcome == "done"
        changed = any(one.outcome == "undone" for one in result.targets)
        assert self.file.read_text() == (self.layout.whole(then) if changed else before)


@pytest.mark.sampled(14)
@pytest.mark.parametrize(
    ("engine", "seed"), [(engine, seed) for engine, seeds in ENGINES.items() for seed in range(seeds)]
)
def test_finding_16_the_text_is_always_that_of_the_edits_in_force(
    tmp_path: Path, engine: str, seed: int
) -> None:
    dice = random.Random(f"{engine} {seed}")
    scene = Scene(tmp_path, engine, dice)
    with scene.tb:
        for _ in range(dice.randrange(2, 6)):
            scene.edit()
        for _ in range(12):
            what = dice.choice(["edit", "merge", "merge", "plain", "plain", "redo", "redo with merge"])
            if what == "edit":
                scene.edit()
            elif what in ("merge", "plain"):
                scene.take_back(merge=what == "merge")
            else:
                with suppress(takeback.Blocked):
                    scene.bring_back(merge=what == "redo with merge")
