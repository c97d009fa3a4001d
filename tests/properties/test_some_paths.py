"""Random effects on several paths; some of these paths undone, others later, the rest, each undo redone, in any order
and between later effects: the files are those of a plain dictionary, and so is what the journal says stands."""

import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import takeback
from takeback.engine.portion import undone_paths

NAMES = ("a", "b", "c", "d/e", "d/f", "d/g/h")
ENGINES = {"write": 25, "watch": 15, "command": 5, "box": 3, "mixed": 12}
Content = str | None


class Made(NamedTuple):
    """An effect: by path what it found and what it left; and paths that go together."""

    id: str
    order: int
    paths: dict[str, tuple[Content, Content]]
    bonds: tuple[frozenset[str], ...]


class Taken(NamedTuple):
    """An undo of some paths of an effect."""

    id: str
    order: int
    effect: str
    names: frozenset[str]


class Model:
    """What is in each file, which effect stands where, and which undo took it."""

    def __init__(self) -> None:
        self.files: dict[str, Content] = {name: f"start of {name}" for name in NAMES[:4]}
        self.made: list[Made] = []
        self.undos: list[Taken] = []
        self.holder: dict[tuple[str, str], str] = {}  # effect and path: the undo that took it
        self.clock = 0

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def standing(self, one: Made) -> set[str]:
        return {name for name in one.paths if (one.id, name) not in self.holder}

    def covered(self, names: set[str] | frozenset[str], order: int) -> bool:
        """Whether a later effect stands on one of these paths."""
        return any(one.order > order and self.standing(one) & names for one in self.made)

    def closed(self, one: Made, names: set[str]) -> set[str]:
        for bond in one.bonds:
            if bond & names:
                names = names | (bond & self.standing(one))
        return names


class Scene:
    def __init__(self, room: Path, engine: str, dice: random.Random) -> None:
        self.tb = takeback.open(str(room / "store"))
        self.engine = engine
        self.dice = dice
        self.model = Model()
        self.root = room / "tree"
        (self.root / "d/g").mkdir(parents=True)
        (self.root / "d/stays").write_text("so that its directory does")
        (self.root / "d/g/stays").write_text("so that its directory does")
        for name, text in self.model.files.items():
            (self.root / name).write_text(str(text))

    def change(self) -> None:
        model, number = self.model, len(self.model.made)
        engine = self.dice.choice(["write", "watch"]) if self.engine == "mixed" else self.engine
        names = self.dice.sample(NAMES, self.dice.randrange(2, len(NAMES)))
        new: dict[str, Content] = {name: f"{number} in {name}" for name in names}
        bonds: tuple[frozenset[str], ...] = ()
        if engine != "write":
            gone = [name for name in names if model.files.get(name) and self.dice.random() < 0.3]
            new |= dict.fromkeys(gone)
            start, to = names[0], names[1]
            if model.files.get(start) and not model.files.get(to) and self.dice.random() < 0.6:
                new |= {start: None, to: model.files[start]}
                bonds = (frozenset((start, to)),)
        paths = {name: (model.files.get(name), text) for name, text in new.items()}
        paths = {name: pair for name, pair in paths.items() if pair[0] != pair[1]}
        if len(paths) < 2:
            return
        id = self._carried_out(engine, {name: after for name, (_, after) in paths.items()})
        model.files |= {name: after for name, (_, after) in paths.items()}
        model.made.append(Made(id, model.tick(), paths, bonds))

    def _carried_out(self, engine: str, new: dict[str, Content]) -> str:
        words = [word for name, text in new.items() for word in (name, text or "")]
        script = (
            'while [ $# -gt 0 ]; do if [ "$2" ]; then printf %s "$2" > "$1"; else rm "$1"; fi; shift 2; done'
        )
        line = ["/bin/sh", "-c", script, "sh", *words]
        with self.tb.run(f"change {len(self.model.made)}") as run:
            if engine == "write":
                effect = run.write_all({self.root / name: str(text) for name, text in new.items()})
            elif engine == "watch":
                with run.watch(self.root) as watched:
                    subprocess.run(line, cwd=self.root, check=True)
                effect = watched.effect
            elif engine == "command":
                effect = run.command(line, cwd=str(self.root)).effect
            else:
                with run.sandbox(cwd=str(self.root)) as box:
                    box.run(line)
                    effect = box.commit().effect
        assert effect is not None
        return effect.id

    def take_back(self, some: bool) -> None:
        """Some paths of an effect, or all that still stands of it."""
        model = self.model
        found = [one for one in model.made if model.standing(one)]
        if not found:
            return
        one = self.dice.choice(found)
        stands = model.standing(one)
        wanted = (
            set(self.dice.sample(sorted(stands), self.dice.randrange(1, len(stands) + 1))) if some else stands
        )
        names = model.closed(one, wanted)
        must = not model.covered(names, one.order) and all(
            model.files.get(name) == one.paths[name][1] for name in names
        )
        paths = [self.root / name for name in wanted] if some else None
        target = [one.id] if some else self._whole(one.id)
        result = self._tried(lambda: self.tb.undo(target, paths=paths), must)
        if result is None:
            return
        assert self._changed(result) <= names
        for name in names:
            model.files[name] = one.paths[name][0]
        undo = next(each for each in result.undo if each.change.adapter != "box")
        model.undos.append(Taken(undo.id, model.tick(), one.id, frozenset(names)))
        model.holder |= {(one.id, name): undo.id for name in names}

    def _whole(self, effect: str) -> list[str]:
        """The commit of a box is two effects."""
        return [effect, *(one.id for one in self.tb.effects(state="done") if effect in one.needs)]

    def bring_back(self) -> None:
        model = self.model
        if not model.undos:
            return
        undo = self.dice.choice(model.undos)
        one = next(each for each in model.made if each.id == undo.effect)
        names = {name for name in undo.names if model.holder.get((one.id, name)) == undo.id}
        as_left = all(model.files.get(name) == one.paths[name][0] for name in undo.names)
        must = names == undo.names and as_left and not model.covered(undo.names, undo.order)
        result = self._tried(lambda: self.tb.redo(undo.id), must)
        if result is None:
            return
        assert self._changed(result) <= undo.names
        # What was as the effect left it, because an earlier effect is undone, counts as brought back.
        for name in self._settled(result):
            model.files[name] = one.paths[name][1]
            model.holder.pop((one.id, name), None)

    def _changed(self, result: takeback.UndoResult) -> set[str]:
        return self._settled(result, ("undone",))

    def _settled(
        self, result: takeback.UndoResult, outcomes: tuple[str, ...] = ("undone", "already")
    ) -> set[str]:
        root = f"file://{self.root}/"
        done = (one.resource for one in result.targets if one.outcome in outcomes)
        return {one.removeprefix(root) for one in done if one.startswith(root)}

    def _tried(self, work: Callable[[], takeback.UndoResult], must: bool) -> takeback.UndoResult | None:
        result, refusal = None, None
        try:
            result = work()
        except takeback.Refused as error:
            refusal = error
        if result is None:
            assert not must, refusal
            return None
        assert result.outcome == "done"
        return result if self._changed(result) else None

    def check(self) -> None:
        model = self.model
        seen = {name: (self.root / name).read_text() for name in NAMES if (self.root / name).exists()}
        assert seen == {name: text for name, text in model.files.items() if text is not None}
        told = undone_paths(self.tb.store.journal, self.tb.effects())
        root = f"file://{self.root}/"
        for one in model.made:
            stands = model.standing(one)
            gone = set(one.paths) - stands
            shown = {path.removeprefix(root) for path in told.get(one.id, ())}
            assert shown == (gone if stands else set()), one
            state = self.tb.effect(one.id).state.value
            assert state == "undone" or stands or not gone, (state, one)
            assert state == "done" or gone, (state, one)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("engine", "seed"), [(engine, seed) for engine, seeds in ENGINES.items() for seed in range(seeds)]
)
def test_the_files_are_always_those_of_the_paths_that_stand(tmp_path: Path, engine: str, seed: int) -> None:
    dice = random.Random(f"{engine} {seed}")
    scene = Scene(tmp_path, engine, dice)
    with scene.tb:
        for _ in range(dice.randrange(1, 4)):
            scene.change()
        for _ in range(14):
            what = dice.choice(["change", "some", "some", "some", "rest", "redo", "redo", "redo"])
            if what == "change":
                scene.change()
            elif what in ("some", "rest"):
                scene.take_back(some=what == "some")
            else:
                scene.bring_back()
            scene.check()
        assert not list(scene.tb.store.journal.check())
