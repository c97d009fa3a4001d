"""A box whose process dies at any moment stands at one of its points, whole, and goes on from there."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import takeback
from takeback.runs.boxes import commit
from takeback.runs.boxes.box import Box
from takeback.testing.crash import (
    Boundaries,
    die,
    in_a_process,
    open_settled,
    open_wrapped,
    wrap_system_calls,
)
from tests.world import World

pytestmark = pytest.mark.root

LIMIT = 240


class Sweep:
    """One box with one step, and what is done to it by processes that die."""

    def __init__(self, store: Path, world: World, line: str) -> None:
        self.store, self.world, self.line = store, world, line
        self.worlds: set[str] = set()  # what was seen outside the box
        with takeback.open(store) as tb, tb.run("first") as run, run.sandbox(cwd=world.root) as box:
            box.run("echo 1 > a; echo 1 > gone")
            self.box = box.id

    def action(self, boundaries: Boundaries) -> None:
        wrap_system_calls(boundaries)
        with open_wrapped(str(self.store), boundaries) as tb:
            run = tb.session("session")
            with run.sandbox(box=self.box) as box:
                self.act(box)
            run.leave()

    def act(self, box: Box) -> None:
        if self.line == "undo":
            box.undo()
        elif self.line == "commit":
            box.commit()
        else:
            box.run(self.line)

    def settled(self) -> str:
        """What recovery makes of it, in words; then everything is as at first."""
        with open_settled(str(self.store)) as tb:
            assert tb.verify().sound
            assert not tb.effects(state=["proposed", "intended", "stuck"])
            self.worlds.add(" ".join(sorted(os.listdir(self.world.root))))
            with tb.run("looks") as run, run.sandbox(box=self.box) as box:
                shown = box.run("cat a 2>&1; ls; pwd").stdout.decode()
                known = {step.effect for step in box.history() if step.state == "done"}
                box.run("echo later > later")
                box.undo()
                assert {step.effect for step in box.history() if step.state == "done"} == known
                self.put_back(box, len(known))
            for effect in tb.effects(state=["done"]):
                if effect.change.adapter == "command" and not effect.is_undo:
                    tb.undo(effect)  # killed right after the files, before the box knew of it
            assert os.listdir(self.world.root) == []
            return shown.replace(str(self.world.root), "…")

    def put_back(self, box: Box, steps: int) -> None:
        if steps > 1:
            box.undo(steps - 1)
        elif not steps:
            box.run("echo 1 > a; echo 1 > gone")


def sweep(store: Path, world: World, line: str, step: int, first: int = 1) -> set[str]:
    scene = Sweep(store, world, line)
    seen: set[str] = set()
    at = first
    while True:
        end = in_a_process(scene.action, Boundaries(at))
        assert not end.error, end.error
        seen.add(scene.settled())
        if not end.killed:
            assert scene.worlds <= ({"", "a gone"} if line == "commit" else {""})
            assert line != "commit" or step > 3 or len(scene.worlds) == 2
            return seen
        at += step


BEFORE = "1\na\ngone\n…\n"
CASES = {
    "echo 2 > a; rm gone; cd /": {BEFORE, "/\n"},
    "undo": {BEFORE, "cat: a: No such file or directory\n…\n"},
    "commit": {BEFORE},
}


@pytest.mark.slow
@pytest.mark.parametrize("line", CASES)
def test_killed_at_any_boundary_it_is_before_or_after(store: Path, world: World, line: str) -> None:
    seen = sweep(store, world, line, 3)
    first, *rest = sorted(seen, key=lambda one: one != BEFORE)
    assert first == BEFORE and len(rest) == len(CASES[line]) - 1


@pytest.mark.long
@pytest.mark.parametrize("first", [1, 2, 3])
@pytest.mark.parametrize("line", CASES)
def test_killed_at_each_boundary_it_is_before_or_after(
    store: Path, world: World, line: str, first: int
) -> None:
    """Together every single one."""
    assert BEFORE in sweep(store, world, line, 3, first)


def test_killed_at_some_boundaries_it_is_before_or_after(store: Path, world: World) -> None:
    assert BEFORE in sweep(store, world, "echo 2 > a; rm gone", 45)


class Told(Sweep):
    """A commit, looked at by whoever opens the box next."""

    def settled(self) -> str:
        with open_settled(str(self.store)) as tb:
            assert tb.verify().sound
            assert not tb.effects(state=["proposed", "intended", "stuck"])
            merged = sorted(os.listdir(self.world.root))
            self.worlds.add(" ".join(merged))
            with tb.run("looks") as run, run.sandbox(box=self.box) as box:
                if merged:
                    assert merged == ["a", "gone"] and box.changes() == ()
                    assert box.commit().text == "There is nothing in the box to commit."
                    assert [step.kind for step in box.history() if step.state == "done"] == ["run", "commit"]
                    box.undo()
                assert os.listdir(self.world.root) == []
                assert box.run("cat a; ls").stdout == b"1\na\ngone\n"
        return " ".join(merged)


@pytest.mark.slow
def test_a_commit_that_was_killed_anywhere_is_known_to_the_box_if_its_files_were_merged(
    store: Path, world: World
) -> None:
    scene = Told(store, world, "commit")
    at = 1
    while in_a_process(scene.action, Boundaries(at)).killed:
        scene.settled()
        at += 2
    assert scene.settled() == "a gone" and scene.worlds == {"", "a gone"}


def dies_between(scene: Sweep) -> None:
    """Right after the files, before the box knows of it."""

    def action(boundaries: Boundaries) -> None:
        commit._start_anew = lambda *_: die()
        scene.action(boundaries)

    assert in_a_process(action, Boundaries()).killed


def test_killed_between_the_files_and_the_box_the_box_knows_when_it_is_opened_again(
    store: Path, world: World
) -> None:
    scene = Told(store, world, "commit")
    dies_between(scene)
    assert scene.settled() == "a gone"


def test_what_is_done_next_in_such_a_box_is_over_what_was_merged(store: Path, world: World) -> None:
    scene = Sweep(store, world, "commit")
    dies_between(scene)
    with takeback.open(store) as tb:
        with pytest.raises(RuntimeError), tb.run("fails") as run, run.sandbox(box=scene.box) as box:
            box.run("echo 2 > a; rm gone; mkdir d; echo d > d/x")
            raise RuntimeError
        with tb.run("goes on") as run, run.sandbox(box=scene.box) as box:
            assert box.changes() == ()
            box.run("echo 3 > a; rm gone; mkdir d; echo d > d/x")
            box.commit()
            assert sorted(os.listdir(world.root)) == ["a", "d"] and (world / "a").read_text() == "3\n"
            box.undo(2)
            assert sorted(os.listdir(world.root)) == ["a", "gone"]
            box.undo()
            assert os.listdir(world.root) == [] and len(box.changes()) == 2


def test_a_branch_that_was_killed_there_knows_too(store: Path, world: World) -> None:
    scene = Sweep(store, world, "commit")
    opened = takeback.open(store)
    with opened as tb, tb.run("branches") as run, run.sandbox(box=scene.box) as box, box.branch() as branch:
        scene.box = branch.id
    dies_between(scene)
    with takeback.open(store) as tb, tb.run("looks") as run, run.sandbox(box=scene.box) as box:
        assert box.changes() == () and sorted(os.listdir(world.root)) == ["a", "gone"]
        assert [step.kind for step in box.history()] == ["commit"]


def test_a_box_that_a_person_took_back_alone_is_left_so(store: Path, world: World) -> None:
    scene = Sweep(store, world, "commit")
    with takeback.open(store) as tb:
        with tb.run("commits") as run, run.sandbox(box=scene.box) as box:
            box.commit()
            told = box.history()[-1]
        tb.undo(told.effect)
        with tb.run("looks") as run, run.sandbox(box=scene.box) as box:
            box.run("true")
            assert [step.state for step in box.history()] == ["done", "undone"]


def test_killed_in_the_middle_of_a_command_it_stands_where_it_stood(store: Path, world: World) -> None:
    with takeback.open(store) as tb, tb.run("first") as run, run.sandbox(cwd=world.root) as box:
        box.run("echo 1 > a")
        id = box.id
    program = (
        "import sys, takeback\n"
        "with takeback.open(sys.argv[1]) as tb, tb.run('dies') as run, run.sandbox(box=sys.argv[2]) as box:\n"
        "    box.run('echo 2 > a; echo begun; sleep 300', capture=False)\n"
    )
    dying = subprocess.Popen([sys.executable, "-c", program, str(store), id], stdout=subprocess.PIPE)
    try:
        assert dying.stdout and dying.stdout.readline() == b"begun\n"
    finally:
        dying.send_signal(signal.SIGKILL)
        dying.wait(LIMIT)
        assert dying.stdout
        dying.stdout.close()
    with takeback.open(store) as tb, tb.run("looks") as run, run.sandbox(box=id) as box:
        assert box.run("cat a; ls").stdout == b"1\na\n"
        box.run("echo 3 > a")
        place = store / "layers" / id
        box.close()
        assert len([one for one in os.scandir(place) if one.is_dir()]) == 2
